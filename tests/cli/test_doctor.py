"""`waypost doctor`: each problem is reported with its fix, and nothing is changed."""

from __future__ import annotations

import json
import os
import shlex
import socket
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cli.shell import COMMAND, serving, waypost
from tests.ports import free_port
from tests.postgres import postgres_server as postgres_server
from tests.postgres import postgres_url as postgres_url
from waypost.cli import doctor, main
from waypost.stores import schema, sqlite
from waypost.version import __version__

Captured = pytest.CaptureFixture[str]

CHECKS: Final = ["configuration", "python", "dependencies", "data", "disk", "keys", "port", "sqlite", "store", "clock"]


def examine(capsys: Captured, *words: str) -> tuple[int, dict[str, dict[str, str]]]:
    """The exit status of the command, and its rows by check."""
    status = main(["doctor", *words, "--json"])
    rows: list[dict[str, str]] = json.loads(capsys.readouterr().out)
    return status, {row["check"]: row for row in rows}


def files_in(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(file): (file.stat().st_mtime_ns, file.stat().st_size) for file in folder.rglob("*")}


@pytest.mark.parametrize("target", ["waypost.yaml", "server.py:hub"])
def test_a_working_hub_has_only_ok_rows_and_nothing_is_changed(target: str, project: Path, capsys: Captured) -> None:
    # Not at the usual port: another test may try it at the same moment, or a hub listen there.
    program = (project / "server.py").read_text().replace('version="1.2.3")', f'version="1.2.3", port={free_port()})')
    (project / "server.py").write_text(program)
    assert main(["store", "migrate", "waypost.yaml"]) == 0
    (project / ".waypost" / "secret").write_bytes(bytes(32))
    (project / ".waypost" / "secret").chmod(0o600)
    capsys.readouterr()
    assert main(["list", target]) == 0  # compiles the modules at their first import
    before = files_in(project)
    capsys.readouterr()

    status, rows = examine(capsys, target)

    assert status == 0
    assert [row for row in rows.values() if row["status"] != "ok"] == []
    assert set(rows) == {*CHECKS, "secret"}
    assert rows["store"]["message"].endswith(f"is whole, at step {schema.LATEST} of {schema.LATEST}")
    assert __version__ in rows["python"]["message"]
    assert files_in(project) == before


def test_a_row_is_one_line_with_the_fix_and_a_broken_one_fails(project: Path) -> None:
    (project / "waypost.yaml").write_text(
        "server: {port: 0}\nconnections: {up: {kind: cli, command: no-such-program}}\n"
    )

    run = waypost("doctor", cwd=project)

    assert run.returncode == 1
    assert run.stderr == "1 check failed.\n"
    lines = run.stdout.splitlines()
    assert len(lines) == len(CHECKS) + 1
    assert shlex.split(lines[-1].replace("'", ""))[:3] == ["broken", "upstream", "up"]
    assert lines[-1].endswith("there is no program no-such-program; install it, or correct its command")
    assert not (project / ".waypost").exists()


def test_findings_of_the_configuration_are_rows(project: Path, capsys: Captured) -> None:
    (project / "waypost.yaml").write_text("server: {prt: 1}\nstore: {url: 'mysql://x'}\n")

    status = main(["doctor", "--json"])
    rows = [row for row in json.loads(capsys.readouterr().out) if row["check"] == "configuration"]

    assert status == 1
    assert len(rows) == 2
    assert all(row["status"] == "broken" for row in rows)
    assert "waypost.yaml:1: server.prt" in rows[0]["message"]


@pytest.mark.parametrize("target", ["nowhere.yaml", "nowhere.py:hub"])
def test_the_machine_is_checked_without_a_configuration(target: str, project: Path, capsys: Captured) -> None:
    status, rows = examine(capsys, target)

    assert status == 1
    assert rows["configuration"]["status"] == "broken"
    assert rows["python"]["status"] == "ok"


def test_a_port_that_another_program_uses_is_broken(project: Path, capsys: Captured) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server(("127.0.0.1", 0)) as other:
        port, workers = taken.getsockname()[1], other.getsockname()[1]
        (project / "waypost.yaml").write_text(f"server: {{port: {port}}}\nworkers: {{port: {workers}}}\n")
        status, rows = examine(capsys)

    assert status == 1
    assert rows["port"]["status"] == rows["workers"]["status"] == "broken"
    assert f"Cannot listen on 127.0.0.1:{port}" in rows["port"]["message"]
    assert rows["workers"]["fix"] == "set workers.port"


def test_ports_and_store_of_a_running_hub_are_fine(project: Path, capsys: Captured) -> None:
    ports = free_port(), free_port()
    (project / "waypost.yaml").write_text(f"server: {{port: {ports[0]}}}\nworkers: {{port: {ports[1]}}}\n")

    with serving(cwd=project) as hub:
        hub.wait_for(" is ready at ")
        status, rows = examine(capsys)

    assert (status, [row for row in rows.values() if row["status"] != "ok"]) == (0, [])
    assert rows["hub"]["message"] == f"running at http://127.0.0.1:{ports[0]} (process {hub.process.pid})"
    assert "used by the running hub" in rows["port"]["message"]
    assert "used by the running hub" in rows["workers"]["message"]


