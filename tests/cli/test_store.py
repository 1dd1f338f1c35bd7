"""`waypost store`: maintenance of the store of a hub, on every kind of target."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import apsw
import pytest

from tests.cli.operated import Captured, complaint, printed
from tests.cli.stored import LOOKING, change, fill
from tests.cli.stored import file as file
from tests.postgres import postgres_server as postgres_server
from tests.postgres import postgres_url as postgres_url
from tests.postgres import run_sql
from waypost.cli import main
from waypost.stores import schema

LATEST = schema.LATEST


# Which store it is


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["waypost.yaml"],
        ["server.py:hub"],
        ["deskpackage.server:hub"],
        ["--data", ".waypost"],
        ["--url", "sqlite:///waypost.db"],
        ["--url", "sqlite:///../.waypost/waypost.db?synchronous=NORMAL", "--data", "deskpackage"],
    ],
    ids=lambda arguments: " ".join(arguments) or "nothing",
)
def test_the_store_is_that_of(arguments: list[str], file: Path, capsys: Captured) -> None:
    assert main(["store", "check", *arguments]) == 0
    assert "waypost.db: ok (1 instance, 2 tasks, 1 session)\n" in printed(capsys)


@pytest.mark.parametrize(
    ("options", "env"), [(["--data", "chosen"], "ignored"), ([], "chosen")], ids=["the option", "the environment"]
)
def test_the_data_directory_is_set_by(
    options: list[str], env: str, project: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setenv("WAYPOST_DATA", env)

    assert main(["store", "migrate", *options]) == 0

    assert printed(capsys).startswith(f"{project}/chosen/waypost.db: ")
    assert (project / "chosen" / "waypost.db").exists()


def test_the_configuration_names_the_store(project: Path, capsys: Captured) -> None:
    with (project / "waypost.yaml").open("a") as config:
        config.write("store: {url: 'sqlite:///other.db'}\n")

    assert main(["store", "migrate"]) == 0
    assert printed(capsys).startswith(f"{project}/.waypost/other.db: ")


def test_a_hub_in_python_names_its_own_store(project: Path, capsys: Captured) -> None:
    (project / "own.py").write_text(
        "from waypost import Hub\nhub = Hub('own', version='1', store='sqlite:///own.db')\n"
    )

    assert main(["store", "migrate", "own.py:hub"]) == 0
    assert printed(capsys).startswith(f"{project}/.waypost/own.db: ")


def test_a_broken_toolkit_does_not_matter(file: Path, project: Path, capsys: Captured) -> None:
    (project / "tools.py").write_text("1 / 0\n")

    assert main(["store", "check"]) == 0
    assert "ok" in printed(capsys)


@pytest.mark.parametrize("arguments", LOOKING, ids=lambda arguments: arguments[0])
def test_a_missing_store_is_not_created_by_reading_commands(
    arguments: list[str], project: Path, capsys: Captured
) -> None:
    assert main(["store", *arguments]) == 1

    assert complaint(capsys).startswith(f"waypost: The store {project}/.waypost/waypost.db does not exist yet; ")
    assert not (project / ".waypost").exists()


@pytest.mark.parametrize("arguments", [*LOOKING, ["migrate"]], ids=lambda arguments: arguments[0])
def test_a_store_in_memory_cannot_be_maintained(arguments: list[str], project: Path, capsys: Captured) -> None:
    assert main(["store", *arguments, "--url", "sqlite://"]) == 1
    assert "keeps everything in memory" in complaint(capsys)


@pytest.mark.parametrize("url", ["mysql://somebody:secret@db/x", "sqlite://waypost.db", "waypost.db"])
def test_an_invalid_store_url_is_an_error_without_secrets(url: str, project: Path, capsys: Captured) -> None:
    assert main(["store", "check", "--url", url]) == 1
    assert "secret" not in complaint(capsys)


def test_a_configuration_with_errors_is_refused(project: Path, capsys: Captured) -> None:
    (project / "waypost.yaml").write_text("stroe: {}\n")

    assert main(["store", "check"]) == 1
    assert "did you mean `store`?" in complaint(capsys)


# check


def test_the_records_are_counted_as_json(file: Path, capsys: Captured) -> None:
    assert main(["store", "check", "--json"]) == 0
    assert json.loads(printed(capsys)) == {
        "store": str(file),
        "ok": True,
        "problems": [],
        "instances": 1,
        "tasks": 2,
        "sessions": 1,
        "sqlite": apsw.sqlite_lib_version(),
        "writtenBy": apsw.sqlite_lib_version(),
    }


def test_a_check_says_which_sqlite_wrote_the_file(file: Path, capsys: Captured) -> None:
    content = file.read_bytes()
    file.write_bytes(content[:96] + (3_040_001).to_bytes(4, "big") + content[100:])

    assert main(["store", "check"]) == 0

    last = printed(capsys).splitlines()[-1]
    assert last == f"SQLite {apsw.sqlite_lib_version()}; the file was last written by 3.40.1"


def test_a_check_does_not_change_the_file(file: Path) -> None:
    before = file.read_bytes()

    assert main(["store", "check"]) == 0
    assert file.read_bytes() == before


def test_every_problem_is_one_line(file: Path, capsys: Captured) -> None:
    change(file, "DELETE FROM history", "INSERT INTO history VALUES ('gone', 1, 0, '{}')")

    assert main(["store", "check"]) == 1

    first, second, _ = printed(capsys).splitlines()
    assert first.startswith(f"{file}: Instance i is at version 1, ")
    assert second.startswith(f"{file}: There is a history of gone, ")


@pytest.mark.parametrize("content", [b"no database at all" * 100, None], ids=["another file", "a torn page"])
def test_a_damaged_file_is_a_problem(content: bytes | None, file: Path, capsys: Captured) -> None:
    file.write_bytes(content or file.read_bytes()[:8192] + b"x" * 4096 + file.read_bytes()[12288:])

    assert main(["store", "check", "--json"]) == 1

    found = json.loads(printed(capsys))
    assert found["ok"] is False
    assert found["problems"]
    assert "tasks" not in found


def test_outdated_tables_are_a_problem_and_are_not_changed(project: Path, capsys: Captured) -> None:
    (project / "empty.db").touch()

    assert main(["store", "check", "--url", "sqlite:///empty.db", "--data", "."]) == 1

    assert f"at step 0 of {LATEST}; run `waypost store migrate`" in printed(capsys)
    assert (project / "empty.db").stat().st_size == 0


def test_a_store_of_a_newer_waypost_is_a_problem(file: Path, capsys: Captured) -> None:
    change(file, "INSERT INTO migrations VALUES (999, 'from tomorrow')")

    assert main(["store", "check"]) == 1
    assert "written by a newer Waypost" in printed(capsys)


# migrate


def test_tables_are_migrated_once(project: Path, capsys: Captured) -> None:
    place = project / ".waypost" / "waypost.db"

    assert main(["store", "migrate"]) == 0
    assert printed(capsys) == f"{place}: migrated from step 0 to step {LATEST}\n"
    assert main(["store", "migrate"]) == 0
    assert printed(capsys) == f"{place}: at step {LATEST} already\n"
    assert main(["store", "migrate", "--json"]) == 0
    assert json.loads(printed(capsys)) == {"store": str(place), "from": LATEST, "to": LATEST}


def test_a_newer_store_is_not_migrated(file: Path, capsys: Captured) -> None:
    change(file, "INSERT INTO migrations VALUES (999, 'from tomorrow')")

    assert main(["store", "migrate"]) == 1
    assert "written by a newer Waypost" in complaint(capsys)


# backup


def test_a_backup_is_a_complete_store(file: Path, project: Path, capsys: Captured) -> None:
    assert main(["store", "backup", "--to", "copy.db"]) == 0
    size = (project / "copy.db").stat().st_size
    assert printed(capsys) == f"{file}: written to copy.db ({size:,} bytes)\n"
    assert stat.S_IMODE((project / "copy.db").stat().st_mode) == 0o600

    assert main(["store", "check", "--url", "sqlite:///copy.db", "--data", "."]) == 0
    assert printed(capsys).startswith(f"{project}/copy.db: ok (1 instance, 2 tasks, 1 session)\n")


def test_a_backup_is_reported_as_json(file: Path, project: Path, capsys: Captured) -> None:
    assert main(["store", "backup", "--to", "copy.db", "--json"]) == 0
    size = (project / "copy.db").stat().st_size
    assert json.loads(printed(capsys)) == {"store": str(file), "backup": "copy.db", "bytes": size}


def test_a_file_that_exists_is_not_overwritten(file: Path, project: Path, capsys: Captured) -> None:
    (project / "copy.db").write_text("mine")

    assert main(["store", "backup", "--to", "copy.db"]) == 1

    assert "copy.db cannot be written: the file exists already" in complaint(capsys)
    assert (project / "copy.db").read_text() == "mine"


def test_a_backup_into_a_missing_directory_is_an_error(file: Path, project: Path, capsys: Captured) -> None:
    assert main(["store", "backup", "--to", "nowhere/copy.db"]) == 1
    assert complaint(capsys).startswith("waypost: ")


# vacuum


def test_expired_records_are_swept_and_the_file_shrinks(project: Path, capsys: Captured) -> None:
    file = project / ".waypost" / "waypost.db"
    fill(file, old=1500)
    before = file.stat().st_size

    assert main(["store", "vacuum", "--json"]) == 0

    answer = json.loads(printed(capsys))
    assert answer == {"store": str(file), "swept": 1500, "before": before, "after": file.stat().st_size}
    assert answer["after"] < before - 1_000_000
    assert main(["store", "vacuum"]) == 0
    assert printed(capsys) == f"{file}: swept 0 records, {answer['after']:,} bytes before, {answer['after']:,} now\n"


# On a server


def test_a_store_on_a_server_is_checked_migrated_and_vacuumed(
    postgres_url: str, project: Path, capsys: Captured
) -> None:
    url = ("--url", postgres_url)

    assert main(["store", "check", *url]) == 1
    assert f"at step 0 of {LATEST}; run `waypost store migrate`" in printed(capsys)
    assert main(["store", "migrate", *url]) == 0
    assert f": migrated from step 0 to step {LATEST}\n" in printed(capsys)
    assert main(["store", "check", *url]) == 0
    assert ": ok (0 instances, 0 tasks, 0 sessions)\n" in printed(capsys)
    assert main(["store", "vacuum", *url, "--json"]) == 0
    answer = json.loads(printed(capsys))
    assert (answer["swept"], answer["before"], answer["after"]) == (0, None, None)


def test_a_store_on_a_server_can_be_moved_to_a_file(postgres_url: str, project: Path, capsys: Captured) -> None:
    assert main(["store", "migrate", "--url", postgres_url]) == 0
    run_sql(postgres_url, "INSERT INTO sessions VALUES ('s', 1, 'p', 1e10, '{}')")
    (project / ".waypost").mkdir()
    capsys.readouterr()

    assert main(["store", "backup", "--url", postgres_url, "--to", ".waypost/waypost.db"]) == 0
    assert " bytes)" in printed(capsys)
    assert main(["store", "check"]) == 0
    assert ".waypost/waypost.db: ok (0 instances, 0 tasks, 1 session)\n" in printed(capsys)


def test_a_missing_table_is_a_problem(postgres_url: str, project: Path, capsys: Captured) -> None:
    assert main(["store", "migrate", "--url", postgres_url]) == 0
    run_sql(postgres_url, "DROP TABLE jobs")
    capsys.readouterr()

    assert main(["store", "check", "--url", postgres_url]) == 1
    assert printed(capsys).endswith(": The table jobs is missing.\n")
