"""`waypost install`: adds a working entry to the file of each client, and removes it again."""

from __future__ import annotations

import json
import shutil
import stat
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.cli.shell import COMMAND
from waypost.cli import main
from waypost.cli.install import replace_text
from waypost.config.clients import CLIENTS, Machine, Server

Captured = pytest.CaptureFixture[str]

URL: Final = "http://127.0.0.1:8420/mcp"
STARTED: Final = Server("desk", ("/bin/waypost", "serve", "/a.yaml", "--stdio"))
REACHED: Final = Server("desk", url=URL, key="wp_secret")
BY_VARIABLE: Final = Server("desk", url=URL, key_variable="HUB_KEY")
BEARER: Final = {"Authorization": "Bearer wp_secret"}
START: Final = {"command": "/bin/waypost", "args": ["serve", "/a.yaml", "--stdio"]}
GOOSE: Final = {"enabled": True, "name": "desk", "description": "", "timeout": 300}
ENTRIES: Final[dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]] = {
    "claude-code": (
        {"type": "stdio", **START},
        {"type": "http", "url": URL, "headers": BEARER},
        {"type": "http", "url": URL, "headers": {"Authorization": "Bearer ${HUB_KEY}"}},
    ),
    "cursor": (
        START,
        {"url": URL, "headers": BEARER},
        {"url": URL, "headers": {"Authorization": "Bearer ${env:HUB_KEY}"}},
    ),
    "vscode": (
        {"type": "stdio", **START},
        {"type": "http", "url": URL, "headers": BEARER},
        {"type": "http", "url": URL, "headers": {"Authorization": "Bearer ${env:HUB_KEY}"}},
    ),
    "codex": (START, {"url": URL, "http_headers": BEARER}, {"url": URL, "bearer_token_env_var": "HUB_KEY"}),
    "gemini": (
        START,
        {"type": "http", "url": URL, "headers": BEARER},
        {"type": "http", "url": URL, "headers": {"Authorization": "Bearer $HUB_KEY"}},
    ),
    "opencode": (
        {"type": "local", "command": ["/bin/waypost", *START["args"]], "enabled": True},
        {"type": "remote", "url": URL, "headers": BEARER, "oauth": False, "enabled": True},
        {
            "type": "remote",
            "url": URL,
            "headers": {"Authorization": "Bearer {env:HUB_KEY}"},
            "oauth": False,
            "enabled": True,
        },
    ),
    "goose": (
        {**GOOSE, "type": "stdio", "cmd": "/bin/waypost", "args": START["args"], "envs": {}},
        {**GOOSE, "type": "streamable_http", "uri": URL, "headers": BEARER},
        {
            **GOOSE,
            "type": "streamable_http",
            "uri": URL,
            "headers": {"Authorization": "Bearer $HUB_KEY"},
            "env_keys": ["HUB_KEY"],
        },
    ),
}
READERS: Final[dict[str, Callable[[str], Any]]] = {"JSON": json.loads, "TOML": tomllib.loads, "YAML": yaml.safe_load}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory without any client, on Linux."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setattr("sys.platform", "linux")
    for variable in ("XDG_CONFIG_HOME", "CODEX_HOME", "CLAUDE_CONFIG_DIR", "GEMINI_CLI_HOME"):
        monkeypatch.delenv(variable, raising=False)
    return folder


def file_of(client: str, home: Path) -> Path:
    return CLIENTS[client].user(Machine("linux", home, {}))


def servers_in(client: str, file: Path) -> dict[str, Any]:
    found: dict[str, Any] = READERS[CLIENTS[client].form.name](file.read_text())[CLIENTS[client].section]
    return found


@pytest.mark.parametrize("client", ENTRIES)
def test_an_entry_is_in_the_form_of_the_client(client: str) -> None:
    written = [CLIENTS[client].entry(server) for server in (STARTED, REACHED, BY_VARIABLE)]

    assert written == list(ENTRIES[client])


@pytest.mark.parametrize("client", ENTRIES)
def test_a_hub_without_a_key_has_no_header(client: str) -> None:
    entry = CLIENTS[client].entry(Server("desk", url=URL))

    assert "Authorization" not in json.dumps(entry)


