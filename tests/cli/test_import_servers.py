"""`waypost import`: servers of any client are converted to connections and imports, without their secrets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.cli.shell import COMMAND
from waypost.cli import main
from waypost.config.clients import CLIENTS, Server
from waypost.config.edits import set_entry

Captured = pytest.CaptureFixture[str]

SUMS: Final = {"kind": "mcp", "command": "waypost", "args": ["serve", "server.py:hub", "--stdio"]}


def imported(file: Path, capsys: Captured) -> tuple[dict[str, Any], str]:
    """The connections made from a file, and the notes."""
    assert main(["import", str(file)]) == 0
    said = capsys.readouterr()
    data = yaml.safe_load(said.out)
    assert [row["connection"] for row in data["proxy"]["import"]] == list(data["connections"])
    return data["connections"], said.err


@pytest.mark.parametrize("client", CLIENTS)
def test_an_entry_written_by_install_is_imported(client: str, tmp_path: Path, capsys: Captured) -> None:
    known = CLIENTS[client]
    text = set_entry("", known.form, (known.section, "sums"), known.entry(Server("sums", ("waypost", *SUMS["args"]))))
    if client != "claude-desktop":
        by_url = Server("far", url="https://h/mcp", key_variable="FAR_KEY")
        text = set_entry(text, known.form, (known.section, "far"), known.entry(by_url))
    file = tmp_path / f"client.{known.form.name.lower()}"
    file.write_text(text)

    connections, notes = imported(file, capsys)

    assert connections.pop("sums") == SUMS
    if client != "claude-desktop":
        header = {"Authorization": "Bearer ${FAR_KEY}"}
        assert connections.pop("far") == {"kind": "mcp", "url": "https://h/mcp", "headers": header}
    assert (connections, notes) == ({}, "")


def test_secrets_are_replaced_by_variables_and_stay_in_the_original_file(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "mcp.json"
    servers = {
        "git hub": {
            "command": "npx",
            "args": ["--api-key", "1234567", "--token=7654321", "--mode", "a${b"],
            "env": {"GITHUB_TOKEN": "ghp_x", "MODE": "fast", "DB": "postgres://u:hunter22@h/db"},
        },
        "other": {"command": "x", "env": {"GITHUB_TOKEN": "ghp_y", "SAME_KEY": "k", "DB_PASS": "p"}},
        "third": {"command": "x", "env": {"SAME_KEY": "k"}},
        "wiki": {"url": "https://h/mcp?api_key=9999&v=1", "headers": {"Authorization": "Bearer zzz", "X-Mode": "a"}},
    }
    file.write_text(json.dumps({"mcpServers": servers}))

    connections, notes = imported(file, capsys)

    assert connections["git hub"]["args"] == [
        "--api-key", "${GIT_HUB_API_KEY}", "--token=${GIT_HUB_TOKEN}", "--mode", "a$${b",
    ]  # fmt: skip
    assert connections["git hub"]["env"] == {"GITHUB_TOKEN": "${GITHUB_TOKEN}", "MODE": "fast", "DB": "${DB}"}
    assert connections["other"]["env"] == {
        "GITHUB_TOKEN": "${OTHER_GITHUB_TOKEN}",
        "SAME_KEY": "${SAME_KEY}",
        "DB_PASS": "${DB_PASS}",
    }
    assert connections["third"]["env"] == {"SAME_KEY": "${SAME_KEY}"}
    assert connections["wiki"] == {
        "kind": "mcp",
        "url": "https://h/mcp?api_key=${WIKI_API_KEY}&v=1",
        "headers": {"Authorization": "Bearer ${WIKI_AUTHORIZATION}", "X-Mode": "a"},
    }
    assert not [secret for secret in ("1234567", "7654321", "ghp_", "hunter22", "9999", "zzz") if secret in notes]
    assert f"note: set GITHUB_TOKEN for the hub; its value is in env.GITHUB_TOKEN of 'git hub' in {file}\n" in notes


def test_variables_of_other_clients_are_written_as_here(tmp_path: Path, capsys: Captured) -> None:
    folder = tmp_path / "work" / ".vscode"
    folder.mkdir(parents=True)
    (folder / "mcp.json").write_text(
        """{
        // for the team
        "inputs": [{"id": "api-key", "type": "promptString"}],
        "servers": {"a": {
            "type": "stdio", "command": "${workspaceFolder}/run",
            "env": {"A": "${env:ONE}", "B": "${input:api-key}", "C": "{env:TWO}", "D": "${THREE:-x}",
                "E_TOKEN": "$FOUR"},
        }},
        }"""
    )

    connections, notes = imported(folder / "mcp.json", capsys)

    assert connections["a"]["command"] == f"{tmp_path / 'work'}/run"
    assert connections["a"]["env"] == {
        "A": "${ONE}", "B": "${API_KEY}", "C": "${TWO}", "D": "${THREE:-x}", "E_TOKEN": "${FOUR}",
    }  # fmt: skip
    assert notes == "note: set API_KEY for the hub; the client asks its user for it\n"


def test_an_unusable_server_is_left_out_with_a_note(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "mcp.json"
    servers = {"a": {"command": "x"}, "off": {"command": "x", "disabled": True}, "no": {}, "odd": 1}
    file.write_text(json.dumps({"mcpServers": servers}))

    connections, notes = imported(file, capsys)

    assert list(connections) == ["a"]
    assert [line.partition(":")[2] for line in notes.splitlines()] == [
        " off is left out: it is disabled",
        " no is left out: it has neither a command nor a URL",
        " odd is left out: its entry is not a mapping",
    ]


CONFIG: Final = """\
# the hub of the team
version: "1"
server: {name: desk}  # its name
connections:
  # the first
  build: {kind: cli, command: make}

