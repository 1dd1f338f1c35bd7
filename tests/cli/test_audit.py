"""`waypost audit`: the entries of the audit, and whether they are intact."""

from __future__ import annotations

import json
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import apsw
import pytest

from tests.cli.operated import AGENT, Captured, operated, printed_json, use
from tests.cli.operated import served as served
from tests.cli.shell import PATIENCE, Serving, serving, waypost
from tests.postgres import postgres_server as postgres_server
from tests.postgres import postgres_url as postgres_url
from tests.postgres import run_sql
from waypost.cli import main


def test_entries_are_shown_with_the_newest_last(served: Serving, capsys: Captured) -> None:
    for name, arguments in (("add", {"a": 1, "b": 2}), ("shell", {"command": "s3cret"}), ("add", {"a": 1})):
        use(served.url, name, arguments, AGENT)

    assert main(["audit", "tail", "--limit", "3", "--json"]) == 0
    entries = printed_json(capsys)
    assert [(entry["capability"], entry["decision"], entry["outcome"]) for entry in entries] == [
        ("add", "allow", "ok"),
        ("shell", "deny", "denied"),
        ("add", "allow", "invalid arguments"),
    ]
    assert "s3cret" not in json.dumps(entries)

    assert main(["audit", "tail", "--decision", "deny"]) == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head.split() == ["TIME", "PRINCIPAL", "VIA", "ACTION", "CAPABILITY", "DECISION", "OUTCOME", "REASON"]
    assert row.split(maxsplit=7)[1:7] == ["agent", "mcp", "call", "shell", "deny", "denied"]


