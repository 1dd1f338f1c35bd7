"""The settings in effect: each value, where it comes from, and no secret."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from waypost.api.routing import ManagedHub
from waypost.config.models import Workflow
from waypost.config.nodes import find_variables
from waypost.errors import shorten
from waypost.redaction import HIDDEN, is_secret_name, redacted
from waypost.settings import IN_PYTHON, START_SECTIONS, Settings
from waypost.stores.directory import DATA_VARIABLE, data_directory
from waypost.wire.params import decode_cursor, encode_cursor

if TYPE_CHECKING:
    from waypost.config.findings import KeyPath
    from waypost.config.loader import Loaded

MAX_ROWS: Final = 500
_MAX_VALUE_CHARACTERS: Final = 300
_MAX_ITEMS: Final = 20
_SUMMARISED: Final = ("workflows", "capabilities")
"""Sections that have pages of their own: only their names are listed."""
_HASH: Final = "hash"
DATA_DIR: Final = "dataDirectory"

SettingSource = Literal["default", "file", "include", "environment", "keyword", "start"]
"""The default; the configuration file, a file it includes, or a variable that one of them names; a keyword argument of
`Hub`; or what was given at the start, by a program or a command, in place of what the file says."""


class SettingQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which settings: with a part of the key, of a source, and those after a cursor."""

    q: Annotated[str, Meta(max_length=200, description="A part of the key")] = ""
    source: SettingSource | None = None
    before: Annotated[str, Meta(max_length=1024)] | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_ROWS)] = 100


class SettingRow(msgspec.Struct, frozen=True):
    """One value; `variables` are the environment variables that its text names."""

    key: str
    value: Any
    source: SettingSource
    file: str = ""
    line: int = 0
    variables: list[str] = []
    description: str = ""


class SettingPage(msgspec.Struct, frozen=True):
    """Settings in the order of the documentation, the files they come from, and the cursor of the next page."""

    settings: list[SettingRow]
    files: list[str]
    total: int
    """How many there are in all."""
    next: str | None


async def list_settings(hub: ManagedHub, query: SettingQuery) -> SettingPage:
    """List the settings in effect, where each comes from, with their secrets masked."""
    rows = list(_Reader(hub).read())
    wanted = query.q.strip().casefold()
    found = [row for row in rows if wanted in row.key.casefold() and query.source in (None, row.source)]
    after = decode_cursor(query.before)
    start = next((place + 1 for place, row in enumerate(found) if row.key == after), 0)
    shown = found[start : start + query.limit]
    more = encode_cursor(shown[-1].key) if start + len(shown) < len(found) else None
    loaded = _find_loaded(hub)
    files = [] if loaded is None else [str(file) for file in loaded.files]
    return SettingPage(shown, files, len(rows), more)


def _find_loaded(hub: ManagedHub) -> Loaded | None:
    return None if hub.configuration is None else hub.configuration.loaded


