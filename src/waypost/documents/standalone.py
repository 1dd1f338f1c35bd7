"""The registry of skills and prompts as a stand-alone worker, for any engine that has `state::*`."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml
from msgspec import Raw

from waypost.documents.documents import Documents
from waypost.documents.functions import TRIGGER_TYPES, make_change_payload
from waypost.documents.ports import Asker, Data, Kind, Op
from waypost.documents.stores import Scopes, StateDocumentStore
from waypost.settings import Workers
from waypost.version import __version__
from waypost.worker import Worker
from waypost.workers.frames import encode
from waypost.workers.functions import Call, Function

NAME: Final = "skills"
_log: Final = logging.getLogger(__name__)
_DESCRIPTION: Final = "A registry of markdown skills and slash commands, and the resolver of iii:// resources."
_TARGETS: Final = (
    "aarch64-apple-darwin",
    "x86_64-apple-darwin",
    "aarch64-unknown-linux-gnu",
    "x86_64-unknown-linux-gnu",
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
        _log.warning("the configuration %s cannot be read, so the defaults hold: %s", file, _shorten_error(error))
        return Settings()
    if not isinstance(given, Mapping):
        if given is not None:
            _log.warning("the configuration %s is not a map, so the defaults hold", file)
        return Settings()
    return _convert(given)


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
        description=function.description,
        request_format=function.request_format,
        response_format=function.response_format,
        metadata=function.metadata,
    )


def _convert(given: Mapping[Any, Any]) -> Settings:
    scopes = given.get("scopes")
    if scopes is None:
        scopes = {}
    elif not isinstance(scopes, Mapping):
        _log.warning("scopes is not a map, so the defaults hold")
        scopes = {}
    default = Settings()
    return Settings(
        Scopes(
            _read_text(scopes, "skills", default.scopes.skills), _read_text(scopes, "prompts", default.scopes.prompts)
        ),
        _read_milliseconds(given, default.state_timeout_ms),
    )


def _read_text(given: Mapping[Any, Any], key: str, default: str) -> str:
    value = given.get(key, default)
    if isinstance(value, str) and value.strip():
        return value
    _log.warning("scopes.%s is not a name, so it is %s", key, default)
    return default


def _read_milliseconds(given: Mapping[Any, Any], default: int) -> int:
    value = given.get("state_timeout_ms", default)
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    _log.warning("state_timeout_ms is not a number of milliseconds, so it is %d", default)
    return default


def _shorten_error(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return " ".join(str(error).split())
