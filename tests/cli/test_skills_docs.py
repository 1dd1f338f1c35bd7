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


def said(capsys: Captured, *arguments: str) -> str:
    """What a command prints that ends well."""
    assert main([*DOCS, *arguments]) == 0
    return str(capsys.readouterr().out)


def test_a_file_is_published_shown_listed_and_removed(capsys: Captured, tmp_path: Path) -> None:
    file = tmp_path / "email.md"
    file.write_text("# Grüße\n\nBy email.")
    assert said(capsys, "add", "resend/email", str(file)) == (
        "The skill resend/email is published at iii://resend/email.\n"
    )
    assert said(capsys, "show", "resend/email") == "# Grüße\n\nBy email.\n"
    head, *rows = said(capsys, "list").splitlines()
    assert head.split() == ["ID", "BYTES", "OWNER", "STATE", "REGISTERED"]
    assert all(re.search(r"  \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d$", row) for row in rows)
    assert [row.split()[:3] for row in rows] == [["mail", "17", "worker:mailer"], ["resend/email", "20", "operator"]]
    assert said(capsys, "remove", "resend/email") == "The skill resend/email is removed.\n"
    assert len(said(capsys, "list").splitlines()) == 2


def test_everything_comes_as_json_too(capsys: Captured, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# A")
    assert main([*DOCS, "add", "a", str(tmp_path / "a.md"), "--json"]) == 0
    assert printed_json(capsys).keys() == {"id", "registered_at"}
    assert main([*DOCS, "show", "a", "--json"]) == 0
    assert printed_json(capsys) == {"id": "a", "skill": "# A"}
    assert main([*DOCS, "list", "--json"]) == 0
    assert [one["id"] for one in printed_json(capsys)] == ["a", "mail"]
    assert main([*DOCS, "remove", "a", "--json"]) == 0
    assert printed_json(capsys) == {"id": "a", "removed": True}


def test_a_text_may_come_from_standard_input(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("# In\n"))
    said(capsys, "add", "in", "-")
    assert said(capsys, "show", "in") == "# In\n"
    said(capsys, "remove", "in")


def test_links_that_lead_nowhere_are_warned_of(capsys: Captured, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("See iii://nowhere and iii://mail.")
    assert main([*DOCS, "add", "a", str(tmp_path / "a.md")]) == 0
    assert capsys.readouterr().err == "warning: iii://nowhere: no skill is registered under this id yet\n"
    said(capsys, "remove", "a")


def test_a_refusal_is_one_sentence(capsys: Captured, tmp_path: Path) -> None:
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