class _Reader:
    """Reads all settings of a hub."""

    def __init__(self, hub: ManagedHub) -> None:
        self._loaded = _find_loaded(hub)
        self._running = hub.core.settings
        self._secrets = hub.core.pipeline.secrets
        self._data_dir = hub.core.data_dir
        listening = urlsplit(hub.replicas.address)
        self._listening: dict[KeyPath, Any] = {
            ("server", "host"): listening.hostname,
            ("server", "port"): listening.port,
        }
        """Where the hub really listens, which a command may have chosen."""

    def read(self) -> Iterator[SettingRow]:
        named = os.environ.get(DATA_VARIABLE)
        is_named = named is not None and Path(named).resolve() == self._data_dir.resolve()
        yield SettingRow(
            DATA_DIR,
            str(self._data_dir),
            "environment" if is_named else "default" if self._is_default_data_dir() else "start",
            variables=[DATA_VARIABLE] if is_named else [],
            description="Where the hub keeps its files.",
        )
        for field in _list_fields(Settings):
            is_old = self._loaded is None or field.name in START_SECTIONS
            settings = self._running if is_old else self._loaded.config  # type: ignore[union-attr]  # asked above
            value = getattr(settings, field.name)
            yield from self._walk(value, (field.key,), (field.name,), field.description)

    def _is_default_data_dir(self) -> bool:
        if self._loaded is not None:
            return self._data_dir.resolve() == data_directory(self._loaded.files[0]).resolve()
        # The file of a hub in Python is not known here; its directory is beside it, with this name.
        return self._data_dir.name == data_directory().name

    def _walk(self, value: Any, path: KeyPath, attributes: KeyPath, description: str = "") -> Iterator[SettingRow]:
        if path[0] in _SUMMARISED and len(path) == 2:
            value = len(value.states) if isinstance(value, Workflow) else ""
            yield self._row("" if value == "" else f"{value} states", path, attributes, value)
        elif isinstance(value, msgspec.Struct):
            for field in _list_fields(type(value)):
                inner = getattr(value, field.name)
                yield from self._walk(inner, (*path, field.key), (*attributes, field.name), field.description)
        elif isinstance(value, dict) and value:
            for name, item in value.items():
                yield from self._walk(item, (*path, name), (*attributes, name))
        elif isinstance(value, list) and any(isinstance(item, msgspec.Struct) for item in value):
            for place, item in enumerate(value):
                yield from self._walk(item, (*path, place), (*attributes, place))
        elif self._listening.get(path[:2]) not in (None, value):
            yield SettingRow(".".join(map(str, path)), self._listening[path[:2]], "start", description=description)
        else:
            yield self._row(self._mask(path, value), path, attributes, value, description)

    def _row(self, shown: Any, path: KeyPath, attributes: KeyPath, value: Any, description: str = "") -> SettingRow:
        key = ".".join(map(str, path))
        loaded = self._loaded
        if loaded is None:
            is_default = value == _get(IN_PYTHON, attributes)
            return SettingRow(key, shown, "default" if is_default else "keyword", description=description)
        if value != _get(loaded.config, attributes) and path[0] not in _SUMMARISED:
            return SettingRow(key, shown, "start", description=description)
        node = loaded.root.at(*path)
        if node is None:
            return SettingRow(key, shown, "default", description=description)
        variables = sorted(find_variables(node.written))
        place = loaded.sources.get(node.file)
        source: SettingSource = "file" if place is not None and place.path == loaded.path else "include"
        return SettingRow(
            key, shown, "environment" if variables else source, node.file, node.line, variables, description
        )

    def _mask(self, path: KeyPath, value: Any) -> Any:
        name = str(next((part for part in reversed(path) if isinstance(part, str)), ""))
        # A mapping such as `workers.tokens` has the secrets themselves as its values.
        holder = str(path[-2]) if len(path) > 1 else ""
        if isinstance(value, str) and value:
            if name == _HASH:
                return value[:15] + "…"
            if is_secret_name(name) or holder == "tokens":
                return HIDDEN
            return shorten(redacted(value, self._secrets), _MAX_VALUE_CHARACTERS)
        if isinstance(value, list):
            return [self._mask(path, item) for item in value[:_MAX_ITEMS]]
        if isinstance(value, Mapping):
            return {key: self._mask((*path, key), item) for key, item in list(value.items())[:_MAX_ITEMS]}
        return value


def _get(value: Any, attributes: KeyPath) -> Any:
    """The value at a path of attributes, names and places; what is not there is like nothing else."""
    for part in attributes:
        if isinstance(value, Mapping):
            value = value.get(part, _get)
        elif isinstance(value, list):
            value = value[part] if isinstance(part, int) and part < len(value) else _get
        else:
            value = getattr(value, str(part), _get)
    return value


class _Field(NamedTuple):
    """A field of a section: its name in Python and in the file, and what it is for."""

    name: str
    key: str
    description: str


@cache  # evaluating the annotations of all sections takes tens of milliseconds
def _list_fields(section: type[msgspec.Struct]) -> tuple[_Field, ...]:
    return tuple(_Field(one.name, one.encode_name, _describe(one.type)) for one in msgspec.structs.fields(section))


def _describe(annotation: Any) -> str:
    info = msgspec.inspect.type_info(annotation)
    schema = info.extra_json_schema if isinstance(info, msgspec.inspect.Metadata) else None
    return str((schema or {}).get("description", ""))


SETTINGS: Final = SettingPage(
    [SettingRow("server.port", 8420, "file", "waypost.yaml", 3, [], "The port to listen on; 0 takes a free one.")],
    ["/srv/waypost.yaml"],
    190,
    None,
)
