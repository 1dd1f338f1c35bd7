"""Servers in the format of MCP clients: each is a connection and an import, and its errors have a line."""

from __future__ import annotations

import json

import pytest

from tests.config.conftest import Folder
from waypost.config.models import Import, McpConnection


def test_each_server_is_a_connection_and_an_import_under_its_name(folder: Folder) -> None:
    servers = {
        "time": {"command": "uvx", "args": ["mcp-server-time"], "env": {"TZ": "UTC"}, "cwd": "here", "type": "stdio"},
        "my files!": {"url": "http://127.0.0.1:1/mcp", "headers": {"A": "b"}, "type": "http"},
        "9": {"command": "x"},
        "off": {"command": "x", "disabled": True},
    }
    config = folder.load(json.dumps({"mcpServers": servers})).config
    assert config.connections == {
        "time": McpConnection(
            command="uvx", args=["mcp-server-time"], env={"TZ": "UTC"}, working_directory=str(folder.path / "here")
        ),
        "my files!": McpConnection(url="http://127.0.0.1:1/mcp", headers={"A": "b"}),
        "9": McpConnection(command="x"),
    }
    assert config.proxy.imports == [
        Import(connection="time", prefix="time"),
        Import(connection="my files!", prefix="my_files_"),
        Import(connection="9", prefix="mcp_9"),
    ]


def test_servers_of_several_files_are_merged_with_connections_and_imports(folder: Folder) -> None:
    folder.write("team.yaml", "mcpServers: {b: {command: x}}\nproxy: {import: [{connection: c}]}\n")
    config = folder.load(
        "include: [team.yaml]\nmcpServers: {a: {command: x}}\nconnections: {c: {kind: mcp, url: 'http://u'}}\n"
    )
    assert list(config.config.connections) == ["c", "b", "a"]
    assert [one.connection for one in config.config.proxy.imports] == ["c", "b", "a"]


def test_secrets_of_servers_are_redacted_like_those_of_connections(folder: Folder) -> None:
    loaded = folder.load("mcpServers: {a: {command: x, env: {API_TOKEN: 'abcdefgh12345'}}}")
    assert "abcdefgh12345" in loaded.secrets


@pytest.mark.parametrize(
    ("text", "key", "code", "sentence"),
    [
        ("mcpServers: {a: {comand: x}}", "mcpServers.a.comand", "CFG010", "did you mean `command`?"),
        ("mcpServers: {a: {command: x, args: y}}", "mcpServers.a.args", "CFG012", "expected a list, got text"),
        ("mcpServers: {a: {}}", "mcpServers.a", "CFG013", "add one of the two"),
        ("mcpServers: {a: {url: 'http://u', type: sse}}", "mcpServers.a.type", "CFG064", "Streamable HTTP"),
        ("mcpServers: {a: {url: 'http://u', command: x}}", "connections.a.command", "CFG075", "nothing is started"),
        ("mcpServers: {a: {command: x, alwaysAllow: []}}", "mcpServers.a.alwaysAllow", "CFG064", "`policies`"),
        ("mcpServers: {a: {command: x y}}", "mcpServers.a.command", "CFG076", "`command: x` and `args: [y]`"),
        (
            "connections: {a: {kind: mcp, url: 'http://u'}}\nmcpServers: {a: {command: x}}",
            "mcpServers.a",
            "CFG011",
            "there is a connection `a` in `connections` too",
        ),
        ("servers: {a: {command: x}}", "servers", "CFG010", "write `mcpServers`"),
        ("mcp: {servers: {a: {command: x}}}", "mcp.servers", "CFG010", "write `mcpServers`"),
        ("server: {name: '${env:NAME}'}", "server.name", "CFG021", "here it is `${NAME}`"),
        ("connections: {a: {url: 'http://u'}}", "connections.a.kind", "CFG014", "write `kind: mcp`"),
        ("connections: {a: {headers: {}}}", "connections.a.kind", "CFG014", "use `mcp`, `cli` or `rest`"),
    ],
)
def test_an_error_in_a_server_is_reported_at_its_key(
    folder: Folder, text: str, key: str, code: str, sentence: str
) -> None:
    found = folder.only(text)
    assert (found.key, found.code) == (key, code)
    assert sentence in found.message


def test_a_program_with_spaces_in_its_name_is_not_a_command_line(folder: Folder) -> None:
    folder.write("my server.sh", "").chmod(0o755)
    assert folder.check("mcpServers: {a: {command: './my server.sh'}}") == []
    assert folder.only("mcpServers: {a: {command: './your server.sh'}}").code == "CFG076"
