"""Workflow definitions that are created while the hub runs, and their exchange as documents.

They are kept in the store, checked like those of the configuration, and loaded again at the next start.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from waypost.config import Config, Loaded
from waypost.config.findings import dotted
from waypost.config.models import Workflow
from waypost.config.nodes import Node
from waypost.errors import DefinitionError, StaleVersion, StoreError, WorkflowRefused, shorten
from waypost.kinds import convert
from waypost.stores import schema
from waypost.stores.records import is_key
from waypost.stores.store import WORKFLOW_PREFIX, Store

if TYPE_CHECKING:
    from waypost.workflows.workflows import Workflows

VERSION: Final = 1
"""The version of the document format."""
_PAGE_SIZE: Final = 200
_MAX_NAME_CHARS: Final = 128
_STEP_FIELDS: Final = ("on_circuit_open", "fallback_skill", "on_missing_skill", "timeout_ms")
"""Fields that documents of other hubs have in the `config` of a step."""
_log: Final = logging.getLogger(__name__)

Data = dict[str, Any]


class Created(msgspec.Struct, frozen=True):
    """A definition that was created at run time."""

    name: str
    model: Workflow
    version: int = 0
    """Its revision in the store."""


class StoredDefinitions:
    """Creates, changes and removes definitions, one change at a time."""

    def __init__(self, workflows: Workflows, store: Store) -> None:
        self._workflows = workflows
        self._store = store
        self._changing = asyncio.Lock()
        self._created: dict[str, Created] = {}
        self._loaded: dict[str, Created] | None = None
        """The contents of the store when last read, unless changed since."""
        self._revision: int | None = None
        """The revision of the definitions at that time."""

    async def load_if_possible(self) -> None:
        """Load the definitions; if the store is unavailable, log it and go on without them."""
        try:
            await self.load()
        except StoreError as error:
            _log.warning("stored workflows not loaded: %s", error.message)

    async def load(self) -> None:
        """Load the definitions from the store; invalid ones are logged and skipped."""
        async with self._changing:
            await self._load()

    async def _load(self) -> None:
        # Read before the documents: a change in between raises the revision and is loaded the next time.
        revision = (await self._store.revisions()).get(schema.DEFINITIONS.name, 0)
        if self._loaded is not None and revision == self._revision:
            return
        stored = {one.name: one async for one in self._read_all()}
        self._revision = revision
        if stored == self._loaded:
            return
        usable: dict[str, Created] = {}
        for name, one in stored.items():
            try:
                if name not in self._created:
                    self._check_free(name)
                self._check(name, one.model, {other: found.model for other, found in stored.items()})
            except WorkflowRefused as error:
                _log.warning("stored workflow skipped: %s: %s", name, error.message)
            else:
                usable[name] = one
        self._replace(usable)
        self._loaded = stored

    async def _read_all(self) -> AsyncIterator[Created]:
        after = WORKFLOW_PREFIX
        while page := await self._store.definitions.page(after, _PAGE_SIZE):
            for document in page:
                if not document.id.startswith(WORKFLOW_PREFIX):
                    return
                try:
                    yield msgspec.structs.replace(convert(document.value, Created), version=document.version)
                except msgspec.ValidationError as error:
                    _log.warning("stored workflow unreadable, skipped: %s: %s", document.id, error)
            after = page[-1].id

    def list(self) -> list[Created]:
        """All stored definitions, sorted by name."""
        return sorted(self._created.values(), key=lambda one: one.name)

    def get(self, name: str) -> Created:
        """A stored definition; raises `WorkflowRefused` for an unknown name."""
        found = self._created.get(name)
        if found is None and name in self._workflows.by_name:
            raise WorkflowRefused(
                f"Workflow {name} is part of the configuration; change it there.", "WORKFLOW_CONFIGURED"
            )
        if found is None:
            raise _unknown_error(name)
        return found

    async def create(self, name: str, model: Workflow) -> Created:
        """Create a definition; raises `WorkflowRefused` with the reason."""
        async with self._changing:
            return await self._create(name, model)

    async def _create(self, name: str, model: Workflow) -> Created:
        if not name.strip() or name != name.strip() or not name.isprintable() or len(name) > _MAX_NAME_CHARS:
            raise _invalid(
                f"The name of a workflow has 1 to {_MAX_NAME_CHARS} printable characters, without space around them."
            )
        if not is_key(WORKFLOW_PREFIX + name):
            raise _invalid("The name is too long for the store.")
        self._check_free(name)
        self._check(name, model)
        return await self._put(Created(name, model))

    def _check_free(self, name: str) -> None:
        if name in self._workflows.by_name or self._workflows.is_taken(name):
            raise _taken_error(name)

    async def change(self, name: str, model: Workflow, version: int | None = None) -> Created:
        """Replace a definition; with a version, only if that is still the current one."""
        async with self._changing:
            known = self.get(name)
            if version is not None and version != known.version:
                raise _stale_error(name)
            self._check(name, model)
            return await self._put(Created(name, model, known.version))

    async def enable(self, name: str, enabled: bool = True) -> Created:
        """Allow new instances of a definition."""
        async with self._changing:
            known = self.get(name)
            if known.model.enabled == enabled:
                return known
            return await self._put(Created(name, msgspec.structs.replace(known.model, enabled=enabled), known.version))

    async def disable(self, name: str) -> Created:
        """Refuse new instances of a definition; running ones continue."""
        return await self.enable(name, False)

    async def remove(self, name: str) -> None:
        """Remove a definition; running instances continue."""
        async with self._changing:
            known = self.get(name)
            try:
                await self._store.definitions.remove(WORKFLOW_PREFIX + name, known.version)
            except StaleVersion:
                await self._load()
                raise _stale_error(name) from None
            self._replace({other: one for other, one in self._created.items() if other != name})

    def export(self, name: str) -> Data:
        """Export any definition of the hub as a document."""
        return to_document(name, self._get_model(name))

    def _get_model(self, name: str) -> Workflow:
        known = self._created.get(name)
        model = self._workflows.by_name.get(name) if known is None else known.model
        if model is None:
            raise _unknown_error(name)
        return model

    async def import_document(self, data: Any) -> Created:
        """Create a definition from a document, under a free name."""
        async with self._changing:
            return await self._create(*from_document(data, self._workflows.by_name))

    async def duplicate(self, name: str) -> Created:
        """Create a disabled copy of any definition of the hub."""
        async with self._changing:
            return await self._create(*copy_definition(name, self._get_model(name), self._workflows.by_name))

    def _check(self, name: str, model: Workflow, beside: Mapping[str, Workflow] | None = None) -> None:
        """Raise if a definition has errors; `beside` are the other definitions while they are being loaded."""
        from waypost.workflows.checks import check_workflows  # lazy: only needed when definitions are stored

        known = self._workflows.known | {WORKFLOW_PREFIX + name} if beside is None else None
        config = Config(
            workflows={**self._workflows.by_name, **(beside or {}), name: model},
            capabilities=dict(self._workflows.capabilities),
            connections=dict(self._workflows.connections),
        )
        loaded = Loaded(config, Path(), (), (), (), Node({}, "", 1))
        place = dotted(("workflows", name))
        reason = ""
        for found in check_workflows(loaded, known):
            if found.severity == "error" and (found.key == place or found.key.startswith((f"{place}.", f"{place}["))):
                where = found.key.removeprefix(place).removeprefix(".")
                reason = f"{where}: {found.message}" if where else found.message
                break
        else:
            try:
                self._workflows.engine.library.compile(name, self._workflows.resolve(model))
            except DefinitionError as error:
                reason = error.message
        if reason:
            raise _invalid(f"Workflow {name} cannot be used: {reason.rstrip('.')}.")

    async def _put(self, one: Created) -> Created:
        value = {"name": one.name, "model": one.model}
        try:
            document = await self._store.definitions.put(WORKFLOW_PREFIX + one.name, value, one.version)
        except StaleVersion:
            await self._load()  # another replica changed it first
            raise _stale_error(one.name) if one.version else _taken_error(one.name) from None
        stored = Created(one.name, one.model, document.version)
        self._replace({**self._created, one.name: stored})
        return stored

    def _replace(self, created: dict[str, Created]) -> None:
        self._workflows.set_created({name: one.model for name, one in created.items()})
        self._created = created
        self._loaded = None


def _invalid(message: str) -> WorkflowRefused:
    return WorkflowRefused(message, "INVALID_DEFINITION")


def _unknown_error(name: str) -> WorkflowRefused:
    return WorkflowRefused(f"workflow not found: {shorten(name)}", "UNKNOWN_ID")


def _taken_error(name: str) -> WorkflowRefused:
    return WorkflowRefused(f"There is already a workflow {name}; choose another name.", "NAME_TAKEN")


def _stale_error(name: str) -> WorkflowRefused:
    message = f"Workflow {name} has changed since it was read; read it again."
    return WorkflowRefused(message, "STALE_WORKFLOW_VERSION")


def to_document(name: str, model: Workflow) -> Data:
    """A definition as a document: `{"version": 1, "workflow": {...}, "steps": [...]}`."""
    data: Data = msgspec.to_builtins(model)
    steps = data.pop("steps")
    return {"version": VERSION, "workflow": {"name": name, **data}, "steps": steps}


def from_document(data: Any, taken: Collection[str] = ()) -> tuple[str, Workflow]:
    """A free name and the definition of a document; unknown fields are ignored."""
    if not isinstance(data, Mapping) or data.get("version") != VERSION or data["version"] is True:
        raise _invalid(f"Unsupported or missing version: this hub reads version {VERSION}")
    workflow = data.get("workflow")
    name = workflow.get("name") if isinstance(workflow, Mapping) else None
    if not isinstance(workflow, Mapping) or not isinstance(name, str) or not name.strip():
        raise _invalid("Workflow name is required")
    steps = data.get("steps")
    if not isinstance(steps, list) or not all(isinstance(step, Mapping) for step in steps):
        raise _invalid('Missing or invalid "steps" field')
    fields = {key: value for key, value in workflow.items() if key != "name"}
    try:
        model = convert({**fields, "steps": [_convert_step(step) for step in steps]}, Workflow)
    except msgspec.ValidationError as error:
        raise _invalid(f"The workflow cannot be read: {error}") from None
    return _find_free_name(name.strip(), "imported", taken), model


def _convert_step(data: Mapping[str, Any]) -> Data:
    step = dict(data)
    config = step.get("config")
    if isinstance(config, Mapping):
        moved = {key: config[key] for key in _STEP_FIELDS if key in config and key not in step}
        step |= moved
        step["config"] = {key: value for key, value in config.items() if key not in moved}
    return {key: value for key, value in step.items() if value is not None}


def copy_definition(name: str, model: Workflow, taken: Collection[str] = ()) -> tuple[str, Workflow]:
    """A disabled copy of a definition, with a free name."""
    copy = f"{name} (copy)"
    free = copy if copy not in taken else _find_free_name(name, "copy", taken, 2)
    return free, msgspec.structs.replace(model, enabled=False)


def _find_free_name(name: str, word: str, taken: Collection[str], first: int = 1) -> str:
    """The name, or the first of `name (imported 1)`, `name (imported 2)`, ... that is free."""
    if name not in taken:
        return name
    return next(other for n in itertools.count(first) if (other := f"{name} ({word} {n})") not in taken)
