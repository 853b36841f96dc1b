"""Settings from flags, environment, file and the data folder, in this order of precedence, and the
source of each.

Nothing is guessed: an unknown key is refused with the nearest name, wherever it is set.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import BaseModel, JsonValue, SecretStr, ValidationError
from pydantic_settings import EnvSettingsSource

from palimpsest.ops.settings.sections import Settings
from palimpsest.stores.database.durable_files import write_whole

FILE_NAME = "palimpsest.toml"
PREFIX = "PALIMPSEST_"
OTHER_VARIABLES = ("PALIMPSEST_TOKEN", "PALIMPSEST_REQUIRE_KAFKA", "PALIMPSEST_HTTP_EXAMPLES")
"""Variables that are not settings: a client's token, and parameters of tests."""
MASK = "********"
LISTS = (
    *("intent.phrases", "intent.more_phrases", "extraction.roles", "pii.kinds"),
    *("kafka.workers", "http.allowed_hosts", "pipeline.shadow_deciders"),
)
"""Settings that hold several values; on one line they are separated by commas."""

Flat = dict[str, object]


class SettingsError(Exception):
    """Unusable settings; the text names the setting, its source and what to do."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting as documented: its dotted key, its type, its default and what it does."""

    key: str
    type: str
    default: object
    description: str


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """The effective settings. `origins` maps every key that is not a default to its source."""

    settings: Settings
    origins: Mapping[str, str]

    def effective(self) -> Iterator[tuple[str, JsonValue, str]]:
        """(key, value, source) of every setting in the order of the reference; secrets masked."""
        values = flattened(self.settings)
        for setting in reference():
            source = self.origins.get(setting.key, "default")
            yield setting.key, shown(values[setting.key]), source


def load_settings(
    flags: Sequence[str] = (),
    data_dir: Path | None = None,
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> LoadedSettings:
    """The settings of this run.

    `flags` are `key=value`; `file` must exist if it is set; by default `palimpsest.toml` of the
    working folder is read if it exists. Raises SettingsError.
    """
    environment = os.environ if environment is None else environment
    sources = [*_file_source(file), *_environment_source(environment), *_flag_source(flags)]
    if data_dir is not None:
        sources.append(("flag --data-dir", {"data_dir": data_dir}))
    values: Flat = {}
    origins: dict[str, str] = {}
    for source, found in sources:
        for key, value in found.items():
            values[key] = value
            origins[key] = source
    file = kept_in(Path(str(values.get("data_dir", Settings.model_fields["data_dir"].default))))
    for source, found in [] if file is None else _file_source(file):
        kept = still_applying(found, values)
        values = kept | values
        origins = dict.fromkeys(kept, source) | origins
    try:
        settings = Settings.model_validate(_nested(values))
    except ValidationError as error:
        raise SettingsError(_explained(error, origins)) from None
    return LoadedSettings(settings, origins)


def with_overrides(settings: Settings, flags: Sequence[str]) -> Settings:
    """These settings with some changed, as `key=value`. Raises SettingsError."""
    values, origins = flattened(settings), {}
    for source, found in _flag_source(flags):
        values.update(found)
        origins.update(dict.fromkeys(found, source))
    try:
        return Settings.model_validate(_nested(values))
    except ValidationError as error:
        raise SettingsError(_explained(error, origins)) from None


def reference() -> list[Setting]:
    """Every setting there is, in the order of the file."""
    found = []
    for name, field in Settings.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            for key, part in kind.model_fields.items():
                found.append(
                    Setting(
                        f"{name}.{key}",
                        _type(part.annotation),
                        part.default,
                        part.description or "",
                    )
                )
        else:
            found.append(Setting(name, _type(kind), field.default, field.description or ""))
    return found


def flattened(settings: Settings) -> Flat:
    """Values by dotted key."""
    flat: Flat = {}
    for name in Settings.model_fields:
        value = getattr(settings, name)
        if isinstance(value, BaseModel):
            for key in type(value).model_fields:
                flat[f"{name}.{key}"] = getattr(value, key)
        else:
            flat[name] = value
    return flat


_PASSWORD: Final = re.compile(r"(?<=://)[^/?#\s]{1,1024}(?=@)")
"""Who asks, and the password, in a URL."""


def shown(value: object) -> JsonValue:
    """A value for people and scripts, secrets masked."""
    if isinstance(value, str):
        return _PASSWORD.sub(MASK, value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, SecretStr):
        return MASK
    if isinstance(value, tuple):
        return [shown(item) for item in value]
    return str(value)


def _file_source(file: Path | None) -> list[tuple[str, Flat]]:
    path = Path(FILE_NAME) if file is None else file
    if file is None and not path.exists():
        return []
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"cannot read the settings file {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"the settings file {path} is no text in UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"the settings file {path} is not TOML: {error}") from None
    flat = dict(_walk(content, str(path)))
    return [(f"file {path}", flat)]


def _walk(content: Mapping[str, object], source: str) -> Iterator[tuple[str, object]]:
    sections = {setting.key.partition(".")[0] for setting in reference() if "." in setting.key}
    for name, value in content.items():
        if name in sections:
            if not isinstance(value, dict):
                raise SettingsError(f"{source}: {name} is a table; write it as [{name}]")
            for key, inner in value.items():
                _known(f"{name}.{key}", source)
                yield f"{name}.{key}", inner
        else:
            _known(name, source)
            yield name, value


