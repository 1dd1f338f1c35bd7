"""Ownership of skills and prompts, and owners that have disconnected."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.conftest import asynchronous
from tests.documents.desk import SHELVES, Desk, desk

REGISTER: dict[str, Any] = {"id": "a", "skill": "# Other"}
PROMPT: dict[str, Any] = {"name": "p", "description": "Other.", "function_id": "b::p"}


async def owned(it: Desk) -> None:
    """A skill and a prompt of a worker that is connected."""
    it.connected.add("ann")
    await it.skill("a", "# Mine", sender="ann")
    await it.prompt("p", sender="ann")
    it.changes.clear()


@pytest.mark.parametrize("shelf", SHELVES)
@asynchronous
async def test_a_worker_may_not_change_documents_of_another_connected_worker(shelf: str) -> None:
    async with desk(shelf) as it:
        await owned(it)

        assert 'The skill "a" belongs to worker:ann' in await it.refusal("skills::register", REGISTER, "bob")
        assert "belongs to worker:ann" in await it.refusal("skills::unregister", {"id": "a"}, "bob")
        assert 'The prompt "p" belongs to worker:ann' in await it.refusal("prompts::register", PROMPT, "bob")
        assert "belongs to worker:ann" in await it.refusal("prompts::unregister", {"name": "p"}, "bob")
        assert (await it.read("iii://a"))[1] == "# Mine"
        assert it.changes == []


@asynchronous
async def test_the_owner_and_an_operator_may_change_documents() -> None:
    async with desk() as it:
        await owned(it)

        await it.skill("a", "# Newer", sender="ann")
        assert await it.call("skills::unregister", {"id": "a"}) == {"id": "a", "removed": True}
        await it.prompt("p")
        [row] = (await it.call("prompts::list"))["prompts"]
        assert (row["owner"], row["stale"]) == ("operator", False)
        assert "belongs to operator" in await it.refusal("prompts::register", PROMPT, "ann")


@asynchronous
async def test_replacing_a_skill_of_another_owner_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    async with desk() as it:
        it.connected = {"ann"}
        assert "warnings" not in await it.call("skills::register", {"id": "a", "skill": "# A"}, "ann")
        assert "warnings" not in await it.call("skills::register", {"id": "a", "skill": "# B"}, "ann")
        it.connected = {"bob"}
        taken = await it.call("skills::register", {"id": "a", "skill": "# C"}, "bob")
        assert taken["warnings"] == ["it replaces the skill of worker:ann"]
        assert "a of worker:ann is replaced by that of worker:bob" in caplog.text


@asynchronous
async def test_documents_of_a_disconnected_worker_are_stale_and_may_be_replaced() -> None:
    async with desk() as it:
        await owned(it)
        [row] = (await it.call("skills::list"))["skills"]
        assert (row["owner"], row["stale"]) == ("worker:ann", False)

        it.connected = {"bob"}
        [row] = (await it.call("skills::list"))["skills"]
        assert (row["owner"], row["stale"]) == ("worker:ann", True)
        [prompt] = (await it.call("prompts::list"))["prompts"]
        assert (prompt["owner"], prompt["stale"]) == ("worker:ann", True)

        await it.skill("a", sender="bob")
        [row] = (await it.call("skills::list"))["skills"]
        assert (row["owner"], row["stale"]) == ("worker:bob", False)


@asynchronous
async def test_any_worker_may_change_shared_documents() -> None:
    async with desk(share=True) as it:
        await owned(it)

        await it.call("skills::register", REGISTER, "bob")
        assert await it.call("prompts::unregister", {"name": "p"}, "bob") == {"name": "p", "removed": True}


@asynchronous
async def test_any_worker_may_replace_a_skill_without_an_owner() -> None:
    async with desk("state") as it:
        it.engine.state["skills", "a"] = {"id": "a", "skill": "# Old", "registered_at": "2026-01-01T00:00:00+00:00"}

        assert (await it.call("skills::list"))["skills"] == [
            {"id": "a", "bytes": 5, "registered_at": "2026-01-01T00:00:00+00:00", "owner": None, "stale": False}
        ]
        await it.skill("a", sender="bob")
