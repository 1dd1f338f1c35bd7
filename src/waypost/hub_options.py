"""The keyword arguments of `Hub`, as settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil
from os import PathLike
from typing import Annotated, Any, Final, NamedTuple, get_args

import msgspec
from msgspec import Meta

from waypost.errors import DefinitionError
from waypost.settings import IN_PYTHON, Limits, Server, Settings, WorkerLimits, Workers
from waypost.stores.store import Store
from waypost.suggestions import did_you_mean


class _Alias(NamedTuple):
    """A keyword argument of `Hub` that stands for a setting in another unit, with the least value it takes."""

    section: str
    field: str
    seconds: bool = False
    least: float = 1


_ALIASES: Final[Mapping[str, _Alias]] = {
    "tool_timeout": _Alias("server", "tool_timeout_ms", seconds=True),
    "session_idle": _Alias("server", "session_idle_ms", seconds=True),
    "task_after": _Alias("server", "task_after_ms", seconds=True, least=0),
    "max_body": _Alias("server", "max_body_bytes"),
    "max_result": _Alias("server", "max_result_bytes"),
    "max_waiting": _Alias("server", "max_waiting", least=0),
    "kept_messages": _Alias("server", "kept_messages", least=0),
    "audit": _Alias("audit", "sink"),
    "ranking": _Alias("search", "ranking"),
}
_WORKER_SECONDS: Final = {"state_timeout": "state_timeout_ms"}


def settings_from_options(
    options: Mapping[str, Any], workers: bool | Mapping[str, Any] = False, base: Settings | None = None
) -> Settings:
    """The settings that the keyword arguments of `Hub` name, over `base`; a `DefinitionError` names a wrong one.

    Every field of the sections `server` and `limits` is a keyword argument; `_ALIASES` are the others.
    """
    settings = base or IN_PYTHON
    sections: dict[str, dict[str, Any]] = {}
    for name, value in options.items():
        alias = _ALIASES.get(name) or _Alias("limits" if name in Limits.__struct_fields__ else "server", name)
        kind = type(getattr(settings, alias.section))
        known = {field.name: field.type for field in msgspec.structs.fields(kind)}
        if alias.field not in known:
            hint = did_you_mean(name, [*Server.__struct_fields__, *Limits.__struct_fields__, *_ALIASES], ", ") or "."
            raise DefinitionError(f"Hub: there is no option {name!r}{hint}")
        sections.setdefault(alias.section, {})[alias.field] = _checked(name, value, known[alias.field], alias)
    changed = {
        section: msgspec.structs.replace(getattr(settings, section), **values) for section, values in sections.items()
    }
    if workers is not False:
        changed["workers"] = _worker_settings({} if workers is True else workers)
    return msgspec.structs.replace(settings, **changed)


def _checked(name: str, value: Any, annotation: Any, alias: _Alias) -> Any:
    kind, expected = _python_type(annotation, alias)
    try:
        converted = msgspec.convert(value, kind)
    except msgspec.ValidationError:
        raise DefinitionError(f"Hub: {name} must be {expected}, not {value!r}.") from None
    # Rounded up: a time above 0 must not become 0 milliseconds.
    return ceil(converted * 1000) if alias.seconds else converted


def _python_type(annotation: Any, alias: _Alias) -> tuple[Any, str]:
    """What a keyword argument takes, and how a sentence says it."""
    if alias.seconds:
        if alias.least == 0:
            return Annotated[float, Meta(ge=0)], "a number of seconds, 0 or more"
        return Annotated[float, Meta(gt=0)], "a number of seconds above 0"
    info = msgspec.inspect.type_info(annotation)
    match info.type if isinstance(info, msgspec.inspect.Metadata) else info:
        case msgspec.inspect.IntType():
            return Annotated[int, Meta(ge=alias.least)], f"a whole number of at least {alias.least}"
        case msgspec.inspect.LiteralType():
            values = get_args(getattr(annotation, "__origin__", annotation))  # in the order in which they are written
            return annotation, f"{', '.join(map(repr, values[:-1]))} or {values[-1]!r}"
        case msgspec.inspect.BoolType():
            return annotation, "True or False"
        case msgspec.inspect.ListType():
            return annotation, "a list of texts"
        case _:
            return annotation, "text"


def _worker_settings(given: Mapping[str, Any]) -> Workers:
    known = [*Workers.__struct_fields__, *_WORKER_SECONDS]
    kinds = {field.name: field.type for field in msgspec.structs.fields(Workers)}
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name not in known:
            raise DefinitionError(f"There is no setting {name!r} for workers; there are {', '.join(known)}.")
        try:
            if name in _WORKER_SECONDS:
                values[_WORKER_SECONDS[name]] = ceil(msgspec.convert(value, float) * 1000)
            elif name == "limits" and isinstance(value, Mapping):
                values[name] = msgspec.convert(msgspec.to_builtins(WorkerLimits(**value)), WorkerLimits)
            else:
                values[name] = msgspec.convert(value, kinds[name])
        except (msgspec.ValidationError, TypeError) as error:
            raise DefinitionError(f"Hub: the setting {name!r} for workers cannot be {value!r}: {error}.") from None
    return Workers(**values)


_ARGUMENTS: Final[Mapping[str, tuple[Any, str]]] = {
    **dict.fromkeys(("instructions", "title", "description", "website_url"), (str, "text")),
    "secret": (bytes, "bytes"),
    "store": ((str, Store), "a URL or a Store"),
    "data_dir": ((str, PathLike), "a path"),
    "lifespan": (Callable, "a function that returns an async context manager"),
    "workers": ((bool, Mapping), "True, False or a mapping of settings"),
}
"""What the keyword arguments of `Hub` take that are no settings."""


def check_arguments(**given: Any) -> None:
    """Raise a `DefinitionError` for an argument of `Hub` with the wrong type; `None` stands for one not given."""
    for name, value in given.items():
        kind, expected = _ARGUMENTS[name]
        if value is not None and not isinstance(value, kind):
            raise DefinitionError(f"Hub: {name} must be {expected}, not {value!r}.")
