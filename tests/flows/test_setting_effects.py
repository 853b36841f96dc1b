"""Every setting changes something that can be seen: a case for each, with what two values do.

The cases stand with what they look at, in `setting_effects_deciders`, `_documents`, `_health`,
`_http`, `_lifecycle`, `_logs`, `_models`, `_retention`, `_sessions`, `_stages`, `_stores`,
`_telemetry`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from palimpsest.ops.settings.sources import reference
from tests.flows import (
    setting_effects_deciders,
    setting_effects_documents,
    setting_effects_health,
    setting_effects_http,
    setting_effects_lifecycle,
    setting_effects_logs,
    setting_effects_models,
    setting_effects_retention,
    setting_effects_sessions,
    setting_effects_stages,
    setting_effects_stores,
    setting_effects_telemetry,
)
from tests.servers import ScriptedProvider
from tests.setting_lab import Case, Lab, held_port

CASES = {
    **setting_effects_deciders.CASES,
    **setting_effects_documents.CASES,
    **setting_effects_health.CASES,
    **setting_effects_http.CASES,
    **setting_effects_lifecycle.CASES,
    **setting_effects_logs.CASES,
    **setting_effects_models.CASES,
    **setting_effects_retention.CASES,
    **setting_effects_sessions.CASES,
    **setting_effects_stages.CASES,
    **setting_effects_stores.CASES,
    **setting_effects_telemetry.CASES,
}

ALL = [*CASES.items(), *setting_effects_models.MORE_CASES]


def test_every_setting_has_a_case() -> None:
    assert set(CASES) == {setting.key for setting in reference()}


@pytest.mark.parametrize(("key", "case"), ALL, ids=[key for key, _ in ALL])
async def test_every_setting_changes_what_it_says(
    key: str, case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    for number, (value, expected) in enumerate(zip(case.values, case.told, strict=True)):
        async with (
            ScriptedProvider(models=["scripted", "second"], dimensions=64) as server,
            ScriptedProvider(models=["scripted"], dimensions=64) as other,
        ):
            with monkeypatch.context() as patch, held_port() as port:
                folder = tmp_path / str(number)
                folder.mkdir()
                flags = (*case.given, f"{key}={value}")
                lab = Lab(folder, patch, server, other, port, flags, expected)
                seen.append(await case.see(lab))
    assert tuple(seen) == case.told