def test_more_entries_than_one_page_are_fetched_page_by_page(
    served: Serving, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waypost.cli.client.PAGE_SIZE", 2)
    for _ in range(4):
        use(served.url, "add", {"a": 1, "b": 2}, AGENT)
    assert main(["audit", "tail", "--limit", "5", "--json"]) == 0
    numbers = [entry["number"] for entry in printed_json(capsys)]
    assert numbers == list(range(numbers[0], numbers[0] + 5))


def test_an_intact_audit_is_reported(served: Serving, capsys: Captured) -> None:
    use(served.url, "add", {"a": 1, "b": 2}, AGENT)
    assert main(["audit", "verify", "--json"]) == 0
    verdict = printed_json(capsys)
    assert (verdict["chains"], verdict["problems"]) == (1, [])
    assert main(["audit", "verify"]) == 0
    assert capsys.readouterr().out == f"The audit is intact: {verdict['entries']} entries in 1 chain.\n"


def test_a_changed_audit_exits_with_1(tmp_path: Path) -> None:
    with operated(tmp_path) as hub:
        for _ in range(3):
            use(hub.url, "shell", {"command": "ls"}, AGENT)
        assert waypost("audit", "verify", cwd=tmp_path).returncode == 0
        with closing(apsw.Connection(str(tmp_path / ".waypost" / "waypost.db"))) as connection:
            [[text]] = connection.execute("SELECT entries FROM audit WHERE number = 1")
            first, second, *others = text.splitlines()
            spoilt = "\n".join([first, second.replace('"deny"', '"allow"', 1), *others])
            connection.execute("UPDATE audit SET entries = ? WHERE number = 1", (spoilt,))
        found = waypost("audit", "verify", cwd=tmp_path)
        assert found.returncode == 1
        assert found.stdout.startswith("Entry 2 of chain ")
        as_json = waypost("audit", "verify", "--json", cwd=tmp_path)
        assert as_json.returncode == 1
        assert len(json.loads(as_json.stdout)["problems"]) == 1


def test_changes_by_commands_are_shown_with_their_action_and_origin(served: Serving, capsys: Captured) -> None:
    assert main(["keys", "create", "--id", "ci"]) == 0
    assert main(["keys", "revoke", "ci"]) == 0
    capsys.readouterr()
    assert main(["audit", "tail", "--limit", "2"]) == 0
    _, *rows = capsys.readouterr().out.splitlines()
    assert [row.split()[1:7] for row in rows] == [
        ["hub", "cli", "key.created", "ci", "allow", "ok"],
        ["hub", "cli", "key.revoked", "ci", "allow", "ok"],
    ]


def test_actions_in_the_console_are_shown_with_their_origin_and_object(tmp_path: Path) -> None:
    with operated(tmp_path) as hub:
        link = hub.wait_for("sign in to the console once at ").rpartition(" ")[2]
        with urlopen(link), suppress(HTTPError):  # the link works only once
            urlopen(link)
        shown = waypost("audit", "tail", "--limit", "2", cwd=tmp_path).stdout
    assert [row.split()[1:7] for row in shown.splitlines()[1:]] == [
        ["hub", "console", "console.signed_in", "console", "allow", "ok"],
        ["anonymous", "console", "console.refused", "link", "deny", "denied"],
    ]


CONFIG = """\
version: "1"
server: {name: desk, port: 0}
store: {url: "STORE"}
workflows: {note: {initialState: a, states: {a: {terminal: true}}}}
"""


def configured(folder: Path, url: str) -> None:
    (folder / "waypost.yaml").write_text(CONFIG.replace("STORE", url))


def act(folder: Path, times: int = 3) -> None:
    """Serve a hub, create audit entries, and stop it."""
    with serving("waypost.yaml", cwd=folder) as hub:
        assert hub.url
        for number in range(times):
            made = waypost("keys", "create", "--id", f"key{number}-{hub.process.pid}", cwd=folder)
            assert made.returncode == 0, made.stderr
        assert waypost("audit", "verify", cwd=folder).returncode == 0  # while the hub runs


def delete_last(url: str, folder: Path) -> None:
    """Remove the last row, as an attacker with access to the database would."""
    last = "(chain, number) IN (SELECT chain, number FROM audit ORDER BY at DESC, number DESC LIMIT 1)"
    if url.startswith("postgresql"):
        run_sql(url, f"DELETE FROM audit WHERE {last}")
        return
    with closing(apsw.Connection(str(folder / ".waypost" / "waypost.db"))) as connection:
        connection.execute(f"DELETE FROM audit WHERE {last}")


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
def test_deleted_last_entries_are_found_without_a_hub_and_after_a_restart(
    engine: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = "sqlite:///waypost.db" if engine == "sqlite" else request.getfixturevalue("postgres_url")
    configured(tmp_path, url)
    act(tmp_path)
    whole = waypost("audit", "verify", cwd=tmp_path)
    assert (whole.returncode, whole.stdout) == (0, "The audit is intact: 4 entries in 1 chain.\n")

    delete_last(url, tmp_path)
    found = waypost("audit", "verify", "waypost.yaml", cwd=tmp_path)
    assert found.returncode == 1
    assert re.fullmatch(r"Entry 4 of chain \w+ is missing: the head of the chain names 4\.\n", found.stdout)
    act_again = waypost("audit", "verify", "--store", url, "--data", tmp_path / ".waypost", "--json", cwd=tmp_path)
    assert act_again.returncode == 1
    with serving("waypost.yaml", cwd=tmp_path) as hub:
        assert hub.url
        assert waypost("keys", "create", "--id", "later", cwd=tmp_path).returncode == 0
    again = waypost("audit", "verify", cwd=tmp_path)
    assert again.returncode == 1
    assert found.stdout in again.stdout


def test_the_audit_of_a_hub_that_was_killed_while_writing_is_intact(tmp_path: Path) -> None:
    configured(tmp_path, "sqlite:///waypost.db")
    for _ in range(4):
        with serving("waypost.yaml", cwd=tmp_path) as hub, ThreadPoolExecutor(2) as pool:
            url = hub.url
            key = json.loads((tmp_path / ".waypost" / "hub.json").read_text())["key"]
            calls = [pool.submit(use, url, "gateway.home", {}, key) for _ in range(60)]
            calls[20].result(PATIENCE)
            hub.signal(signal.SIGKILL)
            assert hub.wait() == -signal.SIGKILL
        found = waypost("audit", "verify", "--json", cwd=tmp_path)
        assert json.loads(found.stdout)["problems"] == []
        assert found.returncode == 0


def test_without_the_secret_the_audit_cannot_be_verified(tmp_path: Path) -> None:
    configured(tmp_path, "sqlite:///waypost.db")
    act(tmp_path, 1)
    secret = tmp_path / ".waypost" / "secret"
    secret.rename(tmp_path / "kept")
    found = waypost("audit", "verify", cwd=tmp_path)
    assert (found.returncode, found.stdout) == (1, "")
    assert "There is no secret in" in found.stderr
    assert not secret.exists()
    with_it = waypost("audit", "verify", cwd=tmp_path, WAYPOST_SECRET="another secret, which is long enough")
    assert with_it.returncode == 1


def test_entries_are_shown_from_the_store_if_no_hub_runs(tmp_path: Path) -> None:
    configured(tmp_path, "sqlite:///waypost.db")
    act(tmp_path, 2)
    shown = waypost("audit", "tail", "--limit", "2", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert [row.split()[1:4] for row in shown.stdout.splitlines()[1:]] == [["hub", "cli", "key.created"]] * 2
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert waypost("audit", "tail", tmp_path / "waypost.yaml", "--limit", "2", cwd=elsewhere).stdout == shown.stdout
    unknown = waypost("audit", "tail", cwd=elsewhere)
    assert (unknown.returncode, unknown.stderr.startswith("waypost: No hub is running here")) == (1, True)
