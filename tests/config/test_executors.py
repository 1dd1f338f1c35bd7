from __future__ import annotations

from typing import get_args, get_type_hints

from tests.config.conftest import Folder
from waypost.config.executors import McpConnection
from waypost.wire.versions import ALL


def test_all_versions_can_be_asked_for(folder: Folder) -> None:
    offered = get_type_hints(McpConnection)["version"]
    assert set(get_args(get_args(offered)[0])) == set(ALL)
    for version in ALL:
        loaded = folder.load(f"connections: {{up: {{kind: mcp, command: x, version: {version}}}}}")
        connection = loaded.config.connections["up"]
        assert isinstance(connection, McpConnection)
        assert connection.version == version


def test_an_unknown_version_is_an_error(folder: Folder) -> None:
    found = folder.only("connections:\n  up:\n    kind: mcp\n    command: x\n    version: 2025-11-26\n")
    assert (found.code, found.line, found.key) == ("CFG013", 5, "connections.up.version")
    assert "2025-11-25" in found.message
