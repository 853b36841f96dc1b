"""Settings: precedence, refusal of what is unknown, where a value is from, secrets."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from palimpsest.ops.parts import (
    SetupError,
    embedding_choice,
    embedding_model,
    language_model,
    shard_options,
)
from palimpsest.ops.settings.sections import Settings
from palimpsest.ops.settings.sources import (
    FOLDER_FILE_NAME,
    MASK,
    SettingsError,
    keep_index_settings,
    load_settings,
    reference,
)

ENGLISH, MULTILINGUAL = "answerai-colbert-small-int8", "multilingual-e5-small-q4"


def loaded(*flags: str, file: Path | None = None, **environment: str) -> Settings:
    return load_settings(flags, None, file, environment).settings


def toml(folder: Path, text: str) -> Path:
    path = folder / "palimpsest.toml"
    path.write_text(text)
    return path


def test_flags_beat_environment_beats_file_beats_default(tmp_path: Path) -> None:
    file = toml(
        tmp_path, '[llm]\nmodel = "file"\nconcurrency = 2\ntimeout_seconds = 9\n[log]\npartitions=3'
    )
    found = load_settings(
        ["llm.model=flag"],
        None,
        file,
        {"PALIMPSEST_LLM__MODEL": "environment", "PALIMPSEST_LLM__CONCURRENCY": "7"},
    )
    settings = found.settings
    assert settings.llm.model == "flag"
    assert settings.llm.concurrency == 7
    assert settings.llm.timeout_seconds == 9.0
    assert settings.log.partitions == 3
    assert settings.worker.batch_records == 512
    sources = {key: source for key, _, source in found.effective()}
    assert sources["llm.model"] == "flag --set llm.model"
    assert sources["llm.concurrency"] == "environment PALIMPSEST_LLM__CONCURRENCY"
    assert sources["llm.timeout_seconds"] == f"file {file}"
    assert sources["worker.batch_records"] == "default"


def test_the_file_of_the_working_folder_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toml(tmp_path, 'data_dir = "elsewhere"')
    monkeypatch.chdir(tmp_path)
    assert loaded().data_dir == Path("elsewhere")
    assert load_settings((), Path("given"), None, {}).settings.data_dir == Path("given")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[llm]\nprovidre = 'rules'", "llm.provider"),
        ("[lmm]\nprovider = 'rules'", "lmm"),
        ("datadir = 'x'", "data_dir"),
        ("llm = 'rules'", "[llm]"),
        ("[llm", "not TOML"),
        ("[llm]\nconcurrency = 'many'", "llm.concurrency"),
        ("[llm]\nconcurrency = 0", "greater than or equal to 1"),
    ],
)
def test_a_wrong_file_is_told(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(SettingsError) as error:
        loaded(file=toml(tmp_path, text))
    assert told in str(error.value)


def test_a_file_that_cannot_be_read_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "palimpsest.toml"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(SettingsError, match=r"no text in UTF-8$"):
        loaded(file=file)
    file.unlink()
    file.mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingsError, match="cannot read the settings file"):
        loaded()


@pytest.mark.parametrize("flag", ["=x", " = x", "llm.model"])
def test_a_flag_without_a_key_or_a_value_is_told(flag: str) -> None:
    with pytest.raises(SettingsError, match="KEY=VALUE"):
        loaded(flag)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="nowhere"):
        loaded(file=tmp_path / "nowhere.toml")


def test_unknown_variables_are_refused_with_the_nearest_name() -> None:
    with pytest.raises(SettingsError, match="did you mean PALIMPSEST_LLM__PROVIDER"):
        loaded(PALIMPSEST_LLM__PROVIDRE="rules")
    with pytest.raises(SettingsError, match="PALIMPSEST_PROVIDER"):
        loaded(PALIMPSEST_PROVIDER="rules")


def test_unknown_flags_are_refused_with_the_nearest_name() -> None:
    with pytest.raises(SettingsError, match=r"did you mean llm\.model"):
        loaded("llm.modle=x")
    with pytest.raises(SettingsError, match="KEY=VALUE"):
        loaded("llm.model")


def test_a_wrong_value_is_told_with_its_source() -> None:
    with pytest.raises(SettingsError, match="environment PALIMPSEST_LLM__CONCURRENCY"):
        loaded(PALIMPSEST_LLM__CONCURRENCY="zero")
    with pytest.raises(SettingsError, match=r"flag --set llm\.provider"):
        loaded("llm.provider=nobody")


def test_secrets_are_never_shown() -> None:
    found = load_settings((), None, None, {"PALIMPSEST_LLM__API_KEY": "sk-hidden"})
    key = found.settings.llm.api_key
    assert key is not None
    assert key.get_secret_value() == "sk-hidden"
    shown = {key: value for key, value, _ in found.effective()}
    assert shown["llm.api_key"] == MASK
    assert shown["embedding.api_key"] is None
    assert "sk-hidden" not in repr(found)


def test_a_list_is_written_with_commas() -> None:
    assert loaded("extraction.roles=user, tool").extraction.roles == ("user", "tool")
    assert loaded(PALIMPSEST_EXTRACTION__ROLES="user").extraction.roles == ("user",)
    assert loaded(PALIMPSEST_EXTRACTION__ROLES='["system"]').extraction.roles == ("system",)


def test_an_empty_variable_is_as_if_not_set() -> None:
    assert loaded(PALIMPSEST_LLM__MODEL="").llm.model is None


def test_every_setting_says_what_it_is() -> None:
    for setting in reference():
        assert setting.description, setting.key
        assert setting.type, setting.key


def test_the_decider_follows_the_provider() -> None:
    assert loaded().decider == "rules"
    assert loaded("llm.provider=ollama").decider == "model"
    assert loaded("llm.provider=ollama", "decision.decider=rules").decider == "rules"


def test_bands_belong_to_the_embedding_model() -> None:
    own, general = loaded(), loaded("embedding.provider=ollama", "embedding.model=bge-m3:latest")
    assert own.near > general.near
    assert (general.exact, general.near) == (0.98, 0.70)
    assert loaded("decision.near=0.5").near == 0.5


def test_settings_reach_the_parts() -> None:
    settings = loaded(
        "store.memory_limit=256",
        "embedding.provider=hashing",
        "embedding.dimensions=64",
    )
    options = shard_options(settings, embedding_model(settings))
    assert (options.store.memory_limit, options.dimensions) == (256, 64)


@pytest.mark.parametrize("provider", ["rules", "ollama", "openai", "anthropic"])
def test_every_provider_can_be_made(provider: str) -> None:
    settings = loaded(f"llm.provider={provider}", "llm.api_key=k")
    assert language_model(settings.llm).model == settings.llm.model_name


@pytest.mark.parametrize("provider", ["local", "ollama", "openai", "hashing"])
def test_every_embedding_provider_can_be_made(provider: str) -> None:
    settings = loaded(f"embedding.provider={provider}")
    model = embedding_model(settings)
    assert model.model.startswith(settings.embedding_model)
    assert model.dimensions == settings.embedding_defaults.dimensions


@pytest.mark.parametrize(
    ("flags", "model"),
    [
        ([], ENGLISH),
        (["search.language=EN"], ENGLISH),
        (["search.language= English "], ENGLISH),
        (["search.language=porter"], ENGLISH),
        (["search.language=de"], MULTILINGUAL),
        (["search.language=none"], MULTILINGUAL),
        (["embedding.model=multilingual-e5-small-q4"], MULTILINGUAL),
        (["search.language=german", "embedding.model=answerai-colbert-small-int8"], ENGLISH),
        (["search.language=german", "embedding.provider=ollama"], "nomic-embed-text"),
        (["embedding.provider=ollama"], "nomic-embed-text"),
    ],
)
def test_the_language_chooses_the_local_model(flags: list[str], model: str) -> None:
    settings = loaded(*flags)
    assert settings.embedding_model == model
    assert embedding_model(settings).model == model
    named = any(flag.startswith("embedding.") for flag in flags)
    choice = embedding_choice(settings)
    assert (choice is None) == named
    if choice is not None:
        assert f"search.language = {settings.search.language}" in choice
        assert ("other languages" in choice) == (model == ENGLISH)


def test_the_bands_are_those_of_the_chosen_model() -> None:
    assert (loaded().exact, loaded().near) == (0.97, 0.85)
    german = loaded("search.language=german")
    assert (german.exact, german.near) == (0.975, 0.88)


def test_a_language_that_there_is_not_is_told_with_those_there_are() -> None:
    with pytest.raises(SettingsError, match=r"search\.language.*klingon.*english"):
        loaded("search.language=klingon")


def test_a_local_model_that_there_is_not_is_told_with_those_there_are() -> None:
    settings = loaded("embedding.model=answerai-colbert")
    with pytest.raises(SetupError, match=r"multilingual-e5-small-q4.*answerai-colbert-small-int8"):
        embedding_model(settings)


def test_a_model_of_unknown_size_asks_for_its_dimensions() -> None:
    settings = loaded("embedding.provider=ollama", "embedding.model=mine")
    with pytest.raises(SetupError, match=r"embedding\.dimensions"):
        embedding_model(settings)


def test_a_base_url_that_is_none_is_told() -> None:
    with pytest.raises(SetupError, match="http"):
        language_model(loaded("llm.provider=ollama", "llm.base_url=localhost").llm)


def test_what_is_set_by_default_is_what_was_measured() -> None:
    """`bench retrieval` measures recall as it goes when nothing is set, and told these values."""
    from palimpsest.ops.bench.retrieval import METHODS

    defaults = Settings()
    [hybrid] = [variant for variant in METHODS if variant.name == "hybrid"]
    assert hybrid.settings == defaults.recall
    assert defaults.graph.enabled
    measured = {
        "fusion": "hybrid",
        "alpha": None,
        "profile": "relevance",
        "pool": 50,
        "graph_weight": 0.05,
        "time_words": "prefer",
        "when_weight": 0.2,
        "rerank": "off",
        "mmr": False,
    }
    assert {name: getattr(defaults.recall, name) for name in measured} == measured


def test_a_folder_keeps_what_it_is_indexed_with(tmp_path: Path) -> None:
    flags = ["search.language=german", "embedding.provider=hashing", "embedding.dimensions=64"]
    keep_index_settings(load_settings(flags, tmp_path, None, {}).settings)
    later = load_settings([], tmp_path, None, {})
    assert later.settings.search.language == "german"
    assert (later.settings.embedding.provider, later.settings.embedding.dimensions) == (
        "hashing",
        64,
    )
    assert later.origins["embedding.provider"] == f"file {tmp_path / FOLDER_FILE_NAME}"
    # Another provider comes without the numbers of the one before.
    other = load_settings(["embedding.provider=local"], tmp_path, None, {}).settings
    assert (other.embedding.provider, other.embedding.dimensions) == ("local", None)
    assert other.search.language == "german"


@pytest.mark.parametrize(
    "flag", ["embedding.api_key=k", "embedding.timeout_seconds=9", "embedding.batch=7"]
)
def test_what_says_nothing_of_the_model_leaves_the_folder_s(tmp_path: Path, flag: str) -> None:
    flags = ["embedding.provider=openai", "embedding.base_url=http://host/v1", "embedding.model=m"]
    keep_index_settings(load_settings(flags, tmp_path, None, {}).settings)
    later = load_settings([flag], tmp_path, None, {}).settings.embedding
    assert (later.provider, later.base_url, later.model) == ("openai", "http://host/v1", "m")


def test_a_folder_keeps_no_password(tmp_path: Path) -> None:
    flags = ["embedding.provider=openai", "embedding.base_url=http://u:hidden@host/v1"]
    flags += [
        "embedding.api_key=hidden",
        'embedding.model=a "quoted" one',
        "embedding.dimensions=8",
    ]
    keep_index_settings(load_settings(flags, tmp_path, None, {}).settings)
    assert "hidden" not in (tmp_path / FOLDER_FILE_NAME).read_text()
    assert load_settings([], tmp_path, None, {}).settings.embedding_model == 'a "quoted" one'


def test_a_folder_s_file_that_is_wrong_is_told(tmp_path: Path) -> None:
    (tmp_path / FOLDER_FILE_NAME).write_text('[search]\nlanguage = "klingon"\n')
    with pytest.raises(SettingsError, match=f"{FOLDER_FILE_NAME}.*klingon"):
        load_settings([], tmp_path, None, {})


def test_workers_that_share_a_folder_keep_it_at_once(tmp_path: Path) -> None:
    flags = [["search.language=german"], ["search.language=english"]] * 20
    given = [load_settings(each, tmp_path, None, {}).settings for each in flags]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(keep_index_settings, given))
    assert [each.name for each in tmp_path.iterdir()] == [FOLDER_FILE_NAME]
