"""The registry of skills and prompts as a stand-alone worker, for any engine that has `state::*`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import yaml
from msgspec import Raw

from waypost.documents.documents import TRIGGER_TYPES, Documents, make_change_payload
from waypost.documents.records import Asker, Data, Kind, Op
from waypost.documents.stores import Scopes, StateDocumentStore
from waypost.settings import Workers
from waypost.version import __version__
from waypost.worker import Worker
from waypost.workers.frames import encode
from waypost.workers.functions import Call, Function

T = TypeVar("T")
NAME: Final = "skills"
_log: Final = logging.getLogger(__name__)
_DESCRIPTION: Final = "A registry of markdown skills and slash commands, and the resolver of iii:// resources."
_TARGETS: Final = (
    *("aarch64-apple-darwin", "x86_64-apple-darwin"),
    *("aarch64-unknown-linux-gnu", "x86_64-unknown-linux-gnu"),
)


@dataclass(frozen=True, slots=True)
class Settings:
    """The scopes in the engine's state, and the timeout of calls."""

    scopes: Scopes = field(default_factory=Scopes)
    state_timeout_ms: int = Workers().state_timeout_ms

    def to_data(self) -> Data:
        """Return the settings as in a configuration file."""
        scopes = {"skills": self.scopes.skills, "prompts": self.scopes.prompts}
        return {"scopes": scopes, "state_timeout_ms": self.state_timeout_ms}


def read_settings(file: Path) -> Settings:
    """Return the settings of a file; missing and invalid ones are logged and get their defaults."""
    try:
        given = yaml.safe_load(file.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = error.strerror if isinstance(error, OSError) else " ".join(str(error).split())
        _log.warning("the configuration %s cannot be read, so the defaults hold: %s", file, reason)
        return Settings()
    if not isinstance(given, Mapping):
        if given is not None:
            _log.warning("the configuration %s is not a map, so the defaults hold", file)
        return Settings()
    default = Settings()
    scopes: Any = _read(given, "scopes", None, lambda value: value is None or isinstance(value, Mapping)) or {}
    skills, prompts = (
        _read(scopes, kind, getattr(default.scopes, kind), lambda value: isinstance(value, str) and bool(value.strip()))
        for kind in ("skills", "prompts")
    )
    timeout = default.state_timeout_ms
    timeout = _read(given, "state_timeout_ms", timeout, lambda value: type(value) is int and value > 0)
    return Settings(Scopes(skills, prompts), timeout)


def manifest() -> Data:
    """Return the description of this worker for installers."""
    return {
        "name": NAME,
        "version": __version__,
        "description": _DESCRIPTION,
        "default_config": Settings().to_data(),
        "supported_targets": list(_TARGETS),
    }


def host_documents(worker: Worker, settings: Settings) -> Documents:
    """Register the thirteen functions and the two kinds of trigger at a worker."""
    within = settings.state_timeout_ms / 1000

    async def trigger(
        function_id: str, payload: Any, within: float, by: Asker = None, namespace: str | None = None
    ) -> Any:
        return await worker.trigger(function_id, payload, timeout_ms=int(within * 1000), namespace=namespace)

    kinds = {kind: worker.register_trigger_type(one.id, one.description) for kind, one in TRIGGER_TYPES.items()}

    def changed(kind: Kind, op: Op, name: str, _: Sequence[str]) -> None:
        kinds[kind].fire(make_change_payload(kind, op, name))

    store = StateDocumentStore(trigger, settings.scopes, within)
    documents = Documents(store, trigger, changed=changed, within=within)
    for function in documents.functions():
        _register(worker, function)
    return documents


def _register(worker: Worker, function: Function) -> None:
    async def run(payload: Any) -> Raw:
        return await function.run(Call(function.id, Raw(encode(payload))))

    worker.register_function(
        function.id,
        run,
        description=function.frame.description,
        request_format=function.frame.request_format,
        response_format=function.frame.response_format,
        metadata=function.frame.metadata,
    )


def _read(given: Mapping[Any, Any], key: str, default: T, is_valid: Callable[[Any], bool]) -> T:
    value: T = given.get(key, default)
    if is_valid(value):
        return value
    _log.warning("%s is not valid, so it is %s", key, default)
    return default
