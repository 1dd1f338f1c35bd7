"""Skills of folders as documents under an id."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.conftest import asynchronous
from tests.documents.folders.library import BODY, put, skill, text
from waypost import Hub
from waypost.documents.records import Source
from waypost.documents.uris import MAX_BODY_BYTES
from waypost.runtime.assembly import check
from waypost.testing import connect
from waypost.wire.versions import V2025_11_25


def test_markdown_files_are_documents_without_their_front_matter(tmp_path: Path) -> None:
    home = skill(tmp_path, "pdf", {"references/FORMS.md": "Intro\n# Forms\n", "run.py": "pass", "plain.md": "Plain."})
    put(home / "marked.md", "---\ntags: [a]\n---\n# Marked\n")
    skill(tmp_path, "office/word")
    hub = Hub("library", "1").add_skills(tmp_path)
    found = [(one.id, one.body) for one in hub.folders.documents()]
    assert found == [
        ("office/word", "# Title\n\nWhat to do.\n"),
        ("pdf", "# Title\n\nWhat to do.\n"),
        ("pdf/marked", "# Marked\n"),
        ("pdf/plain", "Plain."),
        ("pdf/references/forms", "Intro\n# Forms\n"),
    ]
    source: Source = hub.folders
    assert {one.owner for one in source.documents()} == {f"folder:{tmp_path}"}


def test_ids_are_lowercase_and_file_extensions_are_case_insensitive(tmp_path: Path) -> None:
    home = skill(tmp_path, "Office/word", {"Notes.MD": "# Notes\n", "logo.png": b"x"})
    put(home / "nested" / "SKILL.md", text("nested"))
    put(home / "nested" / "a.Md", "x")
    hub = Hub("library", "1").add_skills(tmp_path)
    uris = {one.id: one.uri for one in hub.folders.documents()}
    assert uris == {
        "office/word": "skill://Office/word/SKILL.md",
        "office/word/notes": "skill://Office/word/Notes.MD",
        "office/word/nested": "skill://Office/word/nested/SKILL.md",
        "office/word/nested/a": "skill://Office/word/nested/a.Md",
    }
    assert hub.folders.document_uri("skill://Office/word/Notes.MD") == "iii://office/word/notes"
    assert hub.folders.document_uri("skill://Office/word/logo.png") is None
    assert hub.folders.problems == ()


def library_with_gaps(folder: Path) -> list[str]:
    """Write skills with files that cannot have an id, and return the expected message for each."""
    skill(folder, "fn", {"a.md": "x"})
    skill(folder, "skills")
    put(folder / "bare" / "SKILL.md", text("bare", body=""))
    put(folder / "huge" / "SKILL.md", text("huge", body="x" * (MAX_BODY_BYTES + 1)))
    files: dict[str, str | bytes] = {"a b.md": "x", "bytes.md": b"\xff", "A.md": "upper", "a.md": "lower"}
    skill(folder, "pdf", {**files, "most.md": "x" * MAX_BODY_BYTES})
    reserved = 'id may not have "fn" as its first segment (reserved as the iii://fn/ section-URI marker)'
    said = {
        "bare/SKILL.md": "iii://bare: skill must be non-empty",
        "fn/SKILL.md": f'iii://fn: {reserved}: "fn"',
        "fn/a.md": f'iii://fn/a: {reserved}: "fn/a"',
        "huge/SKILL.md": "iii://huge: skill body too large (262145 bytes; max 262144)",
        "pdf/a b.md": 'iii://pdf/a b: invalid id (segment 2 of "pdf/a b"): segment may only contain lowercase ASCII '
        "letters, digits, '-' and '_': \"a b\"",
        "pdf/a.md": "iii://pdf/a: skill://pdf/A.md is read there",
        "pdf/bytes.md": "iii://pdf/bytes: it is not UTF-8 text",
        "skills/SKILL.md": 'iii://skills: id may not be "skills", because iii://skills is the index of all skills',
    }
    return [f"{folder}/{file} is not read at {reason}" for file, reason in said.items()]


def test_a_file_that_cannot_have_an_id_is_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    said = [f"{one}." for one in library_with_gaps(tmp_path)]
    hub = Hub("library", "1").add_skills(tmp_path)
    assert (hub.folders.problems, caplog.messages) == ((), [])
    found = {one.id: one.body for one in hub.folders.documents()}
    assert list(found) == ["pdf", "pdf/a", "pdf/most"]
    assert found["pdf/a"] == "upper"
    assert [str(one) for one in hub.folders.problems] == said
    skill(tmp_path, "more")
    hub.add_skills(tmp_path)
    assert "more" in [one.id for one in hub.folders.documents()]
    assert caplog.messages == said


@pytest.mark.parametrize(
    ("workers", "tells"), [("workers: {}\n", True), ("", False), ("workers: {registry: false}\n", False)]
)
def test_check_reports_files_without_an_id_only_if_the_hub_serves_documents(
    tmp_path: Path, workers: str, tells: bool
) -> None:
    said = library_with_gaps(tmp_path / "knowledge")
    (tmp_path / "waypost.yaml").write_text(f"skills: {{folders: [knowledge]}}\n{workers}")
    found = [one.message for one in check(tmp_path / "waypost.yaml") if one.code == "CFG080"]
    assert found == (said if tells else [])


@asynchronous
async def test_documents_are_fetched_by_id_with_the_current_content_of_their_files(tmp_path: Path) -> None:
    home = skill(tmp_path, "pdf", {"references/FORMS.md": "# Forms\n"})
    hub = Hub("library", "1", workers={"port": 0}).add_skills(tmp_path)
    async with connect(hub, V2025_11_25) as client:
        index = (await client.read_resource("iii://skills")).text
        assert "[`pdf`](iii://pdf) — Title" in index
        assert "[`pdf/references/forms`](iii://pdf/references/forms) — Forms" in index
        assert (await client.read_resource("iii://pdf")).text == BODY
        fetched = await client.call_tool("skill__fetch", {"uris": ["iii://pdf", "iii://pdf/references/forms"]})
        assert fetched.text == f"# iii://pdf\n\n{BODY.rstrip()}\n\n---\n\n# iii://pdf/references/forms\n\n# Forms"
        await client.subscribe("skill://pdf/references/FORMS.md")
        put(home / "references" / "FORMS.md", "# New forms\n")
        await client.assert_notification("resources/updated", within=60)
        assert (await client.read_resource("iii://pdf/references/forms")).text == "# New forms\n"
    await hub.stop()
