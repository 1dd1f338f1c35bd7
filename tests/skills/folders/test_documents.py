"""Skills of folders as documents under an id."""

from __future__ import annotations

from pathlib import Path

from tests.contract.conftest import asynchronous
from tests.skills.folders.library import BODY, put, skill, text
from waypost import Hub
from waypost.skills.content.ids import LARGEST_BODY
from waypost.skills.content.ports import Source
from waypost.testing import connect
from waypost.wire.versions import V2025_11_25


def test_markdown_files_are_documents_without_their_front_matter(tmp_path: Path) -> None:
    home = skill(tmp_path, "pdf", {"references/FORMS.md": "Intro\n# Forms\n", "run.py": "pass", "plain.md": "Plain."})
    put(home / "marked.md", "---\ntags: [a]\n---\n# Marked\n")
    skill(tmp_path, "office/word")
    hub = Hub("library", "1").add_skills(tmp_path)
    found = [(one.id, one.title, one.description, one.body) for one in hub.folders.documents()]
    about = "What it does and when to use it."
    assert found == [
        ("office/word", "Title", about, "# Title\n\nWhat to do.\n"),
        ("pdf", "Title", about, "# Title\n\nWhat to do.\n"),
        ("pdf/marked", "Marked", "", "# Marked\n"),
        ("pdf/plain", "plain", "", "Plain."),
        ("pdf/references/forms", "Forms", "", "Intro\n# Forms\n"),
    ]
    source: Source = hub.folders
    assert {one.owner for one in source.documents()} == {f"folder:{tmp_path}"}


def test_what_cannot_have_an_id_is_left_out(tmp_path: Path) -> None:
    skill(tmp_path, "fn", {"a.md": "x"})
    skill(tmp_path, "skills")
    skill(tmp_path, "Office/word")
    files: dict[str, str | bytes] = {
        "a b.md": "x",
        "empty.md": "",
        "large.md": "x" * (LARGEST_BODY + 1),
        "bytes.md": b"\xff",
    }
    home = skill(tmp_path, "pdf", {**files, "A.md": "upper", "a.md": "lower", "most.md": "x" * LARGEST_BODY})
    put(home / "nested" / "SKILL.md", text("nested"))
    hub = Hub("library", "1").add_skills(tmp_path)
    found = {one.id: one.body for one in hub.folders.documents()}
    assert list(found) == ["pdf", "pdf/a", "pdf/most", "pdf/nested"]
    assert found["pdf/a"] == "upper"


@asynchronous
async def test_documents_are_fetched_by_id_and_are_what_their_files_are_now(tmp_path: Path) -> None:
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
        await client.assert_notification("resources/updated", within=20)
        assert (await client.read_resource("iii://pdf/references/forms")).text == "# New forms\n"
    await hub.stop()
