"""The checked file is the one that is read and written, even if files and folders are swapped in between."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.skills.workbench import ECHO
from waypost.skills import files
from waypost.skills.files import SkillRefused, make_source, read_source, replace_file

SECRET = "PASSWORD = 'hunter2'\n"


@pytest.fixture
def skills(tmp_path: Path) -> Path:
    """A skills directory, and a secret file outside of it."""
    inner = tmp_path / "skills" / "a" / "b"
    inner.mkdir(parents=True)
    (inner / "echo.py").write_text(ECHO)
    outside = tmp_path / "outside" / "b"
    outside.mkdir(parents=True)
    (outside / "echo.py").write_text(SECRET)
    return tmp_path / "skills"


def by_link(path: Path, target: Path) -> None:
    """Replace a path by a link."""
    path.rename(path.with_name("moved away"))
    path.symlink_to(target)


SWAPS: dict[str, Callable[[Path], None]] = {
    "the file": lambda skills: by_link(skills / "a" / "b" / "echo.py", skills.parent / "outside" / "b" / "echo.py"),
    "its folder": lambda skills: by_link(skills / "a" / "b", skills.parent / "outside" / "b"),
    "the folder above": lambda skills: by_link(skills / "a", skills.parent / "outside"),
    "the whole directory": lambda skills: by_link(skills, skills.parent / "outside"),
    "its folder, relatively": lambda skills: by_link(skills / "a" / "b", Path("../../outside/b")),
    "the file, by one that leads inside": lambda skills: by_link(skills / "a" / "b" / "echo.py", Path("moved away")),
}


def once_checked(monkeypatch: pytest.MonkeyPatch, what: Callable[[], None], checks: int = 1) -> None:
    """Run a function right after the check that a file is inside."""
    genuine, made = files.resolve_path, []

    def located(directory: Path, file: str) -> Path:
        path = genuine(directory, file)
        made.append(path)
        if len(made) == checks:
            what()
        return path

    monkeypatch.setattr(files, "resolve_path", located)


@pytest.mark.parametrize("swap", SWAPS.values(), ids=SWAPS)
def test_a_link_that_appears_after_the_check_is_not_followed(
    skills: Path, monkeypatch: pytest.MonkeyPatch, swap: Callable[[Path], None]
) -> None:
    once_checked(monkeypatch, lambda: swap(skills))
    with pytest.raises(SkillRefused) as refused:
        read_source(skills, "a/b/echo.py")

    assert refused.value.code == "path_traversal"
    assert refused.value.message == "'a/b/echo.py' does not lie inside the skills directory."


def test_a_link_that_appears_while_the_folders_are_opened_is_not_followed(
    skills: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    genuine = os.open

    def swapping(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if path == "echo.py":
            SWAPS["the file"](skills)
        return genuine(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", swapping)
    with pytest.raises(SkillRefused, match="does not lie inside the skills directory"):
        read_source(skills, "a/b/echo.py")


def test_a_folder_that_is_swapped_while_it_is_open_is_read_unchanged(
    skills: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    genuine = os.open

    def swapping(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if path == "echo.py":
            SWAPS["the folder above"](skills)
        return genuine(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", swapping)
    assert read_source(skills, "a/b/echo.py").text == ECHO


@pytest.mark.parametrize("checks", [1, 2])
@pytest.mark.parametrize("swap", ["its folder", "the folder above"])
def test_nothing_is_written_through_a_link_that_appears_after_the_check(
    skills: Path, monkeypatch: pytest.MonkeyPatch, swap: str, checks: int
) -> None:
    once_checked(monkeypatch, lambda: SWAPS[swap](skills), checks)
    with (
        pytest.raises(SkillRefused, match="does not lie inside the skills directory"),
        replace_file(skills, make_source("echo", "a/b/echo.py", "changed")),
    ):
        pytest.fail("it was written")

    outside = skills.parent / "outside" / "b"
    assert (outside / "echo.py").read_text() == SECRET
    assert os.listdir(outside) == ["echo.py"]


def test_a_file_is_restored_in_its_original_folder_even_if_that_was_swapped(skills: Path) -> None:
    with (
        pytest.raises(ZeroDivisionError),
        replace_file(skills, make_source("echo", "a/b/echo.py", "changed")),
    ):
        SWAPS["the folder above"](skills)
        raise ZeroDivisionError

    assert (skills / "moved away" / "b" / "echo.py").read_text() == ECHO
    assert (skills.parent / "outside" / "b" / "echo.py").read_text() == SECRET


def test_links_that_stay_inside_are_followed(skills: Path) -> None:
    (skills / "other.py").symlink_to(skills / "a" / "b" / "echo.py")
    (skills / "short").symlink_to("a/b")

    assert read_source(skills, "other.py") == make_source("other", "other.py", ECHO)
    assert read_source(skills, "short/echo.py") == make_source("echo", "short/echo.py", ECHO)


def test_a_skills_directory_may_be_a_link_itself(skills: Path) -> None:
    link = skills.parent / "link"
    link.symlink_to(skills)

    assert read_source(link, "a/b/echo.py").text == ECHO


def test_a_folder_with_only_search_permission_can_be_traversed(skills: Path) -> None:
    (skills / "a").chmod(0o100)
    try:
        assert read_source(skills, "a/b/echo.py").text == ECHO
    finally:
        (skills / "a").chmod(0o700)


def test_a_pipe_is_refused_without_waiting(skills: Path) -> None:
    os.mkfifo(skills / "pipe.py")
    with pytest.raises(SkillRefused, match=r"^There is no file pipe\.py in the skills directory\.$"):
        read_source(skills, "pipe.py")


@pytest.mark.parametrize("file", ["a/b/echo.py/more.py", "a/b.py", "nothing/echo.py", "folder.py"])
def test_a_missing_file_is_reported_as_missing(skills: Path, file: str) -> None:
    (skills / "folder.py").mkdir()
    with pytest.raises(SkillRefused) as refused:
        read_source(skills, file)

    assert (refused.value.code, refused.value.message) == (
        "file_not_found",
        f"There is no file {file} in the skills directory.",
    )


def test_a_file_is_written_with_its_missing_folders(skills: Path) -> None:
    with replace_file(skills, make_source("echo", "c/d/echo.py", "new")):
        pass

    assert (skills / "c" / "d" / "echo.py").read_text() == "new"
    with pytest.raises(ZeroDivisionError), replace_file(skills, make_source("other", "c/other.py", "new")):
        raise ZeroDivisionError
    assert os.listdir(skills / "c") == ["d"]
