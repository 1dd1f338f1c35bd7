"""Workflows, instances and settings to read: MCP resources for callers, lists and histories for operators.

The resources are `waypost://workflows/{id}`, `waypost://runs/{id}` and `waypost://config/{key}`; the id `list` gives a
summary of all. Values under names of secrets are masked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from waypost.capabilities.capability import Capability, ResourceOptions
from waypost.capabilities.context import Caller, Context
from waypost.capabilities.resources import resource_from_function
from waypost.config import Config
from waypost.config.models import Workflow
from waypost.errors import InvalidParams, ToolError, WorkflowRefused, shorten
from waypost.redaction import HIDDEN, cleared, is_secret_name, redacted
from waypost.stores.instances import HistoryEntry, InstanceFilter, InstanceRecord, Note
from waypost.stores.store import Store
from waypost.workflows.definitions import as_written
from waypost.workflows.engine import Engine
from waypost.workflows.instance import FOREVER, PENDING_STATUSES, Instance
from waypost.workflows.views import Answer, format_time, mask_secrets

LIST: Final = "list"
_MOST: Final = 50
_RUN_ID: Final = re.compile("wf_[0-9a-f]{1,64}")
_NO_SETTINGS: Final = frozenset(
    {"version", "include", "toolkits", "prompts", "capabilities", "workflows", "policies", "proxy"}
)
"""Sections that say what the hub offers, not how it is set up."""
_WITH_SECRETS: Final = ("env", "headers", "args")
"""Settings that often hold secrets, whatever these are called."""

Data = dict[str, Any]


def workflow_resources(engine: Engine, store: Store) -> list[Capability]:
    """What can be read about workflows and runs."""

    async def workflows(id: str, ctx: Context) -> Any:
        view = engine.view(ctx.caller)
        if id == LIST:
            found = (one for one in engine.library if view.finds(one))
            return [_summary(one.id, one.model) for one in sorted(found, key=lambda one: one.id)]
        one = engine.library.get(engine.definition_id(id))
        if one is None or not view.finds(one):
            raise ToolError(f"workflow not found: {shorten(id)}")
        return view.mask_hidden(_whole(one.id, one.model))

    async def runs(id: str, ctx: Context) -> Any:
        principal = ctx.principal
        if id == LIST:
            latest = await store.instances.latest(limit=_MOST, found_by=InstanceFilter(principal=principal.id))
            return [_run_summary(await engine.cache.restore(record)) for record in latest]
        if _RUN_ID.fullmatch(id) is None:
            raise InvalidParams(f"Invalid ID: {shorten(id)}")
        try:
            return _run(await engine.get_visible(id, principal))
        except WorkflowRefused:
            raise ToolError(f"workflow run not found: {id}") from None

    return [
        _template("workflows", "id", "The workflows of this hub by name, or all of them as `list`.", workflows),
        _template("runs", "id", f"Your runs of workflows by id, or the latest {_MOST} as `list`.", runs),
    ]


def config_resource(settings: Callable[[], Config]) -> Capability:
    """What can be read about how the hub is set up."""

    async def config(key: str) -> Any:
        found = dict(_settings(settings()))
        if key == LIST:
            return found
        if key not in found:
            raise ToolError(f"config key not found: {shorten(key)}")
        return {"key": key, "value": found[key]}

    return _template("config", "key", "The settings of this hub by key, or all of them as `list`.", config)


def _template(name: str, variable: str, description: str, read: Callable[..., Any]) -> Capability:
    options = ResourceOptions(name=name, description=description, mime_type="application/json")
    return resource_from_function(read, f"waypost://{name}/{{{variable}}}", options)


def _summary(name: str, model: Workflow) -> Data:
    return {
        "id": name,
        "name": name,
        "title": model.title or name,
        "description": model.description,
        "enabled": model.enabled,
    }


def _whole(name: str, model: Workflow) -> Data:
    written: Data = mask_secrets(msgspec.to_builtins(as_written(model)))
    steps = written.pop("steps")
    data = {**written, **_summary(name, model)}
    if steps:
        data["steps"] = [{"position": position, **step} for position, step in enumerate(steps, 1)]
    return data


def _run_summary(instance: Instance) -> Data:
    body = instance.body
    return {
        "id": instance.id,
        "workflow_id": instance.definition.id,
        "status": "completed" if body.outcome == "succeeded" else instance.status,
        "state": instance.state.name,
        "version": instance.version,
        "started_at": format_time(body.started_at),
        "completed_at": format_time(body.ended_at) if body.ended_at else None,
    }


def _run(instance: Instance) -> Data:
    context = instance.body.context
    data = _run_summary(instance)
    if not instance.definition.model.steps:
        return {
            **data,
            "result": context if instance.is_over else None,
            "error": instance.body.halted,
            "context": context,
        }
    return {
        **data,
        "result": context.get("result"),
        "error": context.get("error", instance.body.halted),
        "step_results": context.get("step_results", {}),
    }


def _settings(config: Config) -> Iterator[tuple[str, Any]]:
    """Every setting by its key, the secret ones hidden."""
    written = msgspec.to_builtins(config)
    for section, value in written.items():
        if section not in _NO_SETTINGS:
            yield from _flat(section, section, value)


def _flat(key: str, name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if (name in _WITH_SECRETS or is_secret_name(name)) and value not in (None, [], {}):
        yield key, HIDDEN
    elif isinstance(value, Mapping) and value:
        for inner, item in value.items():
            yield from _flat(f"{key}.{inner}", inner, item)
    else:
        yield key, _mask_value(value)


def _mask_value(value: Any) -> Any:
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, list):
        return [_mask_value(item) for item in value]
    return mask_secrets(value)


MOST_HISTORY: Final = 10_000
"""The largest number of history entries per page."""
_PAGE: Final = 500
_MOST_LOOKED_AT: Final = 10_000
"""The largest number of instances read for one page when filtering by status."""
MAX_NOTES: Final = 200
MAX_CHILDREN: Final = 100
# Sorts after every hex digit, and therefore after all ids that begin with a given prefix.
_AFTER_HEX: Final = "g"
_SECRETIVE: Final = ("context", "error", "lastError", "approval", "links")
_DECIDED: Final = frozenset({"rejected", "expired"})
_PENDING_KINDS: Final = {status: kind for kind, status in PENDING_STATUSES.items()}


class RunFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which instances to list; idle single calls through the gateway only with `everything`."""

    principal: str | None = None
    definition: str | None = None
    state: str | None = None
    status: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    """When they were started: from a time on, and before a time."""
    text: str = ""
    """A part of the id, the input or the context."""
    everything: bool = False

    @property
    def until_id(self) -> str:
        """The least id that is too late; ids begin with the time of the start."""
        return "" if self.until is None else first_id(self.until)

    def to_stored(self) -> InstanceFilter:
        """The conditions that the store can check."""
        pending = _PENDING_KINDS.get(self.status or "")
        settled = "waiting_for_action" if self.status == "going_on" else self.status
        return InstanceFilter(
            principal=self.principal,
            definition=self.definition,
            state=self.state,
            status=settled if pending is None else None,
            pending=pending,
            since="" if self.since is None else first_id(self.since),
            text=self.text,
            everything=self.everything,
        )


