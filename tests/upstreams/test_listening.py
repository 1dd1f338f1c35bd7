"""The status of the servers of a pool, and the recipients of their notifications."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.importers import Turncoat, tool
from tests.protocol.conftest import asynchronous
from tests.upstreams.programs import nothing_left, program
from waypost.config.models import Connection, McpConnection
from waypost.upstreams.jsonrpc import Reply
from waypost.upstreams.pool import Upstreams
from waypost.upstreams.transport import UpstreamUnavailable
from waypost.upstreams.upstream import Listener


class RecordingListener(Listener):
    """A listener that records sessions and notifications."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def on_session_start(self, name: str) -> None:
        self.lines.append(f"{name} begun")

    def on_notification(self, name: str, note: Reply) -> None:
        self.lines.append(f"{name}: {note['method']}")


def turncoats(folder: Path, *names: str) -> dict[str, Connection]:
    """Connections to separate servers."""
    return {
        name: program("turncoat", str(Turncoat(folder, tool("slow"), tool("change"), name=name).folder))
        for name in names
    }


@asynchronous
async def test_a_pool_reports_the_status_of_a_server_without_starting_it(tmp_path: Path) -> None:
    lost = McpConnection(command=str(tmp_path / "nothing"))
    connections: dict[str, Connection] = {**turncoats(tmp_path, "up"), "lost": lost}
    with nothing_left():
        pool = Upstreams(connections)
        assert pool.status("up").state == pool.status("lost").state == "not started"
        await pool.list_tools("up")
        assert (pool.status("up").state, pool.status("up").version) == ("running", "2025-06-18")
        with pytest.raises(UpstreamUnavailable):
            await pool.list_tools("lost")
        standing = pool.status("lost")
        assert standing.state == "failed"
        assert "there is no such program" in standing.reason
        assert 0 < standing.retry_in <= 1
        pool.retire("up")
        assert pool.status("up").state == "not started"
        await pool.stop()


@asynchronous
async def test_a_listener_is_notified_of_sessions_and_changes(tmp_path: Path) -> None:
    connections = turncoats(tmp_path, "up")
    pool = Upstreams(connections)
    diary = pool.listener = RecordingListener()
    await pool.call_tool("up", "change", {"tools": []}, {})
    pool.retire("up")
    await pool.list_tools("up")
    assert diary.lines == ["up begun", "up: notifications/tools/list_changed", "up begun"]
    await pool.stop()


@asynchronous
async def test_progress_reaches_only_its_own_call(tmp_path: Path) -> None:
    connections = turncoats(tmp_path, "one", "two")
    pool = Upstreams(connections)
    heard: dict[str, list[Any]] = {"one": [], "two": [], "again": []}

    def listening(name: str) -> Any:
        def take(answer: Mapping[str, Any]) -> None:
            heard[name].append(answer["progress"])

        return take

    calls = [
        pool.call_tool("one", "slow", {"ends": True}, {}, listening("one")),
        pool.call_tool("two", "slow", {"ends": True}, {}, listening("two")),
        pool.call_tool("one", "slow", {"ends": True}, {}, listening("again")),
        pool.call_tool("one", "slow", {"ends": True}, {}),
    ]
    await asyncio.gather(*calls)
    assert heard == {"one": [1, 2], "two": [1, 2], "again": [1, 2]}
    await pool.stop()
