"""`waypost audit`: what was decided and done, and whether the record of it is whole."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from tests.cli.operated import AGENT, Captured, operated, printed_json, use
from tests.cli.operated import served as served
from tests.cli.shell import Serving, waypost
from waypost.cli import main


def test_entries_are_shown_the_newest_last(served: Serving, capsys: Captured) -> None:
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
    assert head.split() == ["TIME", "PRINCIPAL", "CALLER", "CAPABILITY", "DECISION", "OUTCOME", "REASON"]
    assert row.split(maxsplit=6)[1:6] == ["agent", "mcp", "shell", "deny", "denied"]


def test_more_entries_than_a_page_holds_are_fetched_page_by_page(
    served: Serving, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waypost.cli.client.PAGE_SIZE", 2)
    for _ in range(4):
        use(served.url, "add", {"a": 1, "b": 2}, AGENT)
    assert main(["audit", "tail", "--limit", "5", "--json"]) == 0
    numbers = [entry["number"] for entry in printed_json(capsys)]
    assert numbers == list(range(numbers[0], numbers[0] + 5))


def test_an_audit_that_is_whole_is_told(served: Serving, capsys: Captured) -> None:
    use(served.url, "add", {"a": 1, "b": 2}, AGENT)
    assert main(["audit", "verify", "--json"]) == 0
    verdict = printed_json(capsys)
    assert (verdict["chains"], verdict["problems"]) == (1, [])
    assert main(["audit", "verify"]) == 0
    assert capsys.readouterr().out == f"The audit is intact: {verdict['entries']} entries in 1 chains.\n"


def test_an_audit_that_was_changed_ends_with_1(tmp_path: Path) -> None:
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