def first_id(at: datetime) -> str:
    """The least id of an instance that was started at a time or later."""
    return f"wf_{max(0, int(at.timestamp() * 1000)):012x}"


class Page(msgspec.Struct, frozen=True):
    """A page of instances, the newest first, and the cursor of the next page."""

    runs: list[Data]
    next: str | None = None


class Runs:
    """Lists and shows the instances of a hub."""

    def __init__(self, engine: Engine, store: Store, secrets: tuple[str, ...] = ()) -> None:
        self._engine = engine
        self._store = store
        self._secrets = secrets
        """Texts that no search may find."""

    async def list(self, found_by: RunFilter | None = None, *, before: str = "", limit: int = 100) -> Page:
        """The newest instances, or those before a cursor, filtered."""
        found_by = found_by or RunFilter()
        stored, found = found_by.to_stored(), Page([])
        before = min(filter(None, (before, found_by.until_id)), default="")
        # A search for a text reads so many instances, and the next page continues after them.
        end = await self._store.instances.search_end(before, stored) if found_by.text else ""
        if end:
            stored = msgspec.structs.replace(stored, since=max(end, stored.since))
        # `going_on` follows from the stored body, so that the store cannot filter by it: whole pages are read.
        size = _PAGE if found_by.status == "going_on" else limit + 1
        for _ in range(0, _MOST_LOOKED_AT, size):
            page = await self._store.instances.latest(before, size, stored)
            for record in page:
                instance = await self._engine.cache.restore(record)
                if found_by.status in (None, instance.status) and self._has_text(instance, found_by.text):
                    if len(found.runs) == limit:
                        return msgspec.structs.replace(found, next=before)
                    found.runs.append(_row(instance, record))
                before = record.id
            if len(page) < size:
                return msgspec.structs.replace(found, next=end or None)
        return msgspec.structs.replace(found, next=before)

    def _has_text(self, instance: Instance, text: str) -> bool:
        """Whether a text is in what operators see: a search must not find what is masked."""
        if not text:
            return True
        body = instance.body
        shown = cleared([instance.id, mask_secrets(body.input), mask_secrets(body.context)], self._secrets)
        return text.lower() in _texts(shown).lower()

    async def list_children(self, workflow_id: str) -> Sequence[Data]:
        """The instances that an instance started, the newest first; their ids begin as its own."""
        # `wf_` and the milliseconds of the start, which a child's id shares with its parent's.
        start = workflow_id[:15]
        found = await self._store.instances.latest(f"{start}{_AFTER_HEX}", _PAGE, InstanceFilter(since=start))
        instances = [(await self._engine.cache.restore(record), record) for record in found]
        return [
            _row(instance, record)
            for instance, record in instances
            if instance.body.parent is not None and instance.body.parent.id == workflow_id
        ][:MAX_CHILDREN]

    async def show_latest(self, workflow_id: str, caller: Caller, *, before: int, limit: int) -> Answer:
        """An instance and its latest history, or that before a version; the newest first, whatever its length."""
        answer = await self._engine.get(workflow_id, caller)
        if answer.refused:
            return answer
        instance = await self._engine.get_visible(workflow_id, caller.principal)
        found = await self._store.instances.latest_history(workflow_id, before or instance.version + 1, limit + 1)
        history = found[:limit]
        newer = await self._store.instances.history(workflow_id, before - 1, 1) if before else ()
        until = newer[0].at if newer else FOREVER
        since = history[-1].at if history else 0.0
        notes = await self._store.instances.latest_notes(workflow_id, since, until, MAX_NOTES)
        rows = _history_rows(history[::-1], notes[::-1])
        row = {**mask_answer(answer.data), **_about(instance), "history": rows["history"][::-1], "notes": rows["notes"]}
        if len(found) > limit:
            row["next"] = history[-1].version
        return Answer(row)

    async def show(self, workflow_id: str, caller: Caller, *, after: int = 0, limit: int = MOST_HISTORY) -> Answer:
        """An instance and its history: one row per commit, with rejected and expired approvals in between."""
        answer = await self._engine.get(workflow_id, caller)
        if answer.refused:
            return answer
        instance = await self._engine.get_visible(workflow_id, caller.principal)
        most = min(limit, MOST_HISTORY)
        found = await self._history(workflow_id, after, most + 1)
        history = found[:most]
        notes = await self._store.instances.notes(workflow_id, MOST_HISTORY)
        row = {**mask_answer(answer.data), **_about(instance), **_history_rows(history, notes)}
        if len(found) > most:
            row["next"] = history[-1].version
        return Answer(row)

    async def _history(self, workflow_id: str, after: int, limit: int) -> Sequence[HistoryEntry]:
        found: list[HistoryEntry] = []
        while len(found) < limit:
            size = min(_PAGE, limit - len(found))
            page = await self._store.instances.history(workflow_id, found[-1].version if found else after, size)
            found += page
            if len(page) < size:
                break
        return found


