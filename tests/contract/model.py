"""A model of the store in a few dictionaries, and the same operations on a real store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tests.contract.samples import NOW, instance
from waypost.errors import StaleVersion, StoreError
from waypost.stores.instances import Reservation
from waypost.stores.records import GIVEN_UP, WAITING, Job
from waypost.stores.store import Store
from waypost.stores.tasks import RequestRecord

QUEUE: Final = "q"
SCOPE: Final = "s"


class Model:
    """The expected behaviour of the store: each method returns the result, or raises the error, of the store."""

    def __init__(self) -> None:
        self.instances: dict[str, tuple[int, str, str]] = {}
        """The version, the state and the token."""
        self.history: dict[str, list[str]] = {}
        self.notes: dict[str, list[str]] = {}
        self.requests: dict[str, str] = {}
        self.documents: dict[str, tuple[int, str]] = {}
        self.values: dict[str, tuple[int, str]] = {}
        self.jobs: dict[str, tuple[int, str, float, int]] = {}
        """The version, the status, when it is due and the attempts."""

    def version(self, kind: str, name: str) -> int:
        """The version of a record, 0 if there is none."""
        found: dict[str, tuple[Any, ...]] = getattr(self, kind)
        return int(found[name][0]) if name in found else 0

    def start(self, name: str, state: str, request: str | None) -> None:
        if name in self.instances:
            raise StaleVersion
        self._answer(request)
        self.instances[name] = (1, state, "")
        self.history[name] = [state]
        self.notes[name] = []

    def commit(self, name: str, version: int, state: str, token: str, request: str | None) -> int:
        if name not in self.instances or self.instances[name][::2] != (version, token):
            raise StaleVersion
        self._answer(request)
        self.instances[name] = (version + 1, state, "")
        self.history[name].append(state)
        return version + 1

    def settle(self, name: str, version: int, note: str, token: str, request: str | None) -> None:
        if name not in self.instances or self.instances[name][::2] != (version, token):
            raise StaleVersion
        self._answer(request)
        self.instances[name] = (version, self.instances[name][1], "")
        self.notes[name].append(note)

    def reserve(self, name: str, version: int, token: str, instead_of: str) -> bool:
        return self._hold(name, version, instead_of, token)

    def renew(self, name: str, token: str) -> bool:
        return self._hold(name, self.version("instances", name), token, token)

    def release(self, name: str, token: str) -> bool:
        return self._hold(name, self.version("instances", name), token, "")

    def answer(self, key: str, answer: str) -> bool:
        if key in self.requests:
            return False
        self.requests[key] = answer
        return True

    def replace_answer(self, key: str, answer: str) -> None:
        self.requests[key] = answer

    def put(self, name: str, version: int, value: str) -> int:
        return self._put(self.documents, name, version, value)

    def remove(self, name: str, version: int) -> None:
        self._remove(self.documents, name, version)

    def keep(self, name: str, version: int, value: str) -> int:
        return self._put(self.values, name, version, value)

    def drop(self, name: str, version: int) -> None:
        self._remove(self.values, name, version)

    def add(self, name: str, due_at: float) -> bool:
        if name in self.jobs:
            return False
        self.jobs[name] = (1, WAITING, due_at, 0)
        return True

    def lease(self, now: float, until: float, limit: int) -> list[str]:
        due = [(job[2], name) for name, job in self.jobs.items() if job[1] == WAITING and job[2] <= now]
        taken = [name for _, name in sorted(due)[:limit]]
        for name in taken:
            version, status, _, attempts = self.jobs[name]
            self.jobs[name] = (version + 1, status, until, attempts + 1)
        return taken

    def prolong(self, name: str, version: int, until: float) -> None:
        _, status, _, attempts = self._job(name, version)
        self.jobs[name] = (version, status, until, attempts)

    def put_back(self, name: str, version: int, due_at: float) -> None:
        self.jobs[name] = (version + 1, WAITING, due_at, self._job(name, version)[3])

    def give_up(self, name: str, version: int, now: float) -> None:
        self.jobs[name] = (version + 1, GIVEN_UP, now, self._job(name, version)[3])

    def finish(self, name: str, version: int) -> None:
        self._job(name, version)
        del self.jobs[name]

    def content(self) -> dict[str, Any]:
        """Everything there is."""
        return {
            "instances": sorted((name, *rest) for name, rest in self.instances.items()),
            "history": self.history,
            "notes": self.notes,
            "reserved": sorted(name for name, (_, _, token) in self.instances.items() if token),
            "due": sorted(name for name, (_, _, token) in self.instances.items() if not token),
            "requests": self.requests,
            "documents": sorted((name, *rest) for name, rest in self.documents.items()),
            "values": sorted((name, *rest) for name, rest in self.values.items()),
            "jobs": sorted((name, *rest) for name, rest in self.jobs.items()),
        }

    def _answer(self, request: str | None) -> None:
        if request is None:
            return
        if request in self.requests:
            raise StoreError
        self.requests[request] = "moved"

    def _hold(self, name: str, version: int, token: str, new: str) -> bool:
        if name not in self.instances or self.instances[name][::2] != (version, token):
            return False
        self.instances[name] = (version, self.instances[name][1], new)
        return True

    def _put(self, where: dict[str, tuple[int, str]], name: str, version: int, value: str) -> int:
        if where.get(name, (0, ""))[0] != version:
            raise StaleVersion
        where[name] = (version + 1, value)
        return version + 1

    def _remove(self, where: dict[str, tuple[int, str]], name: str, version: int) -> None:
        if name not in where or where[name][0] != version:
            raise StaleVersion
        del where[name]

    def _job(self, name: str, version: int) -> tuple[int, str, float, int]:
        if name not in self.jobs or self.jobs[name][0] != version:
            raise StaleVersion
        return self.jobs[name]


class Real:
    """The same operations on a real store."""

    def __init__(self, store: Store) -> None:
        self.store = store

    async def start(self, name: str, state: str, request: str | None) -> None:
        await self.store.instances.start(instance(id=name, state=state, due_at=NOW), NOW, state, _request(request))

    async def commit(self, name: str, version: int, state: str, token: str, request: str | None) -> int:
        moved = instance(id=name, version=version, state=state, due_at=NOW)
        return await self.store.instances.commit(moved, NOW, state, token, _request(request))

    async def settle(self, name: str, version: int, note: str, token: str, request: str | None) -> None:
        settled = instance(id=name, version=version, state="is not looked at", due_at=NOW)
        await self.store.instances.settle(settled, NOW, note, token, _request(request))

    async def reserve(self, name: str, version: int, token: str, instead_of: str) -> bool:
        return await self.store.instances.reserve(name, version, Reservation(token, NOW, token), instead_of)

    async def renew(self, name: str, token: str) -> bool:
        return await self.store.instances.renew(name, token, NOW + 1)

    async def release(self, name: str, token: str) -> bool:
        return await self.store.instances.release(name, token)

    async def answer(self, key: str, answer: str) -> bool:
        return await self.store.requests.put(RequestRecord(SCOPE, key, "d", answer))

    async def replace_answer(self, key: str, answer: str) -> None:
        await self.store.requests.replace(RequestRecord(SCOPE, key, "d", answer))

    async def put(self, name: str, version: int, value: str) -> int:
        return (await self.store.skills.put(name, value, version)).version

    async def remove(self, name: str, version: int) -> None:
        await self.store.skills.remove(name, version)

    async def keep(self, name: str, version: int, value: str) -> int:
        return (await self.store.state.put(SCOPE, name, value, version)).version

    async def drop(self, name: str, version: int) -> None:
        await self.store.state.remove(SCOPE, name, version)

    async def add(self, name: str, due_at: float) -> bool:
        return await self.store.jobs.add(QUEUE, name, name, due_at)

    async def lease(self, now: float, until: float, limit: int) -> list[str]:
        return [job.id for job in await self.store.jobs.lease(QUEUE, now, until, limit)]

    async def prolong(self, name: str, version: int, until: float) -> None:
        await self.store.jobs.renew(_job(name, version), until)

    async def put_back(self, name: str, version: int, due_at: float) -> None:
        await self.store.jobs.put_back(_job(name, version), due_at, "again")

    async def give_up(self, name: str, version: int, now: float) -> None:
        await self.store.jobs.give_up(_job(name, version), now, "enough")

    async def finish(self, name: str, version: int) -> None:
        await self.store.jobs.remove(_job(name, version))

    async def content(self, keys: Sequence[str]) -> dict[str, Any]:
        """Everything there is, in the order the store gives it; requests under these keys."""
        found = await self.store.instances.page()
        answers = {key: await self.store.requests.get(SCOPE, key) for key in keys}
        return {
            "instances": [
                (one.id, one.version, one.state, one.reservation.token if one.reservation else "") for one in found
            ],
            "history": {one.id: [entry.value for entry in await self.store.instances.history(one.id)] for one in found},
            "notes": {one.id: [note.value for note in await self.store.instances.notes(one.id)] for one in found},
            "reserved": [one.id for one in await self.store.instances.reserved()],
            "due": [one.id for one in await self.store.instances.due(NOW)],
            "requests": {key: record.answer for key, record in answers.items() if record is not None},
            "documents": [tuple(one) for one in await self.store.skills.page()],
            "values": [tuple(one)[1:] for one in await self.store.state.page(SCOPE)],
            "jobs": [
                (job.id, job.version, job.status, job.due_at, job.attempts) for job in await self.store.jobs.page(QUEUE)
            ],
        }


def _request(key: str | None) -> RequestRecord | None:
    return None if key is None else RequestRecord(SCOPE, key, "d", "moved")


def _job(name: str, version: int) -> Job:
    return Job(queue=QUEUE, id=name, version=version, status=WAITING, due_at=0.0, attempts=0, reason="", value=None)
