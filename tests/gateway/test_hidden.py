"""Tools that operators hide are not listed on any replica, also after a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.protocol.conftest import asynchronous
from waypost import Hub
from waypost.capabilities.capability import Kind
from waypost.stores.store import Store
from waypost.stores.urls import create_database


def _hub(folder: Path) -> Hub:
    hub = Hub("desk", version="1", store=Store(create_database("sqlite:///hub.db", folder, 5.0)))

    @hub.tool
    async def add(a: float, b: float) -> float:
        return a + b

    @hub.tool(hidden=True)
    async def secret() -> str:
        return "x"

    return hub


def _listed(hub: Hub) -> set[str]:
    return {row.id for row in hub.registry.tools if not row.metadata.hidden}


@asynchronous
async def test_a_hidden_tool_stays_hidden_after_a_restart(tmp_path: Path) -> None:
    hub = _hub(tmp_path)
    await hub.start()
    await hub.runtime.gateway.hidden.change([(Kind.TOOL, "add")], hide=True)
    assert "add" not in _listed(hub)
    await hub.stop()

    again = _hub(tmp_path)
    assert "add" in _listed(again)
    await again.start()
    assert "add" not in _listed(again)
    await again.runtime.gateway.hidden.change([(Kind.TOOL, "add")], hide=False)
    assert "add" in _listed(again)
    await again.stop()


@asynchronous
async def test_another_replica_hides_a_hidden_tool_after_a_refresh(tmp_path: Path) -> None:
    one, other = _hub(tmp_path), _hub(tmp_path)
    await one.start()
    await other.start()
    await one.runtime.gateway.hidden.change([(Kind.TOOL, "add")], hide=True)
    await other.runtime.gateway.hidden.refresh()
    assert "add" not in _listed(other)
    await other.runtime.gateway.hidden.change([(Kind.TOOL, "add")], hide=False)
    await one.runtime.gateway.hidden.change([(Kind.TOOL, "other")], hide=True)
    assert "add" in _listed(one)
    await one.stop()
    await other.stop()


@asynchronous
async def test_a_row_added_later_is_hidden_too_and_clients_get_one_notification(tmp_path: Path) -> None:
    hub = _hub(tmp_path)
    changes: list[Any] = []
    hub.registry.subscribe(changes.append)
    hub.registry.hide([(Kind.TOOL, "later"), (Kind.TOOL, "secret")])
    assert changes == []

    @hub.tool
    async def later() -> str:
        return "x"

    assert "later" not in _listed(hub)
    assert [row.id for row in hub.registry.covered] == ["later"]
    hub.registry.hide([])
    assert (_listed(hub), hub.registry.covered) == ({"add", "later"}, [])