def test_claude_desktop_accepts_only_servers_that_it_starts(home: Path, project: Path, capsys: Captured) -> None:
    assert CLIENTS["claude-desktop"].entry(STARTED) == START
    assert main(["install", "claude-desktop", "--url", URL]) == 1
    assert "without --url" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("client", "linux", "darwin", "win32"),
    [
        ("claude-desktop", ".config/Claude/claude_desktop_config.json",
         "Library/Application Support/Claude/claude_desktop_config.json", "roaming/Claude/claude_desktop_config.json"),
        ("claude-code", ".claude.json", ".claude.json", ".claude.json"),
        ("cursor", ".cursor/mcp.json", ".cursor/mcp.json", ".cursor/mcp.json"),
        ("vscode", ".config/Code/User/mcp.json", "Library/Application Support/Code/User/mcp.json",
         "roaming/Code/User/mcp.json"),
        ("codex", ".codex/config.toml", ".codex/config.toml", ".codex/config.toml"),
        ("gemini", ".gemini/settings.json", ".gemini/settings.json", ".gemini/settings.json"),
        ("opencode", ".config/opencode/opencode.json", ".config/opencode/opencode.json",
         ".config/opencode/opencode.json"),
        ("goose", ".config/goose/config.yaml", ".config/goose/config.yaml",
         "roaming/Block/goose/config/config.yaml"),
    ],
)  # fmt: skip
def test_the_file_is_in_the_place_that_the_client_reads(client: str, linux: str, darwin: str, win32: str) -> None:
    home = Path("/home/ada")
    for platform, file in (("linux", linux), ("darwin", darwin), ("win32", win32)):
        machine = Machine(platform, home, {"APPDATA": "/home/ada/roaming"})
        assert CLIENTS[client].user(machine) == home / file


@pytest.mark.parametrize(
    ("client", "variable", "file"),
    [
        ("claude-code", "CLAUDE_CONFIG_DIR", ".claude.json"),
        ("codex", "CODEX_HOME", "config.toml"),
        ("gemini", "GEMINI_CLI_HOME", ".gemini/settings.json"),
        ("opencode", "XDG_CONFIG_HOME", "opencode/opencode.json"),
        ("goose", "XDG_CONFIG_HOME", "goose/config.yaml"),
    ],
)
def test_a_variable_of_the_client_moves_the_file(client: str, variable: str, file: str) -> None:
    assert CLIENTS[client].user(Machine("linux", Path("/home/ada"), {variable: "/else"})) == Path("/else", file)


@pytest.mark.parametrize("client", CLIENTS)
def test_the_entry_starts_the_hub_from_anywhere(client: str, home: Path, project: Path, capsys: Captured) -> None:
    assert main(["install", client]) == 0

    file = file_of(client, home)
    entry = servers_in(client, file)["desk"]
    command = entry.get("command") or entry["cmd"]
    words = command if isinstance(command, list) else [command, *entry["args"]]
    assert words == [COMMAND, "serve", str(project / "waypost.yaml"), "--stdio"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert capsys.readouterr().out.startswith(f"Added 'desk' to {file}; ")
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    }
    if client == "goose":  # one process is enough: the command is the same
        run = subprocess.run(words, input=json.dumps(hello) + "\n", cwd="/", capture_output=True, text=True, timeout=90)
        assert json.loads(run.stdout)["result"]["serverInfo"]["name"] == "desk"


@pytest.mark.parametrize("client", CLIENTS)
def test_an_installed_entry_is_removed(client: str, home: Path, project: Path, capsys: Captured) -> None:
    assert main(["install", client, "--name", "first"]) == 0
    file = file_of(client, home)
    before = file.read_text()

    assert main(["install", client]) == 0
    assert list(servers_in(client, file)) == ["first", "desk"]
    assert main(["install", client, "--remove"]) == 0

    assert file.read_text() == before
    assert "desk" in file.with_name(f"{file.name}.bak2").read_text()
    assert main(["install", client, "--remove"]) == 1
    assert "has no entry 'desk'" in capsys.readouterr().err


def test_a_dry_run_shows_a_unified_diff_and_writes_nothing(home: Path, project: Path, capsys: Captured) -> None:
    file = home / ".codex" / "config.toml"
    file.parent.mkdir()
    file.write_text('model = "m"  # mine\n')

    assert main(["install", "codex", "--url", "http://127.0.0.1:8420", "--name", "desk", "--dry-run"]) == 0

    assert capsys.readouterr().out == (
        f"--- {file}\n+++ {file}\n@@ -1 +1,4 @@\n"
        ' model = "m"  # mine\n+\n+[mcp_servers.desk]\n+url = "http://127.0.0.1:8420/mcp"\n'
    )
    assert file.read_text() == 'model = "m"  # mine\n'
    assert [path.name for path in file.parent.iterdir()] == ["config.toml"]


def test_the_same_entry_again_changes_nothing(home: Path, project: Path, capsys: Captured) -> None:
    for _ in range(2):
        assert main(["install", "cursor", "--json"]) == 0
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    assert [row["changed"] for row in said] == [True, False]
    assert not (home / ".cursor" / "mcp.json.bak").exists()