def test_each_connection_is_checked(project: Path, capsys: Captured) -> None:
    with socket.create_server(("127.0.0.1", 0)) as api:
        url = f"http://127.0.0.1:{free_port()}/mcp"
        connections: dict[str, Any] = {
            "sums": {"kind": "mcp", "command": COMMAND, "args": ["serve", "server.py:hub", "--stdio"]},
            "gone": {"kind": "mcp", "url": url},
            "own": {"kind": "mcp", "url": url, "credentials": "user"},
            "api": {"kind": "rest", "baseUrl": f"http://127.0.0.1:{api.getsockname()[1]}", "allowPrivate": True},
            "down": {"kind": "rest", "baseUrl": url.removesuffix("/mcp"), "allowPrivate": True},
            "make": {"kind": "cli", "command": sys.executable},
        }
        (project / "waypost.yaml").write_text(json.dumps({"connections": connections}))
        status, rows = examine(capsys)

    assert status == 1
    tried = {name: rows[f"upstream {name}"] for name in connections}
    assert {name: row["status"] for name, row in tried.items()} == {
        "sums": "ok", "gone": "broken", "own": "ok", "api": "ok", "down": "broken", "make": "ok",
    }  # fmt: skip
    assert tried["sums"]["message"] == "3 tools, MCP 2026-07-28"
    assert tried["gone"]["fix"] == "start its server, or correct its url"


def test_a_server_that_never_answers_is_broken_after_the_deadline(
    project: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "DEADLINE_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/mcp"
        (project / "waypost.yaml").write_text(json.dumps({"connections": {"up": {"kind": "mcp", "url": url}}}))
        status, rows = examine(capsys)

    assert status == 1
    assert rows["upstream up"]["status"] == "broken"


def test_a_store_that_is_damaged_older_or_newer_is_reported(
    project: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = project / ".waypost" / "waypost.db"
    assert main(["store", "migrate", "waypost.yaml"]) == 0
    capsys.readouterr()
    latest = schema.LATEST
    monkeypatch.setattr(schema, "LATEST", latest + 1)
    status, rows = examine(capsys)
    assert (status, rows["store"]["status"]) == (0, "warning")
    assert "waypost store migrate" in rows["store"]["fix"]

    monkeypatch.setattr(schema, "LATEST", latest - 1)
    status, rows = examine(capsys)
    assert (status, rows["store"]["status"]) == (1, "broken")
    assert "written by a later version" in rows["store"]["message"]

    file.write_bytes(b"not a database" * 100)
    status, rows = examine(capsys)
    assert (status, rows["store"]["status"]) == (1, "broken")


def test_a_file_from_the_future_is_a_warning_about_the_clock(project: Path, capsys: Captured) -> None:
    assert main(["store", "migrate", "waypost.yaml"]) == 0
    capsys.readouterr()
    os.utime(project / ".waypost" / "waypost.db", (time.time() + 3600, time.time() + 3600))

    status, rows = examine(capsys)

    assert (status, rows["clock"]["status"]) == (0, "warning")
    assert "the clock was set back" in rows["clock"]["message"]


def test_the_clock_of_a_database_server_is_compared(
    project: Path, capsys: Captured, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "waypost.yaml").write_text(json.dumps({"server": {"port": 0}, "store": {"url": postgres_url}}))
    status, rows = examine(capsys)
    assert status == 0
    assert rows["store"]["status"] == "warning"
    assert "at step 0" in rows["store"]["message"]
    assert rows["clock"]["status"] == "ok"

    monkeypatch.setattr(doctor, "MAX_CLOCK_SKEW_S", -1.0)
    assert examine(capsys)[1]["clock"]["fix"] == "synchronise both clocks with NTP"


@pytest.mark.parametrize(
    ("auth", "status", "message"),
    [
        ({"anonymous": False}, "warning", "neither keys nor OAuth"),
        ({"keys": [{"id": "ci", "hash": f"sha256:{'0' * 64}"}]}, "ok", "1 key in the configuration"),
        ({"keys": [{"id": "ci", "hash": f"sha256:{'0' * 64}", "expires": "2020-01-01T00:00:00Z"}]}, "warning",
         "expired: ci"),
    ],
)  # fmt: skip
def test_keys_are_checked(auth: dict[str, Any], status: str, message: str, project: Path, capsys: Captured) -> None:
    (project / "waypost.yaml").write_text(json.dumps({"auth": auth}))

    _, rows = examine(capsys)

    assert rows["keys"]["status"] == status
    assert message in rows["keys"]["message"]


def test_permissions_and_contents_of_the_data_directory_are_checked(
    project: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = project / ".waypost"
    data.mkdir()
    (data / "secret").write_bytes(b"short")
    (data / "secret").chmod(0o644)
    monkeypatch.setattr(doctor, "MIN_FREE_BYTES", 1 << 80)

    status, rows = examine(capsys)

    assert status == 1
    assert rows["rights"]["fix"] == f"chmod 600 {data / 'secret'}"
    assert "too short" in rows["secret"]["message"]
    assert rows["disk"]["status"] == "broken"

    monkeypatch.setattr(os, "access", lambda *_: False)
    assert examine(capsys)[1]["data"]["status"] == "broken"
    assert examine(capsys, "--data", str(project / "server.py"))[1]["data"]["fix"].startswith("move it away")


def test_an_old_python_sqlite_or_dependency_is_broken(
    project: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: "0.1" if name == "msgspec" else real(name))
    monkeypatch.setattr(metadata, "requires", lambda _: ["msgspec>=0.21,<1", "no-such-package>=1", 'x>1; extra == "y"'])
    monkeypatch.setattr(sqlite, "LIBRARY_VERSION", "3.51.2")
    monkeypatch.setattr(doctor, "FIRST_PYTHON", (4, 0))

    status, rows = examine(capsys)

    assert status == 1
    assert rows["dependencies"]["message"] == "msgspec 0.1 is older than 0.21, no-such-package is missing"
    assert rows["sqlite"]["fix"] == "pip install --upgrade apsw"
    assert rows["python"]["status"] == "broken"
