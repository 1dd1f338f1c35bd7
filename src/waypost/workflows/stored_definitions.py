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
from waypost.stores.records import Document, is_key
from waypost.stores.store import WORKFLOW_PREFIX, Store

if TYPE_CHECKING:
    from waypost.workflows.workflows import Workflows


_PAGE: Final = 200
_KIND: Final = schema.DEFINITIONS.name
_LONGEST: Final = 128
_log: Final = logging.getLogger(__name__)


VERSION: Final = 1
_OF_STEPS: Final = ("on_circuit_open", "fallback_skill", "on_missing_skill", "timeout_ms")
"""Fields that documents of other hubs have in the `config` of a step."""
Data = dict[str, Any]


class Created(msgspec.Struct, frozen=True):
    """A definition that was created at run time."""

    name: str
    model: Workflow
    version: int = 0
    """Its revision in the store."""


class Creating:
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

    async def load(self) -> None:
        """Load the definitions from the store; invalid ones are logged and skipped."""
        async with self._changing:
            await self._load()

    async def _load(self) -> None:
        # Read before the documents: a change in between raises the revision and is loaded the next time.
        revision = (await self._store.revisions()).get(_KIND, 0)
        if self._loaded is not None and revision == self._revision:
            return
        kept = {one.name: one async for one in self._kept()}
        self._revision = revision
        if kept == self._loaded:
            return
        usable: dict[str, Created] = {}
        for name, one in kept.items():
            try:
                if name not in self._created:
                    self._check_free(name)
                self._check(name, one.model, {other: found.model for other, found in kept.items()})
            except WorkflowRefused as error:
                _log.warning("stored workflow skipped: %s: %s", name, error.message)
            else:
                usable[name] = one
        self._have(usable)
        self._loaded = kept

    async def _kept(self) -> AsyncIterator[Created]:
        after = WORKFLOW_PREFIX
        while page := await self._store.definitions.page(after, _PAGE):
            for document in page:
                if not document.id.startswith(WORKFLOW_PREFIX):
                    return
                try:
                    yield _created(document)
                except msgspec.ValidationError as error:
                    _log.warning("stored workflow unreadable, skipped: %s: %s", document.id, error)
            after = page[-1].id

    def list(self) -> list[Created]:
        """All stored definitions, sorted by name."""
        return sorted(self._created.values(), key=lambda one: one.name)

    def get(self, name: str) -> Created:
        """A stored definition; raises `WorkflowRefused` for an unknown name."""
        found = self._created.get(name)
        if found is not None:
            return found
        if name in self._workflows.by_name:
            raise WorkflowRefused(
                f"Workflow {name} is part of the configuration; change it there.", "WORKFLOW_CONFIGURED"
            )
        raise WorkflowRefused(f"workflow not found: {shorten(name)}", "UNKNOWN_ID")

    async def create(self, name: str, model: Workflow) -> Created:
        """Create a definition; raises `WorkflowRefused` with the reason."""
        async with self._changing:
            return await self._create(name, model)

    async def _create(self, name: str, model: Workflow) -> Created:
        _check_name(name)
        self._check_free(name)
        self._check(name, model)
        return await self._put(Created(name, model))

    def _check_free(self, name: str) -> None:
        if name in self._workflows.by_name or self._workflows.is_taken(name):
            raise _taken(name)

    async def change(self, name: str, model: Workflow, version: int | None = None) -> Created:
        """Replace a definition; with a version, only if that is still the current one."""
        async with self._changing:
            known = self.get(name)
            if version is not None and version != known.version:
                raise _stale(name)
            self._check(name, model)
            return await self._put(Created(name, model, known.version))

    async def enable(self, name: str) -> Created:
        """Allow new instances of a definition."""
        return await self._switch(name, True)

    async def disable(self, name: str) -> Created:
        """Refuse new instances of a definition; running ones continue."""
        return await self._switch(name, False)

    async def _switch(self, name: str, enabled: bool) -> Created:
        async with self._changing:
            known = self.get(name)
            if known.model.enabled == enabled:
                return known
            return await self._put(Created(name, msgspec.structs.replace(known.model, enabled=enabled), known.version))

    async def remove(self, name: str) -> None:
        """Remove a definition; running instances continue."""
        async with self._changing:
            known = self.get(name)
            try:
                await self._store.definitions.remove(WORKFLOW_PREFIX + name, known.version)
            except StaleVersion:
                await self._load()
                raise _stale(name) from None
            self._have({other: one for other, one in self._created.items() if other != name})

    def export(self, name: str) -> dict[str, Any]:
        """Export any definition of the hub as a document."""
        return exported(name, self._model(name))

    def _model(self, name: str) -> Workflow:
        known = self._created.get(name)
        model = self._workflows.by_name.get(name) if known is None else known.model
        if model is None:
            raise WorkflowRefused(f"workflow not found: {shorten(name)}", "UNKNOWN_ID")
        return model

    async def take_in(self, data: Any) -> Created:
        """Create a definition from a document, under a free name."""
        async with self._changing:
            return await self._create(*imported(data, self._workflows.by_name))

    async def duplicate(self, name: str) -> Created:
        """Create a disabled copy of any definition of the hub."""
        async with self._changing:
            return await self._create(*duplicated(name, self._model(name), self._workflows.by_name))

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
        for found in check_workflows(loaded, known):
            if found.severity == "error" and (found.key == place or found.key.startswith((f"{place}.", f"{place}["))):
                where = found.key.removeprefix(place).removeprefix(".")
                raise _invalid(name, f"{where}: {found.message}" if where else found.message)
        try:
            self._workflows.engine.library.compiled(name, self._workflows.resolved(model))
        except DefinitionError as error:
            raise _invalid(name, error.message) from None

    async def _put(self, one: Created) -> Created:
        try:
            document = await self._store.definitions.put(WORKFLOW_PREFIX + one.name, _kept(one), one.version)
        except StaleVersion:
            await self._load()  # another replica changed it first
            raise _stale(one.name) if one.version else _taken(one.name) from None
        made = Created(one.name, one.model, document.version)
        self._have({**self._created, one.name: made})
        return made

    def _have(self, created: dict[str, Created]) -> None:
        self._workflows.have_created({name: one.model for name, one in created.items()})
        self._created = created
        self._loaded = None


