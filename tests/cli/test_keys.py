"""`waypost keys`: making, listing and revoking keys of a running hub."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.cli.operated import AGENT, Captured, complaint, note_of, operated, printed_json, use
from tests.cli.operated import served as served
from tests.cli.shell import Serving, waypost
from waypost.cli import main
from waypost.cli.keys import parse_expiry

pytestmark = pytest.mark.usefixtures("served")

NUMBERS = {"a": 1, "b": 2}


def test_a_new_key_is_shown_once_and_is_accepted(served: Serving, capsys: Captured) -> None:
    assert main(["keys", "create", "--id", "ci", "--role", "agent", "--permission", "deploy", "--json"]) == 0
    made = printed_json(capsys)
    assert made.keys() == {"id", "key"}
    assert use(served.url, "add", NUMBERS, made["key"]) == 200

    assert main(["keys", "list", "--json"]) == 0
    listed = {key["id"]: key for key in printed_json(capsys)}
    assert (listed["ci"]["roles"], listed["ci"]["permissions"]) == (["agent"], ["deploy"])
    assert made["key"] not in json.dumps(listed)


def test_without_json_only_the_key_goes_to_stdout(served: Serving, capsys: Captured) -> None:
    assert main(["keys", "create", "--id", "plain", "--expires", "30d"]) == 0
    said = capsys.readouterr()
    assert use(served.url, "add", NUMBERS, said.out.strip()) == 200
    assert said.err == "Store it now: it is not shown again.\n"


def test_a_revoked_key_is_refused_with_the_next_call(served: Serving, capsys: Captured) -> None:
    assert main(["keys", "create", "--id", "short", "--json"]) == 0
    key = printed_json(capsys)["key"]
    assert use(served.url, "add", NUMBERS, key) == 200
    assert main(["keys", "revoke", "short"]) == 0
    assert capsys.readouterr().out == "The key of short is revoked.\n"
    assert use(served.url, "add", NUMBERS, key) == 401
    assert main(["keys", "revoke", "short"]) == 1
    assert complaint(capsys) == "waypost: There is no key for short that could be revoked."


def test_keys_are_listed_as_a_table(capsys: Captured) -> None:
    assert main(["keys", "list"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["ID", "STATUS", "SOURCE", "ROLES", "PERMISSIONS", "SCOPES", "EXPIRES"]
    assert ["agent", "good", "configuration", "agent", "never"] in [row.split() for row in rows]


def test_a_refusal_of_the_hub_is_a_one_line_error(capsys: Captured) -> None:
    for arguments, part in (
        (["--id", "agent"], "in the configuration already"),
        (["--id", "late", "--expires", "2001-01-01"], "in the past"),
    ):
        assert main(["keys", "create", *arguments]) == 1
        assert part in complaint(capsys)


@pytest.mark.parametrize("name", ["", "a b", "-", "ü", "a\n", "a" * 129])
def test_an_invalid_id_of_a_key_is_wrong_usage(name: str, capsys: Captured) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["keys", "create", f"--id={name}"])

    assert ended.value.code == 2
    assert "is not an id; use up to 128 letters, digits and . _ @ : + -" in complaint(capsys)


@pytest.mark.parametrize("option", ["--role", "--permission", "--scope"])
def test_an_empty_role_or_permission_is_wrong_usage(option: str, capsys: Captured) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["keys", "create", "--id", "ci", option, ""])
    assert ended.value.code == 2
    assert f"argument {option}: '' is not a name; use 1 to 128 characters" in complaint(capsys)


def test_keys_and_revocations_survive_a_restart(tmp_path: Path) -> None:
    def command(*arguments: str) -> subprocess.CompletedProcess[str]:
        return waypost("keys", *arguments, cwd=tmp_path)

    with operated(tmp_path) as hub:
        kept, gone = (json.loads(command("create", "--id", name, "--json").stdout)["key"] for name in ("kept", "gone"))
        assert command("revoke", "gone").returncode == 0
        assert (use(hub.url, "add", NUMBERS, kept), use(hub.url, "add", NUMBERS, gone)) == (200, 401)
    with operated(tmp_path) as hub:
        assert (use(hub.url, "add", NUMBERS, kept), use(hub.url, "add", NUMBERS, gone)) == (200, 401)


def test_a_key_is_in_no_file_and_no_log_of_the_hub(tmp_path: Path) -> None:
    with operated(tmp_path) as hub:
        own = note_of(tmp_path)["key"]
        made = json.loads(waypost("keys", "create", "--id", "ci", "--json", cwd=tmp_path).stdout)["key"]
        assert use(hub.url, "add", NUMBERS, made) == 200
        assert use(hub.url, "shell", {"command": made}, AGENT) == 200
        assert waypost("audit", "verify", cwd=tmp_path).returncode == 0
        files = [file for file in (tmp_path / ".waypost").rglob("*") if file.is_file()]
        assert [file.name for file in files if own.encode() in file.read_bytes()] == ["hub.json"]
        assert [file for file in files if made.encode() in file.read_bytes()] == []
        lines = "\n".join(hub.lines)
    assert made not in lines
    assert own not in lines


@pytest.mark.parametrize(
    ("text", "span"), [("90m", timedelta(minutes=90)), ("12h", timedelta(hours=12)), ("2w", timedelta(weeks=2))]
)
def test_a_time_span_counts_from_now(text: str, span: timedelta) -> None:
    assert abs(parse_expiry(text) - datetime.now(UTC) - span) < timedelta(seconds=60)


def test_a_date_without_a_zone_is_in_utc() -> None:
    assert parse_expiry("2030-01-01") == datetime(2030, 1, 1, tzinfo=UTC)
    assert parse_expiry("2030-01-01T10:00:00+02:00") == datetime(2030, 1, 1, 8, tzinfo=UTC)


@pytest.mark.parametrize("text", ["", "soon", "0d", "-1d", "30", "30y", "99999999d"])
def test_an_invalid_expiry_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=re.escape(repr(text))):
        parse_expiry(text)
