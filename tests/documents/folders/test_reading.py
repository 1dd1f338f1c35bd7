"""A folder is read without following links; what cannot be served is reported by name, the rest is served."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from tests.documents.folders.library import put, skill, text
from waypost.documents import folder_files, folder_skills
from waypost.documents.folder_files import Problem
from waypost.documents.folder_skills import SkillFolder, mime_type, read_skill_folder, text_of


def problems_by_path(seen: SkillFolder, folder: Path) -> dict[str, str]:
    """The problems by their relative path."""
    return {os.path.relpath(one.path, folder): one.message for one in seen.problems}


def uris(seen: SkillFolder) -> list[str]:
    return [one.uri for one in seen.skills.values()]


def test_every_directory_with_a_skill_file_is_a_skill(tmp_path: Path) -> None:
    skill(tmp_path, "pdf", {"references/FORMS.md": "# Forms\n", "scripts/fill.py": "print()\n"})
    skill(tmp_path, "office/word")
    skill(tmp_path, "office/word/deep/mail-merge")
    put(tmp_path / "README.md", "no skill")
    seen = read_skill_folder(tmp_path)
    assert uris(seen) == [
        "skill://office/word/SKILL.md",
        "skill://office/word/deep/mail-merge/SKILL.md",
        "skill://pdf/SKILL.md",
    ]
    assert seen.problems == ()


def test_the_manifest_has_every_file_with_the_digest_and_size_of_its_bytes(tmp_path: Path) -> None:
    blob = b"\x00\xff" * 10
    skill(tmp_path, "pdf", {"a b.bin": blob, "nested/SKILL.md": text("nested"), "empty.txt": ""})
    entry = read_skill_folder(tmp_path).skills[("pdf",)].entry()
    main = (tmp_path / "pdf" / "SKILL.md").read_bytes()
    assert [(one.uri, one.size) for one in entry.resources] == [
        ("skill://pdf/SKILL.md", len(main)),
        ("skill://pdf/a%20b.bin", 20),
        ("skill://pdf/empty.txt", 0),
        ("skill://pdf/nested/SKILL.md", len(text("nested"))),
    ]
    assert entry.resources[0].digest == f"sha256:{hashlib.sha256(main).hexdigest()}"
    assert entry.resources[1].digest == f"sha256:{hashlib.sha256(blob).hexdigest()}"


def test_a_folder_that_is_a_skill_itself_is_served_under_its_name(tmp_path: Path) -> None:
    skill(tmp_path, "pdf", {"nested/SKILL.md": text("nested")})
    assert uris(read_skill_folder(tmp_path / "pdf")) == ["skill://pdf/SKILL.md", "skill://pdf/nested/SKILL.md"]


def test_links_are_refused_by_name(tmp_path: Path) -> None:
    put(tmp_path / "secret.txt", "secret")
    folder = tmp_path / "knowledge"
    home = skill(folder, "pdf", {"real.txt": "x"})
    (home / "out.txt").symlink_to(tmp_path / "secret.txt")
    (home / "in.txt").symlink_to("real.txt")
    (folder / "linked").symlink_to(home)
    put(folder / "other" / "real.md", text("other"))
    (folder / "other" / "SKILL.md").symlink_to("real.md")
    seen = read_skill_folder(folder)
    reason = "is a link and not served; put the file itself there"
    assert problems_by_path(seen, folder) == dict.fromkeys(
        ("linked", "other/SKILL.md", "pdf/in.txt", "pdf/out.txt"), reason
    )
    assert sorted(seen.skills[("pdf",)].files) == [("SKILL.md",), ("real.txt",)]
    assert list(seen.skills) == [("pdf",)]


def test_a_file_that_becomes_a_link_before_it_is_read_is_not_followed(tmp_path: Path) -> None:
    put(tmp_path / "secret.txt", "secret")
    folder = tmp_path / "knowledge"
    home = skill(folder, "pdf", {"a.txt": "x", "inner/b.txt": "y"})
    found = folder_files.list_folder(folder)
    (home / "a.txt").unlink()
    (home / "a.txt").symlink_to(tmp_path / "secret.txt")
    (home / "inner").rename(home / "moved")
    (home / "inner").symlink_to(tmp_path)
    put(tmp_path / "b.txt", "secret")
    problems: list[Problem] = []
    contents = folder_files.read_files(folder, found, sorted(found.files), {}, problems)
    assert list(contents) == [("pdf", "SKILL.md")]
    assert [one.message for one in problems] == ["is a link and not served; put the file itself there"] * 2


def test_hidden_and_special_files_and_bad_names_are_refused_by_name(tmp_path: Path) -> None:
    home = skill(tmp_path, "pdf", {".env": "x", ".git/config": "x", "back\\slash": "x", "new\nline": "x"})
    os.mkfifo(home / "pipe")
    seen = read_skill_folder(tmp_path)
    assert problems_by_path(seen, tmp_path) == {
        "pdf/.env": "is hidden and not served",
        "pdf/.git": "is hidden and not served",
        "pdf/back\\slash": "has a name that cannot stand in a URI; use letters, digits, `-`, `_` and `.`",
        "pdf/new\\nline": "has a name that cannot stand in a URI; use letters, digits, `-`, `_` and `.`",
        "pdf/pipe": "is not a regular file",
    }
    assert list(seen.skills[("pdf",)].files) == [("SKILL.md",)]


def test_a_skill_with_bad_front_matter_is_refused_and_the_others_are_served(tmp_path: Path) -> None:
    skill(tmp_path, "good")
    put(tmp_path / "good" / "broken" / "SKILL.md", "nothing")
    put(tmp_path / "renamed" / "SKILL.md", text("original"))
    seen = read_skill_folder(tmp_path)
    assert uris(seen) == ["skill://good/SKILL.md"]
    assert list(problems_by_path(seen, tmp_path)) == ["good/broken/SKILL.md", "renamed/SKILL.md"]
    assert ("broken", "SKILL.md") in seen.skills[("good",)].files


def test_files_and_skills_have_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_skills, "MAX_SKILL_FILES", 3)
    monkeypatch.setattr(folder_skills, "MAX_FILE_BYTES", 1000)
    monkeypatch.setattr(folder_files, "MAX_FILE_BYTES", 900)
    skill(tmp_path, "many", {str(number): "" for number in range(3)})
    skill(tmp_path, "most", {str(number): "" for number in range(2)})
    skill(tmp_path, "heavy", {"a": "x" * 600, "b": "x" * 600})
    skill(tmp_path, "huge", {"a": "x" * 901, "b": "x" * 10})
    seen = read_skill_folder(tmp_path)
    assert uris(seen) == ["skill://huge/SKILL.md", "skill://most/SKILL.md"]
    assert problems_by_path(seen, tmp_path) == {
        "heavy": "is larger than 0 MiB, the most a skill may have",
        "huge/a": "is larger than 0 MiB",
        "many": "holds 4 files, and a skill may have 3",
    }
    assert ("a",) not in seen.skills[("huge",)].files


def test_the_skills_of_a_folder_have_a_common_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_skills, "MAX_FOLDER_BYTES", 1000)
    skill(tmp_path, "a", {"file": "x" * 500})
    skill(tmp_path, "a/nested")
    skill(tmp_path, "b", {"file": "x" * 500})
    skill(tmp_path, "c")
    seen = read_skill_folder(tmp_path)
    assert uris(seen) == ["skill://a/SKILL.md", "skill://a/nested/SKILL.md", "skill://c/SKILL.md"]
    assert problems_by_path(seen, tmp_path) == {"b": "is left out, as the skills of a folder may have 0 MiB together"}


def test_reading_a_folder_stops_at_the_maximum_number_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_files, "MAX_ENTRIES", 10)
    for number in range(20):
        put(tmp_path / str(number) / "file", "x")
    assert problems_by_path(read_skill_folder(tmp_path), tmp_path) == {
        ".": "holds more than 10 files; not all of them are served"
    }


def test_a_missing_folder_is_a_problem(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    assert problems_by_path(read_skill_folder(missing), tmp_path) == {
        "missing": "cannot be listed: No such file or directory"
    }
    put(tmp_path / "file", "x")
    assert problems_by_path(read_skill_folder(tmp_path / "file"), tmp_path) == {
        "file": "cannot be listed: Not a directory"
    }


def test_only_changed_files_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    skill(tmp_path, "one", {"a.txt": "a"})
    home = skill(tmp_path, "two", {"b.txt": "b"})
    for path in tmp_path.rglob("*.*"):
        os.utime(path, ns=(0, 0))
    first = read_skill_folder(tmp_path)
    opened: list[tuple[str, ...]] = []
    really = folder_files._read_data

    def noted(root: Path, place: folder_files.Place) -> tuple[str, bytes | None]:
        opened.append(place)
        return really(root, place)

    monkeypatch.setattr(folder_files, "_read_data", noted)
    again = read_skill_folder(tmp_path, first)
    assert opened == []
    assert again.equals(first)
    put(home / "b.txt", "c")
    second = read_skill_folder(tmp_path, first)
    assert set(opened) == {("two", "b.txt")}
    assert second.skills[("one",)] is first.skills[("one",)]
    assert second.skills[("two",)].files[("b.txt",)].data == b"c"


def test_a_file_that_changes_right_after_it_was_read_is_read_again(tmp_path: Path) -> None:
    home = skill(tmp_path, "pdf", {"a.txt": "a"})
    first = read_skill_folder(tmp_path)
    before = os.stat(home / "a.txt")
    with (home / "a.txt").open("r+b") as file:
        file.write(b"b")
    os.utime(home / "a.txt", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert read_skill_folder(tmp_path, first).skills[("pdf",)].files[("a.txt",)].data == b"b"


@pytest.mark.parametrize(
    ("name", "data", "kind", "is_text"),
    [
        ("SKILL.md", b"# x", "text/markdown", True),
        ("run.py", b"print()", "text/x-python", True),
        ("run.sh", b"ls", "application/x-sh", True),
        ("data.json", b"{}", "application/json", True),
        ("broken.md", b"\xff", "text/markdown", False),
        ("logo.png", b"PNG", "image/png", False),
        ("logo.svg", b"<svg/>", "image/svg+xml", True),
        ("LICENSE", b"MIT", "text/plain", True),
        ("blob", b"\x00", "application/octet-stream", False),
        ("pages.tar.gz", b"\x1f\x8b\xff", "application/octet-stream", False),
    ],
)
def test_a_file_is_text_if_its_type_and_content_allow_it(name: str, data: bytes, kind: str, is_text: bool) -> None:
    assert mime_type(name, data) == kind
    assert (text_of(data, kind) is not None) == is_text
