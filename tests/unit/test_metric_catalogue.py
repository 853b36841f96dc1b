"""What is made from the catalogue of metrics and alerts is fresh, whole and leads somewhere."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from palimpsest.ops.scripts.reference import (
    FOLDER,
    commands,
    files,
    render_alerts,
    render_dashboard,
)
from palimpsest.ops.telemetry.catalogue import ALERTS, METRICS, Alert

RUNBOOKS = FOLDER / "runbooks"


def test_the_generated_files_are_fresh() -> None:
    for path, text in files().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: make docs"


def test_dashboard_and_alerts_name_only_metrics_of_the_catalogue() -> None:
    samples = {metric.sample: metric for metric in METRICS.values()}
    endings = {"_bucket", "_sum", "_count"}
    for text in (render_dashboard(), render_alerts()):
        found = {*re.findall(r"palimpsest_\w+", text)}
        assert len(found) > 10
        for name in found:
            base = next((name.removesuffix(end) for end in endings if name.endswith(end)), name)
            assert name in samples or samples[base].kind == "histogram", name


def test_labels_are_those_of_the_metric() -> None:
    pattern = re.compile(r"by \(([\w, ]+)\) \((?:rate\(|increase\(|deriv\()?(palimpsest_\w+)")
    samples = {metric.sample: metric for metric in METRICS.values()}
    found = pattern.findall(render_dashboard() + render_alerts())
    assert len(found) > 20
    for labels, name in found:
        metric = samples.get(name) or samples[name.rpartition("_")[0]]
        assert {*labels.split(", ")} <= {*metric.labels, "le"}, (labels, name)


def test_the_alerts_are_rules_for_prometheus() -> None:
    [group] = yaml.safe_load(render_alerts())["groups"]
    assert [rule["alert"] for rule in group["rules"]] == [alert.name for alert in ALERTS]
    assert [rule["expr"] for rule in group["rules"]] == [alert.expr for alert in ALERTS]


def test_the_dashboard_has_a_panel_per_metric_that_overlaps_none() -> None:
    panels = json.loads(render_dashboard())["panels"]
    cells = [
        (panel["gridPos"]["x"] + x, panel["gridPos"]["y"] + y)
        for panel in panels
        for x in range(panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["h"])
    ]
    assert len(cells) == len({*cells})
    assert len([panel for panel in panels if panel["type"] == "timeseries"]) == len(METRICS)


def test_every_alert_has_a_runbook() -> None:
    assert {path.stem for path in RUNBOOKS.glob("*.md")} == {alert.slug for alert in ALERTS}


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.slug)
def test_a_runbook_names_its_alert_and_commands_that_are_there(alert: Alert) -> None:
    page = (RUNBOOKS / f"{alert.slug}.md").read_text(encoding="utf-8")
    assert page.startswith(f"# {alert.name}\n")
    assert re.findall(r"^## (\w+)$", page, re.MULTILINE) == ["Look", "Do"]
    known = {each.name for each in commands()}
    used = re.findall(r"palimpsest (?:[a-z-]+)(?: [a-z-]+)?", page)
    assert [each for each in used if not {each, each.rpartition(" ")[0]} & known] == []
