from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tests.config.conftest import Folder
from waypost.config import examine
from waypost.config.files import MAX_FILE_BYTES, TAIL_BYTES, FileState, Snapshot, read_file


def file(content: str) -> FileState:
    return FileState(mode=0o100644, content=content.encode())


def test_a_file_is_read_once_and_parsed_from_the_snapshot(folder: Folder) -> None:
    path = folder.write("waypost.yaml", "include: ['team/*.yaml']\n")
    first = folder.write("team/a.yaml", "server: {name: first}\n")
    snapshot = Snapshot()
    before, _ = examine(path, {}, snapshot)
    path.write_text("")
    first.write_text("server: {name: second}\n")
    folder.write("team/b.yaml", "server: {name: third}\n")

    again, _ = examine(path, {}, snapshot)

    assert before is not None
    assert again is not None
    assert again.config == before.config
    assert again.config.server.name == "first"


def test_a_snapshot_is_current_until_a_file_changes_in_any_way(folder: Folder) -> None:
    path = folder.write("a.yaml", "first")
    snapshot = Snapshot()
    snapshot.read(path)
    assert snapshot.is_current()

    status = path.stat()
    path.write_text("other")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert not snapshot.is_current()

    path.write_text("first")
    assert not snapshot.is_current()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert snapshot.is_current()

    path.unlink()
    assert not snapshot.is_current()


def test_a_snapshot_is_out_of_date_when_a_missing_file_or_another_match_appears(folder: Folder) -> None:
    missing, matching = Snapshot(), Snapshot()
    missing.read(folder.path / "a.yaml")
    matching.find("*.yaml", str(folder.path))
    assert missing.is_current()
    assert matching.is_current()

    folder.write("a.yaml", "")

    assert not missing.is_current()
    assert not matching.is_current()


def test_a_missing_include_is_part_of_the_snapshot(folder: Folder) -> None:
    path = folder.write("waypost.yaml", "include: [more.yaml]\n")
    snapshot = Snapshot()
    examine(path, {}, snapshot)
    assert snapshot.is_current()
    folder.write("more.yaml", "")
    assert not snapshot.is_current()


def test_toolkits_and_documents_are_part_of_the_snapshot(folder: Folder) -> None:
    tools = folder.write("tools.py", "")
    document = folder.write("api.json", "{}")
    connection = "connections: {api: {kind: rest, baseUrl: 'http://localhost', openapi: api.json}}\n"
    loaded = folder.load(f"toolkits: [./tools.py]\n{connection}")
    for path in (tools, document):
        assert loaded.snapshot.is_current()
        path.write_text("1")
        assert not loaded.snapshot.is_current()
        loaded.snapshot.files[path] = read_file(path)


def test_the_content_ends_one_byte_over_the_limit(folder: Folder) -> None:
    state = read_file(folder.write("a.yaml", b"x" * (MAX_FILE_BYTES + 10)))
    assert len(state.content) == MAX_FILE_BYTES + 1
    assert state.size == MAX_FILE_BYTES + 10


def test_a_path_without_content_says_why(folder: Folder) -> None:
    link = folder.path / "link"
    link.symlink_to("gone")
    assert read_file(link).error == read_file(folder.path / "gone").error == errno.ENOENT
    assert read_file(Path("a\0b")).error == errno.EINVAL
    assert not read_file(folder.path).is_readable
    assert not read_file(link).is_readable


@pytest.mark.parametrize(
    ("text", "is_blank"),
    [
        ("", True),
        (" \n\t\n", True),
        ("# a\n  # b\n", True),
        ("\ufeff---\n...\n", True),
        ("{}\n", False),
        ("a: 1\n", False),
        ("- a\n", False),
    ],
)
def test_a_file_of_white_space_comments_and_markers_is_blank(text: str, is_blank: bool) -> None:
    assert file(text).is_blank is is_blank


def test_a_file_that_cannot_be_read_is_not_blank() -> None:
    assert not FileState(error=errno.EACCES).is_blank


BEFORE = "first: 1\nsecond: 2\nthird: 3\n" + "# padding\n" * 10 + "last: 4\n"


@pytest.mark.parametrize(
    ("text", "is_beginning", "is_cut_short"),
    [
        (BEFORE, False, False),
        (BEFORE[:9], True, True),
        (BEFORE[:12], True, True),
        ("other: 1\n", False, True),
        ("other: 1", True, True),
        ("first: 1\n...\n", False, False),
        (BEFORE.replace("second: 2\n", ""), False, False),
        (BEFORE + "more: 5\n", False, False),
        (BEFORE + "more: 5", True, True),
        ("other: 1\n" * 30, False, False),
    ],
    ids=[
        "same",
        "whole lines",
        "half a line",
        "other",
        "half of another",
        "marked",
        "middle",
        "added",
        "half",
        "longer",
    ],
)
def test_an_incomplete_file_is_recognised_by_its_end(text: str, is_beginning: bool, is_cut_short: bool) -> None:
    before, after = file(BEFORE), file(text)
    assert after.is_beginning_of(before) is is_beginning
    assert after.is_cut_short(before) is is_cut_short


def test_the_first_part_of_a_repetitive_file_is_a_beginning() -> None:
    before = file("- a\n" * TAIL_BYTES)
    assert file("- a\n" * (TAIL_BYTES - 1)).is_beginning_of(before)


def test_an_empty_file_cannot_be_cut_short() -> None:
    assert not file("a: 1").is_cut_short(file(""))
