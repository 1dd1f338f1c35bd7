"""`waypost skills docs`: the markdown skills of a running hub."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

from tests.cli.operated import Captured, complaint, printed_json
from tests.cli.published import mailer as mailer
from waypost.cli import main

pytestmark = pytest.mark.usefixtures("mailer")

DOCS = ["skills", "docs"]


def output_of(capsys: Captured, *arguments: str) -> str:
    """The output of a successful command."""
    assert main([*DOCS, *arguments]) == 0
    return str(capsys.readouterr().out)


def test_a_file_is_published_shown_listed_and_removed(capsys: Captured, tmp_path: Path) -> None:
    file = tmp_path / "email.md"
    file.write_text("# Grüße\n\nBy email.")
    assert output_of(capsys, "add", "resend/email", str(file)) == (
        "The skill resend/email is published at iii://resend/email.\n"
    )
    assert output_of(capsys, "show", "resend/email") == "# Grüße\n\nBy email.\n"
    head, *rows = output_of(capsys, "list").splitlines()
    assert head.split() == ["ID", "BYTES", "OWNER", "STATE", "REGISTERED"]
    assert all(re.search(r"  \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d$", row) for row in rows)
    assert [row.split()[:3] for row in rows] == [["mail", "17", "worker:mailer"], ["resend/email", "20", "operator"]]
    assert output_of(capsys, "remove", "resend/email") == "The skill resend/email is removed.\n"
    assert len(output_of(capsys, "list").splitlines()) == 2


def test_every_command_prints_json(capsys: Captured, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# A")
    assert main([*DOCS, "add", "a", str(tmp_path / "a.md"), "--json"]) == 0
    assert printed_json(capsys).keys() == {"id", "registered_at"}
    assert main([*DOCS, "show", "a", "--json"]) == 0
    assert printed_json(capsys) == {"id": "a", "skill": "# A"}
    assert main([*DOCS, "list", "--json"]) == 0
    assert [one["id"] for one in printed_json(capsys)] == ["a", "mail"]
    assert main([*DOCS, "remove", "a", "--json"]) == 0
    assert printed_json(capsys) == {"id": "a", "removed": True}


def test_a_text_may_be_read_from_standard_input(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("# In\n"))
    output_of(capsys, "add", "in", "-")
    assert output_of(capsys, "show", "in") == "# In\n"
    output_of(capsys, "remove", "in")


def test_dead_links_are_warnings(capsys: Captured, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("See iii://nowhere and iii://mail.")
    assert main([*DOCS, "add", "a", str(tmp_path / "a.md")]) == 0
    assert capsys.readouterr().err == "warning: iii://nowhere: no skill is registered under this id yet\n"
    output_of(capsys, "remove", "a")


def test_a_refusal_is_a_one_line_error(capsys: Captured, tmp_path: Path) -> None:
    assert main([*DOCS, "show", "mial"]) == 1
    assert complaint(capsys) == 'waypost: Skill not found: mial; did you mean "mail"?'
    assert main([*DOCS, "remove", "nothing"]) == 1
    assert complaint(capsys) == "waypost: Skill not found: nothing"
    assert main([*DOCS, "add", "a", str(tmp_path / "missing.md")]) == 1
    assert complaint(capsys).endswith("missing.md cannot be read: No such file or directory.")
    (tmp_path / "latin.md").write_bytes(b"\xff\xfe")
    assert main([*DOCS, "add", "a", str(tmp_path / "latin.md")]) == 1
    assert complaint(capsys).endswith("latin.md is not UTF-8 text.")
    (tmp_path / "empty.md").write_text("")
    assert main([*DOCS, "add", "a", str(tmp_path / "empty.md")]) == 1
    assert complaint(capsys) == "waypost: skill must be non-empty"
    (tmp_path / "a.md").write_text("# A")
    assert main([*DOCS, "add", "Not An Id", str(tmp_path / "a.md")]) == 1
    assert complaint(capsys).startswith("waypost: invalid id")