async def load_safely(creating: Creating) -> None:
    """Load the stored definitions; if the store is unavailable, log it and start without them."""
    try:
        await creating.load()
    except StoreError as error:
        _log.warning("stored workflows not loaded: %s", error.message)


def _check_name(name: str) -> None:
    if not name.strip() or name != name.strip() or not name.isprintable() or len(name) > _LONGEST:
        raise WorkflowRefused(
            f"A workflow is named with 1 to {_LONGEST} characters that can be printed, without space around them.",
            "INVALID_DEFINITION",
        )
    if not is_key(WORKFLOW_PREFIX + name):
        raise WorkflowRefused("The name is too long to be kept.", "INVALID_DEFINITION")


def _kept(one: Created) -> dict[str, Any]:
    return {"name": one.name, "model": one.model}


def _created(document: Document) -> Created:
    return msgspec.structs.replace(convert(document.value, Created), version=document.version)


def _invalid(name: str, message: str) -> WorkflowRefused:
    return WorkflowRefused(f"Workflow {name} cannot be used: {message.rstrip('.')}.", "INVALID_DEFINITION")


def _taken(name: str) -> WorkflowRefused:
    return WorkflowRefused(f"There is a workflow {name} already; take another name.", "NAME_TAKEN")


def _stale(name: str) -> WorkflowRefused:
    return WorkflowRefused(
        f"Workflow {name} was changed by somebody else since it was read; read it again.", "STALE_WORKFLOW_VERSION"
    )


def exported(name: str, model: Workflow) -> Data:
    """A definition as a document: `{"version": 1, "workflow": {...}, "steps": [...]}`."""
    written: Data = msgspec.to_builtins(model)
    steps = written.pop("steps")
    return {"version": VERSION, "workflow": {"name": name, **written}, "steps": steps}


def imported(data: Any, taken: Collection[str] = ()) -> tuple[str, Workflow]:
    """The free name and the definition of a document; unknown fields are ignored."""
    if not isinstance(data, Mapping) or data.get("version") != VERSION or data["version"] is True:
        raise _refused(f"Unsupported or missing version: this hub reads version {VERSION}")
    written = data.get("workflow")
    name = written.get("name") if isinstance(written, Mapping) else None
    if not isinstance(written, Mapping) or not isinstance(name, str) or not name.strip():
        raise _refused("Workflow name is required")
    steps = data.get("steps")
    if not isinstance(steps, list) or not all(isinstance(step, Mapping) for step in steps):
        raise _refused('Missing or invalid "steps" field')
    model = {key: value for key, value in written.items() if key != "name"}
    return free_name(name.strip(), "imported", taken), _model({**model, "steps": [_step(step) for step in steps]})


def duplicated(name: str, model: Workflow, taken: Collection[str] = ()) -> tuple[str, Workflow]:
    """A disabled copy of a definition, with a free name."""
    copy = f"{name} (copy)"
    return copy if copy not in taken else free_name(name, "copy", taken, 2), msgspec.structs.replace(
        model, enabled=False
    )


def free_name(name: str, word: str, taken: Collection[str], first: int = 1) -> str:
    """The name, or the first of `name (imported 1)`, `name (imported 2)`, ... that is free."""
    if name not in taken:
        return name
    return next(other for n in itertools.count(first) if (other := f"{name} ({word} {n})") not in taken)


def _model(written: Data) -> Workflow:
    try:
        return convert(written, Workflow)
    except msgspec.ValidationError as error:
        raise _refused(f"The workflow cannot be read: {error}") from None


def _step(written: Mapping[str, Any]) -> Data:
    step = dict(written)
    config = step.get("config")
    if isinstance(config, Mapping):
        moved = {key: config[key] for key in _OF_STEPS if key in config and key not in step}
        step |= moved
        step["config"] = {key: value for key, value in config.items() if key not in moved}
    return {key: value for key, value in step.items() if value is not None}


def _refused(message: str) -> WorkflowRefused:
    return WorkflowRefused(message, "INVALID_DEFINITION")
