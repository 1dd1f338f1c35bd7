"""Instances for operators: a paged list, and the full history of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from waypost.capabilities.context import Caller
from waypost.stores.instances import HistoryEntry, InstanceRecord, Note
from waypost.stores.store import Store
from waypost.workflows.answers import Answer, format_time
from waypost.workflows.engine import Engine
from waypost.workflows.instance import Instance
from waypost.workflows.views import mask_secrets

MOST_HISTORY: Final = 10_000
"""The largest number of history entries per page."""
_PAGE: Final = 500
_MOST_LOOKED_AT: Final = 10_000
"""The largest number of instances read for one page when filtering by status."""
_SECRETIVE: Final = ("context", "error", "lastError", "approval", "links")
_DECIDED: Final = frozenset({"rejected", "expired"})

Data = dict[str, Any]


class Page(msgspec.Struct, frozen=True):
    """A page of instances, the newest first, and the cursor of the next page."""

    runs: list[Data]
    next: str | None = None


class Runs:
    """Lists and shows the instances of a hub."""

    def __init__(self, engine: Engine, store: Store) -> None:
        self._engine = engine
        self._store = store

    async def list(
        self,
        *,
        principal: str | None = None,
        definition: str | None = None,
        status: str | None = None,
        before: str = "",
        limit: int = 100,
    ) -> Page:
        """The newest instances, or those before a cursor, filtered."""
        found: list[Data] = []
        looked_at = 0
        while looked_at < _MOST_LOOKED_AT:
            page = await self._store.instances.latest(
                before, _PAGE if status else limit + 1, principal=principal, definition=definition
            )
            for record in page:
                instance = await self._engine.cache.restore(record)
                if status is not None and instance.status != status:
                    before = record.id
                    continue
                if len(found) == limit:
                    return Page(found, before)
                found.append(_row(instance, record))
                before = record.id
            looked_at += len(page)
            if len(page) < (_PAGE if status else limit + 1):
                return Page(found)
        return Page(found, before)

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
        row = {**shown(answer.data), **_about(instance), **_history_rows(history, notes)}
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


def shown(answer: Data) -> Data:
    """An answer with its secrets masked."""
    row = {key: mask_secrets(value, key) if key in _SECRETIVE else value for key, value in answer.items()}
    if "links" in answer:
        row["links"] = [_link(link) for link in answer["links"]]
    return row


def _link(link: Data) -> Data:
    args = link.get("args", {})
    return {**link, "args": {**args, "arguments": mask_secrets(args["arguments"])}} if "arguments" in args else link


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