def test_a_file_keeps_its_permissions_and_its_link_and_is_backed_up(home: Path, project: Path) -> None:
    real = home / "dotfiles.json"
    real.write_text('{\n  "servers": {}, // none\n}\n')
    real.chmod(0o640)
    link = home / ".config" / "Code" / "User" / "mcp.json"
    link.parent.mkdir(parents=True)
    link.symlink_to(real)

    assert main(["install", "vscode", "--url", URL]) == 0

    assert link.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert "// none" in real.read_text()
    assert (home / "dotfiles.json.bak").read_text() == '{\n  "servers": {}, // none\n}\n'


@pytest.mark.parametrize(("client", "text"), [("cursor", '{"mcpServers": '), ("codex", "a ="), ("goose", "a: [")])
def test_a_broken_file_is_a_one_line_error(client: str, text: str, home: Path, project: Path, capsys: Captured) -> None:
    file = file_of(client, home)
    file.parent.mkdir(parents=True)
    file.write_text(text)

    assert main(["install", client]) == 1

    said = capsys.readouterr().err
    assert said.startswith(f"waypost: {file} cannot be changed: it is not ")
    assert said.count("\n") == 1
    assert file.read_text() == text


@pytest.mark.parametrize("client", [name for name, client in CLIENTS.items() if client.project])
def test_a_project_has_a_file_of_its_own(client: str, home: Path, project: Path) -> None:
    assert main(["install", client, "--scope", "project"]) == 0

    assert "desk" in servers_in(client, project / str(CLIENTS[client].project))
    assert list(home.iterdir()) == []


def test_the_file_with_comments_of_opencode_is_used_if_it_exists(home: Path, project: Path) -> None:
    (project / "opencode.jsonc").write_text("{\n  // mine\n}\n")
    assert main(["install", "opencode", "--scope", "project"]) == 0

    assert "// mine" in (project / "opencode.jsonc").read_text()
    assert not (project / "opencode.json").exists()


def test_an_equal_entry_in_another_format_is_not_changed(home: Path, project: Path) -> None:
    file = home / ".cursor" / "mcp.json"
    file.parent.mkdir(parents=True)
    file.write_text('{"mcpServers":{"waypost":{"url":"http://127.0.0.1:8420/mcp"}}}')
    before = file.read_text()

    assert main(["install", "cursor", "--url", "http://127.0.0.1:8420"]) == 0

    assert file.read_text() == before
    assert not file.with_name("mcp.json.bak").exists()


@pytest.mark.parametrize(
    ("words", "status", "sentence"),
    [
        (["cursr"], 2, "did you mean 'cursor'"),
        (["cursor", "nowhere.yaml"], 1, "nowhere.yaml"),
        (["cursor", "--key", "k"], 2, "--key and --key-variable are for a hub at a URL"),
        (["cursor", "--url", "desk:1"], 2, "desk:1 is not a URL"),
        (["cursor", "--name", "a b"], 2, "not a name that every client takes"),
        (["goose", "--scope", "project"], 2, "goose has no files for single projects"),
        (["cursor", "--remove", "nowhere.py:hub"], 2, "Name the entry to remove with --name; there are: none."),
    ],
)
def test_wrong_usage_is_a_one_line_error(
    words: list[str], status: int, sentence: str, home: Path, project: Path, capsys: Captured
) -> None:
    try:
        ended = main(["install", *words])
    except SystemExit as error:
        ended = int(str(error.code))

    said = capsys.readouterr().err
    assert (ended, said.count("\n")) == (status, 1)
    assert sentence in said
    assert list(home.iterdir()) == []


def test_an_unwritable_directory_is_an_error(home: Path, project: Path, capsys: Captured) -> None:
    (home / ".cursor").write_text("in the way")

    assert main(["install", "cursor"]) == 1
    assert "cannot be" in capsys.readouterr().err


def test_the_module_is_started_if_there_is_no_script(monkeypatch: pytest.MonkeyPatch) -> None:
    from waypost.cli.install import find_command

    python = shutil.which("python3") or "/usr/bin/python3"
    monkeypatch.setattr("sys.executable", str(Path(python).parent / "nowhere" / "python3"))
    assert find_command()[1:] == ["-m", "waypost"]


def test_the_copy_of_the_original_is_kept_when_the_file_changes_again(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text("original")
    assert replace_text(file, "installed") == tmp_path / "mcp.json.bak"
    assert replace_text(file, "removed") == tmp_path / "mcp.json.bak2"
    assert (tmp_path / "mcp.json.bak").read_text() == "original"
