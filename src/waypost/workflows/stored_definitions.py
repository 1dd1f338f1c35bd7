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
from waypost.config.nodes import Node
from waypost.config.workflows import Workflow
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


class Created(msgspec.Struct, frozen=True):
    """A workflow that somebody made."""

    name: str
    model: Workflow
    version: int = 0
    """How often it was written."""


class Creating:
    """Makes, changes and removes workflows, one change at a time."""

    def __init__(self, workflows: Workflows, store: Store) -> None:
        self._workflows = workflows
        self._store = store
        self._changing = asyncio.Lock()
        self._created: dict[str, Created] = {}
        self._loaded: dict[str, Created] | None = None
        """What the store held when it was last looked at, if nothing was changed since."""
        self._revision: int | None = None
        """How often definitions had been changed by then."""

    async def load(self) -> None:
        """Have what the store keeps; one that cannot be used any more is told about and left out."""
        async with self._changing:
            await self._load()

    async def _load(self) -> None:
        revision = (await self._store.revisions()).get(_KIND, 0)  # what changes from now on is read the next time
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
                _log.warning("the workflow %s that was made earlier is left out: %s", name, error.message)
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
                    _log.warning("%s in the store cannot be read and is left out: %s", document.id, error)
            after = page[-1].id

    def list(self) -> list[Created]:
        """All of them, by name."""
        return sorted(self._created.values(), key=lambda one: one.name)

    def get(self, name: str) -> Created:
        """One of them; `WorkflowRefused` for a name that none of them has."""
        found = self._created.get(name)
        if found is not None:
            return found
        if name in self._workflows.by_name:
            raise WorkflowRefused(
                f"Workflow {name} is part of the configuration; change it there.", "WORKFLOW_CONFIGURED"
            )
        raise WorkflowRefused(f"workflow not found: {shorten(name)}", "UNKNOWN_ID")

    async def create(self, name: str, model: Workflow) -> Created:
        """Have one workflow more; `WorkflowRefused` says in a sentence why not."""
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
        """Exchange a workflow for another under its name; with a version, only if it still has that."""
        async with self._changing:
            known = self.get(name)
            if version is not None and version != known.version:
                raise _stale(name)
            self._check(name, model)
            return await self._put(Created(name, model, known.version))

    async def enable(self, name: str) -> Created:
        """Let a workflow be started."""
        return await self._switch(name, True)

    async def disable(self, name: str) -> Created:
        """Let a workflow be started no more; what runs goes on."""
        return await self._switch(name, False)

    async def _switch(self, name: str, enabled: bool) -> Created:
        async with self._changing:
            known = self.get(name)
            if known.model.enabled == enabled:
                return known
            return await self._put(Created(name, msgspec.structs.replace(known.model, enabled=enabled), known.version))

    async def remove(self, name: str) -> None:
        """Have a workflow no more; what runs goes on."""
        async with self._changing:
            known = self.get(name)
            try:
                await self._store.definitions.remove(WORKFLOW_PREFIX + name, known.version)
            except StaleVersion:
                await self._load()
                raise _stale(name) from None
            self._have({other: one for other, one in self._created.items() if other != name})

    def export(self, name: str) -> dict[str, Any]:
        """Any workflow of the hub as a document."""
        return exported(name, self._model(name))

    def _model(self, name: str) -> Workflow:
        known = self._created.get(name)
        model = self._workflows.by_name.get(name) if known is None else known.model
        if model is None:
            raise WorkflowRefused(f"workflow not found: {shorten(name)}", "UNKNOWN_ID")
        return model

    async def take_in(self, data: Any) -> Created:
        """Make the workflow of a document, under a name that is free."""
        async with self._changing:
            return await self._create(*imported(data, self._workflows.by_name))

    async def duplicate(self, name: str) -> Created:
        """Make a copy of any workflow of the hub, disabled."""
        async with self._changing:
            return await self._create(*duplicated(name, self._model(name), self._workflows.by_name))

    def _check(self, name: str, model: Workflow, beside: Mapping[str, Workflow] | None = None) -> None:
        """Refuse a workflow that cannot work; `beside` are others while not everything is there yet."""
        from waypost.workflows.checking import check_workflows  # a hub whose workflows are in files has them checked

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
            await self._load()  # another hub was first
            raise _stale(one.name) if one.version else _taken(one.name) from None
        made = Created(one.name, one.model, document.version)
        self._have({**self._created, one.name: made})
        return made

    def _have(self, created: dict[str, Created]) -> None:
        self._workflows.have_created({name: one.model for name, one in created.items()})
        self._created = created
        self._loaded = None


async def load_safely(creating: Creating) -> None:
    """Have what the store keeps, or a hub without it where the store cannot be used."""
    try:
        await creating.load()
    except StoreError as error:
        _log.warning("workflows that were made earlier are not there: %s", error.message)


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


VERSION: Final = 1
_OF_STEPS: Final = ("on_circuit_open", "fallback_skill", "on_missing_skill", "timeout_ms")
"""What other hubs write into the `config` of a step."""

Data = dict[str, Any]


def exported(name: str, model: Workflow) -> Data:
    """A workflow as a document: `{"version": 1, "workflow": {...}, "steps": [...]}`."""
    written: Data = msgspec.to_builtins(model)
    steps = written.pop("steps")
    return {"version": VERSION, "workflow": {"name": name, **written}, "steps": steps}


def imported(data: Any, taken: Collection[str] = ()) -> tuple[str, Workflow]:
    """The workflow of a document, under a name that is free; what Waypost does not know of it is left out."""
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
    """A copy of a workflow, under a name of its own, which nobody can start yet."""
    copy = f"{name} (copy)"
    return copy if copy not in taken else free_name(name, "copy", taken, 2), msgspec.structs.replace(
        model, enabled=False
    )


def free_name(name: str, word: str, taken: Collection[str], first: int = 1) -> str:
    """The name, or the first like `name (imported 1)` that nobody has."""
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