proxy:
  import: []
"""


def test_servers_are_added_to_a_configuration_that_works_and_keeps_its_comments(
    project: Path, capsys: Captured
) -> None:
    (project / "mcp.json").write_text(json.dumps({"mcpServers": {"sums": {"command": COMMAND, "args": SUMS["args"]}}}))
    config = project / "hub.yaml"
    config.write_text(CONFIG)

    assert main(["import", "mcp.json", "--into", "hub.yaml"]) == 0

    text = config.read_text()
    assert all(comment in text for comment in ("# the hub of the team", "# its name", "# the first"))
    assert (project / "hub.yaml.bak").read_text() == CONFIG
    assert main(["check", "hub.yaml"]) == 0
    assert main(["call", "hub.yaml", "sums.add", "a=1", "b=2"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"Added to hub.yaml: sums. The file as it was before is {project / 'hub.yaml.bak'}.",
        "hub.yaml: nothing wrong",
        "3.0",
    ]
    assert main(["import", "mcp.json", "--into", "hub.yaml"]) == 0
    assert config.read_text() == text
    assert capsys.readouterr().out == "hub.yaml has all of them already.\n"


def test_a_configuration_that_does_not_exist_is_made(project: Path, capsys: Captured) -> None:
    (project / "mcp.json").write_text(json.dumps({"mcpServers": {"sums": {"command": COMMAND, "args": SUMS["args"]}}}))

    assert main(["import", "mcp.json", "--into", "new.yaml", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["added"] == ["sums"]
    assert main(["check", "new.yaml"]) == 0


@pytest.mark.parametrize(
    ("file", "text", "into", "sentence"),
    [
        ("a.json", '{"mcpServers": {}}', None, "has no MCP servers to import"),
        ("a.json", "{", None, "a.json cannot be read: it is not JSON"),
        ("a.toml", "x", None, "it is not TOML"),
        ("nowhere.json", None, None, "does not exist"),
        ("a.json", '{"servers": {"build": {"command": "x"}}}', CONFIG, "another connection 'build'; rename one"),
        ("a.json", '{"servers": {"b": {"command": "x"}}}', "- 1", "cannot be changed: it is not a mapping"),
        ("a.json", '{"servers": {"b": {"command": "x"}}}', "proxy: {import: {}}\na: [", "it is not YAML"),
    ],
)
def test_an_import_that_fails_is_a_one_line_error(
    file: str, text: str | None, into: str | None, sentence: str, project: Path, capsys: Captured
) -> None:
    if text is not None:
        (project / file).write_text(text)
    if into is not None:
        (project / "hub.yaml").write_text(into)

    assert main(["import", file, *(["--into", "hub.yaml"] if into is not None else [])]) == 1

    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1
    assert into is None or (project / "hub.yaml").read_text() == into
