"""Reading an OpenAPI document, JSON or YAML, within bounds; what is in it is looked at later."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import yaml

from waypost.config.scalars import resolve
from waypost.errors import DefinitionError

MAX_BYTES: Final = 16 * 1024 * 1024
MAX_VALUES: Final = 1_000_000
MAX_DEPTH: Final = 128
Data = dict[str, Any]
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read(file: str) -> Data:
    """The document in a file, if it says that it is one of OpenAPI 3.0 or 3.1; else a `DefinitionError`."""
    data = _bytes(file)
    document = _json(data) if data.lstrip()[:1] == b"{" else _yaml(data)
    if not isinstance(document, dict):
        raise DefinitionError("the document is not a mapping")
    version = document.get("openapi")
    if "swagger" in document and version is None:
        raise DefinitionError("the document is of Swagger 2.0; convert it to OpenAPI 3.0 or 3.1")
    if not isinstance(version, str) or not version.startswith(("3.0", "3.1")):
        raise DefinitionError("the document does not say `openapi: 3.0.x` or `3.1.x`, the versions that are read")
    return document


def _bytes(file: str) -> bytes:
    try:
        # Opening a pipe or a device could block for ever.
        if not stat.S_ISREG(os.stat(file).st_mode):
            raise DefinitionError("the document is not a regular file")
        with open(file, "rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "its name cannot be used"
        raise DefinitionError(f"the document cannot be read: {reason.lower()}") from None
    if len(data) > MAX_BYTES:
        raise DefinitionError(f"the document is larger than {MAX_BYTES >> 20} MiB")
    return data.removeprefix(b"\xef\xbb\xbf")


def _json(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except RecursionError:
        raise DefinitionError("the document is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _yaml(data)  # a mapping of YAML may begin with a brace, too


def _yaml(data: bytes) -> Any:
    try:
        return _Composer().document(yaml.parse(data.decode(), Loader=_Loader))
    except UnicodeDecodeError:
        raise DefinitionError("the document is not UTF-8 text") from None
    except yaml.MarkedYAMLError as error:
        where = f" in line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise DefinitionError(f"the document is neither JSON nor YAML: {error.problem}{where}") from None
    except yaml.YAMLError:
        raise DefinitionError("the document is neither JSON nor YAML") from None


class _Composer:
    """Builds values from the events of a parser; an alias is the very value it stands for, never a copy."""

    def __init__(self) -> None:
        self._count = 0
        self._anchors: dict[str, Any] = {}

    def document(self, events: Iterator[yaml.Event]) -> Any:
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                return self._value(next(events), events, 1)
        return None

    def _value(self, event: yaml.Event, events: Iterator[yaml.Event], depth: int) -> Any:
        self._count += 1
        if self._count > MAX_VALUES:
            raise DefinitionError(f"the document holds more than {MAX_VALUES:,} values")
        if depth > MAX_DEPTH:
            raise DefinitionError("the document is nested too deeply")
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchors:
                raise DefinitionError("the document has an alias without an anchor before it")
            return self._anchors[event.anchor]
        value: Any
        if isinstance(event, yaml.ScalarEvent):
            value = resolve(event.value) if event.implicit[0] and not event.tag else event.value
        elif isinstance(event, yaml.SequenceStartEvent):
            value = list(self._items(events, yaml.SequenceEndEvent, depth))
        else:
            parts = list(self._items(events, yaml.MappingEndEvent, depth))
            value = {_key(key): item for key, item in zip(parts[::2], parts[1::2], strict=True)}
        anchor = getattr(event, "anchor", None)
        if anchor:
            self._anchors[anchor] = value
        return value

    def _items(self, events: Iterator[yaml.Event], end: type[yaml.Event], depth: int) -> Iterator[Any]:
        while not isinstance(event := next(events), end):
            yield self._value(event, events, depth + 1)


def _key(value: Any) -> str:
    """A key as text: the codes of answers are often written as numbers."""
    return value if isinstance(value, str) else repr(value)[:100]
