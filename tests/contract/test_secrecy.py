"""Secrets of the configuration are not stored with results of tools, and are removed from older rows."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.contract.conftest import Place, asynchronous, on_store, opened
from tests.contract.samples import NOW, instance, session, task
from waypost.stores import schema
from waypost.stores.database import Query
from waypost.stores.sessions import StoredEvent
from waypost.stores.store import Store
from waypost.stores.tasks import RequestRecord
from waypost.wire.messages import encode

SECRETS: Final = ("sk-0123456789", 'quo"ted\\slash', "ümläut-key", "status", "4711474711")
KEY: Final = bytes(32)
LATER: Final = NOW + 10_000_000_000


async def dump(store: Store) -> str:
    """Every row of every table."""
    texts = []
    for table in schema.TABLES:
        query = Query(f"SELECT {', '.join(table.columns)} FROM {table.name}")
        texts += [str(tuple(row)) for row in await store.database.read(query)]
    return "\n".join(texts)


def said(secret: str) -> dict[str, Any]:
    """The result of a tool."""
    return {
        "content": [{"type": "text", "text": f"It is {secret}."}],
        "structuredContent": {"a": [secret], "n": 4711474711},
    }


async def write_everything(store: Store, secret: str) -> None:
    """Write a row of each kind that holds a tool's result."""
    await store.tasks.save(task(id="t", status="completed", result=said(secret), status_message=secret))
    answer = encode({"jsonrpc": "2.0", "id": 1, "result": said(secret)}).decode()
    log = encode({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": secret}}).decode()
    await store.events.append(
        [StoredEvent("s", "a", number, LATER, text) for number, text in enumerate((log, answer), 1)]
    )
    await store.requests.put(RequestRecord("large", "k", "d", encode(said(secret)).decode(), LATER))
    await store.requests.put(RequestRecord("once", "k", "d", said(secret), LATER))


async def assert_readable(store: Store) -> None:
    """Check that all rows can be read, with a placeholder for the secret."""
    found = await store.tasks.load("t")
    assert found is not None and found.result is not None
    assert (found.status, found.status_message) == ("completed", "[REDACTED]")
    assert found.result["content"] == [{"type": "text", "text": "It is [REDACTED]."}]
    assert found.result["structuredContent"] == {"a": ["[REDACTED]"], "n": 4711474711}
    assert [number for number, _ in await store.events.after("s", "a", 0)] == [1, 2]
    kept = await store.requests.get("once", "k")
    assert kept is not None and kept.answer["content"] == found.result["content"]


@pytest.mark.parametrize("secret", SECRETS)
@on_store
async def test_results_of_tools_are_stored_without_secrets(store: Store, secret: str) -> None:
    store.set_secrets([secret])
    await write_everything(store, secret)
    await assert_readable(store)
    values = (await dump(store)).replace('n":4711474711', "")
    if secret != "status":  # the name of a column
        assert secret not in values.replace("\\\\", "\\").replace('\\"', '"').encode().decode()


@pytest.mark.parametrize("secret", SECRETS)
@asynchronous
async def test_older_rows_are_redacted_once(lasting_place: Place, secret: str) -> None:
    async with opened(lasting_place.store()) as store:
        await write_everything(store, secret)
        await store.sessions.save(session(id="x", assigns={"token": secret}))
        await store.instances.start(instance(id="i", value={"context": {"said": secret}}), NOW, {"said": secret})
    async with opened(lasting_place.store()) as store:
        store.set_secrets([secret])
        assert await store.remove_secrets(KEY) == 8
        await assert_readable(store)
        loaded, moved = await store.sessions.load("x"), await store.instances.get("i")
        assert loaded is not None and loaded.assigns == {"token": "[REDACTED]"}
        assert moved is not None and moved.value == {"context": {"said": "[REDACTED]"}}
        assert await store.check() == []
        await store.tasks.save(task(id="later"))
        assert await store.remove_secrets(KEY) == 0
        store.set_secrets([secret, "another secret"])
        assert await store.remove_secrets(KEY) == 0
    if not isinstance(lasting_place.where, str) and lasting_place.where is not None and secret == SECRETS[0]:
        files = lasting_place.where.parent.glob("store.db*")
        assert all(secret.encode() not in file.read_bytes() for file in files)