def _environment_source(environment: Mapping[str, str]) -> list[tuple[str, Flat]]:
    own = {
        name: value
        for name, value in environment.items()
        if name.startswith(PREFIX) and name not in OTHER_VARIABLES and value
    }
    keys = {name: name.removeprefix(PREFIX).lower().replace("__", ".") for name in own}
    for name, key in keys.items():
        _known(key, "the environment", name, lambda near: PREFIX + near.upper().replace(".", "__"))
    source = EnvSettingsSource(Settings)
    source.env_vars = {
        name.lower(): json.dumps(_listed(value)) if keys[name] in LISTS else value
        for name, value in own.items()
    }
    try:
        nested = source()
    except ValueError as error:
        raise SettingsError(f"the environment: {error}") from None
    flat = dict(_walk(nested, "the environment"))
    return [(f"environment {name}", {key: flat[key]}) for name, key in keys.items()]


def _flag_source(flags: Sequence[str]) -> list[tuple[str, Flat]]:
    found = []
    for flag in flags:
        key, equals, value = flag.partition("=")
        if not equals or not key.strip():
            raise SettingsError(
                f"--set {flag}: write it as KEY=VALUE, for example llm.model=qwen3:4b"
            )
        key = key.strip()
        _known(key, "--set")
        parsed: object = _listed(value) if key in LISTS else value
        found.append((f"flag --set {key}", {key: parsed}))
    return found


def _listed(value: str) -> list[str]:
    """`a, b` or `["a", "b"]` as a list."""
    bare = value.strip().removeprefix("[").removesuffix("]")
    return [part.strip().strip("\"'") for part in bare.split(",") if part.strip()]


def _known(
    key: str, source: str, name: str | None = None, spell: Callable[[str], str] = str
) -> None:
    keys = [setting.key for setting in reference()]
    if key in keys:
        return
    near = difflib.get_close_matches(key, keys, 1, 0.5)
    last = key.rpartition(".")[2]
    near = near or [known for known in keys if known.rpartition(".")[2] == last][:1]
    hint = f"; did you mean {spell(near[0])}?" if near else ""
    raise SettingsError(
        f"{source}: there is no setting {name or key}{hint} (`palimpsest settings` lists them all)"
    )


def _nested(values: Flat) -> dict[str, object]:
    nested: dict[str, object] = {}
    for key, value in values.items():
        section, dot, name = key.partition(".")
        if dot:
            inner = nested.setdefault(section, {})
            assert isinstance(inner, dict)
            inner[name] = value
        else:
            nested[key] = value
    return nested


def _explained(error: ValidationError, origins: Mapping[str, str]) -> str:
    from palimpsest.schemas.failures import place, says  # with all messages: only for an error

    lines = []
    for failure in error.errors(include_url=False, include_input=True):
        loc = tuple(map(str, place(failure["loc"])))
        known = (".".join(loc[:length]) for length in (2, 1))
        key = next((each for each in known if each in origins), ".".join(loc))
        value = "" if "key" in key else f" = {failure['input']!r}"
        source = origins.get(key, "default")
        lines.append(f"setting {key}{value} (from {source}): {says(failure)}")
    return "\n".join(lines)


def _type(annotation: object) -> str:
    """How a type is written in the reference."""
    text = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    for old, new in (
        ("typing.", ""),
        ("pydantic.types.", ""),
        ("SecretStr", "secret"),
        ("Path", "path"),
        ("str", "text"),
        ("Optional", ""),
        (" | None", ""),
    ):
        text = text.replace(old, new)
    return (
        text.replace("Literal[", "")
        .replace("]", "")
        .replace("'", "")
        .replace("tuple[", "list of ")
        .replace(", ...", "")
        .replace(", ", " | ")
    )


# ---- the settings of a data folder ----
FOLDER_FILE_NAME: Final = "index.toml"
_HEAD: Final = (
    "# What the memories in this folder are indexed with; a setting given elsewhere wins.\n"
)
_EMBEDDING: Final = (
    *("provider", "base_url", "model", "dimensions"),
    *("query_prefix", "passage_prefix"),
)


def keep_index_settings(settings: Settings) -> None:
    """Raises OSError."""
    search = {"language": settings.search.language}
    embedding = {
        name: value
        for name in _EMBEDDING
        if (value := getattr(settings.embedding, name)) is not None
        and not (name == "base_url" and "@" in value)  # a password
    }
    # JSON's strings and numbers are TOML's, too.
    tables = {"search": search, "embedding": embedding}
    text = _HEAD + "".join(
        f"[{table}]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in held.items())
        for table, held in tables.items()
    )
    path = settings.data_dir / FOLDER_FILE_NAME
    content = text.encode()
    if not path.is_file() or path.read_bytes() != content:
        write_whole(path, content)


def kept_in(folder: Path) -> Path | None:
    """The folder's file, if it has one."""
    path = folder / FOLDER_FILE_NAME
    return path if path.is_file() else None


def still_applying(kept: Mapping[str, object], set_now: Mapping[str, object]) -> dict[str, object]:
    """The stored settings, by dotted key, that still apply alongside those that are set: a
    service's key or time limit does not change the model."""
    embeds_otherwise = any(f"embedding.{name}" in set_now for name in _EMBEDDING)
    return {
        key: value
        for key, value in kept.items()
        if not (embeds_otherwise and key.startswith("embedding."))
    }
