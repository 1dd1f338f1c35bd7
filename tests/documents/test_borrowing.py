"""Skills of folders next to registered skills."""

from __future__ import annotations

import pytest

from tests.contract.conftest import asynchronous
from tests.documents.desk import desk
from waypost.capabilities.registry import Registry
from waypost.documents.records import SourceDocument


def document(id: str, body: str) -> SourceDocument:
    """A file of a folder."""
    return SourceDocument(id, body, "folder:/docs", "skill://docs/SKILL.md")


class Folder:
    """A source whose documents a test changes."""

    def __init__(self, *documents: SourceDocument) -> None:
        self.found = list(documents)

    def documents(self) -> list[SourceDocument]:
        """The current documents."""
        return self.found


@asynchronous
async def test_skills_of_folders_are_listed_read_and_fetched() -> None:
    async with desk(sources=[Folder(document("pdf", "# PDF\n\nForms."), document("skills", "# No"))]) as it:
        await it.skill("mine", "# Mine iii://pdf")

        rows = (await it.call("skills::list"))["skills"]
        assert [(row["id"], row["owner"], row["stale"]) for row in rows] == [
            ("mine", "operator", False),
            ("pdf", "folder:/docs", False),
        ]
        assert await it.read("iii://pdf") == ("text/markdown", "# PDF\n\nForms.")
        assert "- [`pdf`](iii://pdf) — PDF — Forms.\n" in (await it.read("iii://skills"))[1]
        assert await it.call("skill::fetch", {"uri": "iii://pdf"}) == "# iii://pdf\n\n# PDF\n\nForms."
        assert '"pdf"' in await it.unread("iii://pdfs")
        assert {"uri": "iii://pdf", "name": "PDF", "mimeType": "text/markdown"} in (
            await it.call("skills::resources-list")
        )["resources"]


@asynchronous
async def test_an_operator_may_replace_a_folders_skill_but_a_worker_may_not() -> None:
    async with desk(sources=[Folder(document("pdf", "# PDF"))]) as it:
        other = {"id": "pdf", "skill": "# Other"}
        assert "belongs to folder:/docs" in await it.refusal("skills::register", other, "bob")
        assert "belongs to folder:/docs" in await it.refusal("skills::unregister", {"id": "pdf"}, "bob")

        await it.call("skills::register", other)
        assert (await it.read("iii://pdf"))[1] == "# Other"
        assert (await it.call("skills::unregister", {"id": "pdf"}))["removed"] is True
        assert (await it.read("iii://pdf"))[1] == "# PDF"
        assert (await it.call("skills::unregister", {"id": "pdf"}))["removed"] is False


@asynchronous
async def test_a_folders_skill_takes_precedence_over_an_older_one_of_a_worker(caplog: pytest.LogCaptureFixture) -> None:
    folder, registry = Folder(), Registry()
    async with desk(sources=[folder], registry=registry) as it:
        await it.content.refresh()
        it.connected.add("bob")
        await it.call("skills::register", {"id": "pdf", "skill": "# Bob's"}, "bob")
        assert registry.resource("iii://pdf").id == "iii://pdf"

        folder.found = [document("pdf", "# PDF")]
        await it.content.refresh()
        assert (await it.read("iii://pdf"))[1] == "# PDF"
        assert [row["owner"] for row in (await it.call("skills::list"))["skills"]] == ["folder:/docs"]
        assert registry.resource("iii://pdf").id == "iii://{skill_id}"
        assert "belongs to folder:/docs" in await it.refusal("skills::register", {"id": "pdf", "skill": "# 2"}, "bob")
        answer = [line for line in caplog.messages if "is left out" in line]
        assert answer == ["skills: pdf is left out while a folder of the hub has another of that name"]

        folder.found = []
        await it.content.refresh()
        assert (await it.read("iii://pdf"))[1] == "# Bob's"
        assert registry.resource("iii://pdf").id == "iii://pdf"


@asynchronous
async def test_a_worker_may_unregister_a_shadowed_skill_without_a_notification() -> None:
    folder = Folder()
    async with desk(sources=[folder], registry=Registry()) as it:
        await it.content.refresh()
        it.connected.add("bob")
        await it.call("skills::register", {"id": "pdf", "skill": "# Bob's"}, "bob")
        folder.found = [document("pdf", "# PDF")]
        await it.content.refresh()
        it.changes.clear()

        assert "belongs to" in await it.refusal("skills::unregister", {"id": "pdf"}, "eve")
        assert (await it.call("skills::unregister", {"id": "pdf"}, "bob"))["removed"] is True
        assert (await it.read("iii://pdf"))[1] == "# PDF"
        assert it.changes == []


@asynchronous
async def test_changes_of_folders_are_announced_after_a_refresh() -> None:
    folder, registry = Folder(document("pdf", "# PDF")), Registry()
    async with desk(sources=[folder], registry=registry) as it:
        await it.content.refresh()
        await it.content.refresh()
        assert it.changes == []

        folder.found = [document("pdf", "# New"), document("more", "# More")]
        await it.content.refresh()
        assert sorted(it.changes) == [("skills", "register", "more"), ("skills", "register", "pdf")]
        assert sorted(it.updates) == ["iii://more", "iii://pdf", "iii://skills"]
        folder.found = []
        await it.content.refresh()
        assert sorted(it.changes[2:]) == [("skills", "unregister", "more"), ("skills", "unregister", "pdf")]


@asynchronous
async def test_skills_of_folders_are_not_added_as_resources_again() -> None:
    registry = Registry()
    async with desk(sources=[Folder(document("pdf", "# PDF"))], registry=registry) as it:
        await it.content.refresh()

        assert registry.resource("iii://pdf").id == "iii://{skill_id}"


@asynchronous
async def test_a_folders_skill_is_suggested_again_when_its_replacement_is_removed() -> None:
    async with desk(sources=[Folder(document("again", "# Again"))]) as it:
        assert '"again"' in await it.unread("iii://agian")
        await it.skill("again", "# Over")
        await it.call("skills::unregister", {"id": "again"})
        assert await it.unread("iii://agian") == 'Skill not found: agian; did you mean "again"?'
