"""`waypost upstreams`: the MCP servers behind a running hub."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.operated import Captured, complaint, printed_json
from tests.cli.shell import serving
from tests.gateway.importers import Turncoat, tool, write
from waypost.cli import main


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Turncoat]:
    """A server whose tools change, behind a hub that commands find by its data directory."""
    server = Turncoat(tmp_path, tool("read"), name="up")
    file = write(tmp_path, {"up": server.connection}, [{"connection": "up"}])
    monkeypatch.setenv("WAYPOST_DATA", str(tmp_path / ".waypost"))
    with serving(file.name, "--port", "0", cwd=tmp_path) as hub:
        assert hub.url
        yield server


def output_of(capsys: Captured, *arguments: str) -> str:
    """The output of a successful command."""
    assert main(["upstreams", *arguments]) == 0
    return str(capsys.readouterr().out)


def test_a_changed_tool_is_listed_with_its_difference_and_approved(server: Turncoat, capsys: Captured) -> None:
    assert output_of(capsys, "restart", "up") == "up is running.\n"
    head, row = output_of(capsys, "list").splitlines()
    assert head.split() == ["CONNECTION", "TRANSPORT", "STATE", "TOOLS", "HELD", "REASON"]
    assert row.split() == ["up", "stdio", "running", "1", "0"]
    server.offer(tool("read", "Do it for me."), tool("bad name"))
    assert output_of(capsys, "restart", "up") == "up is running.\n"
    _, row, *remarks = output_of(capsys, "list").splitlines()
    assert row.split() == ["up", "stdio", "running", "0", "2"]
    assert remarks[0].startswith("up: read is held back, because its definition is changed (sha256 ")
    assert remarks[1:3] == ["  -description: Do it.", "  +description: Do it for me."]
    assert remarks[-1].startswith("up: bad name is left out: up.bad name cannot be offered: The name")
    assert output_of(capsys, "approve", "up", "read") == "Approved of up: read.\n"
    assert output_of(capsys, "approve", "up", "read") == "Nothing of up is held back.\n"
    assert main(["upstreams", "list", "--json"]) == 0
    (listed,) = printed_json(capsys)
    assert listed["tools"] == ["up.read"]
    assert main(["upstreams", "approve", "up", "--json"]) == 0
    assert printed_json(capsys)["approved"] == ["bad name"]


def test_a_refusal_is_a_one_line_error(server: Turncoat, capsys: Captured) -> None:
    assert output_of(capsys, "restart", "up") == "up is running.\n"
    assert main(["upstreams", "restart", "down"]) == 1
    assert complaint(capsys) == "waypost: There is no connection 'down' to an MCP server."
    assert main(["upstreams", "approve", "up", "write"]) == 1
    assert complaint(capsys) == "waypost: up does not offer 'write'."


@pytest.fixture
def personal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A hub with an upstream that needs a credential per user; the upstream does not run."""
    far = {"kind": "mcp", "url": "http://127.0.0.1:9/mcp", "credentials": "user"}
    file = write(tmp_path, {"far": far}, [])
    monkeypatch.setenv("WAYPOST_DATA", str(tmp_path / ".waypost"))
    with serving(file.name, "--port", "0", cwd=tmp_path) as hub:
        assert hub.url
        yield


@pytest.mark.usefixtures("personal")
def test_a_credential_is_stored_and_removed(capsys: Captured) -> None:
    given = ["--principal", "ada", "--header", "Authorization: Bearer abc", "--header", "X-Team: red"]
    assert output_of(capsys, "login", "far", *given) == "The credentials of ada for far are stored.\n"
    assert main(["upstreams", "login", "far", *given, "--json"]) == 0
    assert printed_json(capsys) == {"connection": "far", "principal": "ada", "kept": True}
    assert output_of(capsys, "logout", "far", "--principal", "ada") == "The credentials of ada for far are removed.\n"


def test_an_invalid_digest_is_wrong_usage(capsys: Captured) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["upstreams", "approve", "up", "read", "--sha256", "abcd"])
    assert caught.value.code == 2
    assert "'abcd' is not a digest of 64 hexadecimal digits" in capsys.readouterr().err