def _texts(value: Any) -> str:
    """All texts in a value, one per line."""
    if isinstance(value, dict):
        return "\n".join(f"{name}\n{_texts(item)}" for name, item in value.items())
    if isinstance(value, list):
        return "\n".join(map(_texts, value))
    return str(value)


def mask_answer(answer: Data) -> Data:
    """An answer with its secrets masked."""
    row = {key: mask_secrets(value, key) if key in _SECRETIVE else value for key, value in answer.items()}
    if "links" in answer:
        row["links"] = [
            {**link, "args": {**args, "arguments": mask_secrets(args["arguments"])}} if "arguments" in args else link
            for link in answer["links"]
            for args in (link.get("args", {}),)
        ]
    return row


def _row(instance: Instance, record: InstanceRecord) -> Data:
    return {
        "workflowId": instance.id,
        "definitionId": instance.definition.id,
        "state": instance.state.name,
        "version": instance.version,
        "status": instance.status,
        "principal": record.principal,
        **_times(instance),
    }


def _about(instance: Instance) -> Data:
    body, owner = instance.body, instance.body.owner
    row: Data = {
        "principal": owner.id,
        "owner": {"id": owner.id, "roles": list(owner.roles), "permissions": list(owner.permissions)},
        "input": mask_secrets(body.input),
        **_times(instance),
    }
    if body.parent is not None:
        row["parent"] = {"workflowId": body.parent.id}
    return row


def _times(instance: Instance) -> Data:
    times = {
        "startedAt": instance.body.started_at,
        "endedAt": instance.body.ended_at,
        "deadline": instance.body.deadline,
    }
    return {name: format_time(at) for name, at in times.items() if at}


def _history_rows(history: Sequence[HistoryEntry], notes: Sequence[Note]) -> Data:
    """The history rows with rejected approvals in order, and the other notes."""
    versions = {entry.version: entry.value.get("to") for entry in history}
    rows = [(entry.version, 0, entry.at, _commit(entry)) for entry in history]
    others = []
    for note in notes:
        version = note.value.get("version")
        if version not in versions:
            continue
        row = {"version": version, "at": format_time(note.at), **_plain(note.value)}
        if note.value.get("outcome") in _DECIDED:
            state = versions[version]
            rows.append((version, 1, note.at, {**row, "from": state, "to": state}))
        else:
            others.append(row)
    rows.sort(key=lambda row: row[:3])
    return {"history": [row[3] for row in rows], "notes": others}


def _commit(entry: HistoryEntry) -> Data:
    row = {"version": entry.version, "at": format_time(entry.at), **_plain(entry.value)}
    if "approvals" in row:
        row["approvals"] = [{**one, "at": format_time(one["at"])} for one in row["approvals"]]
    return row


def _plain(value: Data) -> Data:
    """A recorded value with its secrets masked; the idempotency key is not one."""
    row = {"idempotencyKey" if name == "key" else name: item for name, item in value.items()}
    return {name: mask_secrets(item) if name in ("delta", "error") else item for name, item in row.items()}
