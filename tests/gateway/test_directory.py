"""The directory follows the registry, one change at a time."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from tests.gateway.conftest import RELEASE, office
from tests.protocol.conftest import until
from waypost import Hub
from waypost.capabilities import registry
from waypost.capabilities.capability import Capability, Kind, Metadata, Priority
from waypost.capabilities.registry import Table
from waypost.capabilities.tools import expand
from waypost.config.models import Workflow
from waypost.gateway.directory import Directory, Item, Lookup
from waypost.kinds import convert
from waypost.search.documents import Document
from waypost.search.index import SearchIndex
from waypost.wire.definitions import PromptDefinition, ToolDefinition


class Counting(SearchIndex):
    """An index that records its changes."""

    def __init__(self) -> None:
        super().__init__("weighted")
        self.done: list[str] = []
        self.looked_at: list[str] = []
        self.settle: Callable[[], object] = lambda: None

    def add(self, document: Document) -> None:
        """Add a document."""
        self.done.append(f"+{document.id}")
        super().add(document)

    def remove(self, id: str) -> bool:
        """Remove a document."""
        self.done.append(f"-{id}")
        return super().remove(id)

    def since(self) -> list[str]:
        """The changes since the last call, after the index was brought up to date."""
        self.settle()
        done, self.done = self.done, []
        return done


def everyone(item: Item) -> bool:
    return True


def directory_of(hub: Hub) -> tuple[Directory, Counting]:
    def model(name: str) -> Workflow | None:
        found = hub.workflows.engine.library.get(name)
        return None if found is None else found.model

    index = Counting()

    def leaves_out(row: Capability) -> bool:
        index.looked_at.append(row.id)
        return row.id.startswith("workflow.")

    directory = Directory(hub.registry, model, index, leaves_out)
    index.settle = lambda: directory.search("", None, 1, None)
    return directory, index


def indexed(directory: Directory) -> int:
    """The number of documents in the index."""
    directory.search("", None, 1, None)
    return len(directory.index)


def ids(directory: Directory, allowed: Callable[[Item], bool] = everyone) -> list[str]:
    return [item.id for item in directory.page(None, allowed)[0]]


def flow(**more: Any) -> Workflow:
    return convert({**RELEASE, **more}, Workflow)


def hub_with(*names: str) -> Hub:
    hub = Hub("d", version="1")
    for name in names:
        hub.tool(name=name, description=f"Tool {name}")(lambda: "x")
    return hub


def test_the_first_read_indexes_every_row_and_the_next_one_none() -> None:
    directory, index = directory_of(office(surface="full"))

    everything = ids(directory)
    assert sorted(index.since()) == sorted(f"+{id}" for id in everything)
    assert directory.search("", None, 100, None)[1]
    assert directory.get("mail.send") is not None
    assert index.since() == []


def test_the_next_search_includes_a_change_without_a_rebuild() -> None:
    hub = hub_with(*(f"t{number}" for number in range(50)))
    directory, index = directory_of(hub)
    assert len(directory.search("", None, 100, None)[1]) == 50
    index.since()

    hub.tool(name="newcomer")(lambda: "x")
    assert [item.id for _, item in directory.search("newcomer", None, 10, None)[1]] == ["newcomer"]
    assert index.since() == ["+newcomer"]
    hub.remove("t7")
    assert directory.get("t7") is None
    assert index.since() == ["-t7"]


def test_a_change_reads_only_the_changed_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = hub_with(*(f"t{number}" for number in range(300)))
    directory, index = directory_of(hub)
    ids(directory)
    index.looked_at.clear()

    def walked(table: Table) -> Any:
        raise AssertionError("the whole table was walked through")

    monkeypatch.setattr(Table, "__iter__", walked)
    hub.tool(name="newcomer")(lambda: "x")
    hub.remove("t7")
    row = hub.registry.tool("t8")
    hub.registry.replace([row], [replace(row, metadata=Metadata(tags=("new",)))])
    assert directory.get("newcomer") is not None
    assert directory.get("t7") is None
    found = directory.get("t8")
    assert found is not None
    assert found.tags == ("new",)
    assert sorted(index.looked_at) == ["newcomer", "t8"]


def test_after_more_changes_than_are_remembered_all_rows_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "REMEMBERED", 3)
    hub = hub_with("a", "b")
    directory, index = directory_of(hub)
    assert ids(directory) == ["a", "b"]
    index.since()
    for number in range(20):
        hub.tool(name=f"c{number:02}")(lambda: "x")
    hub.remove("a")
    assert ids(directory) == ["b", *(f"c{number:02}" for number in range(20))]
    assert "+b" not in index.since()


def test_a_replaced_tool_is_found_by_its_new_description() -> None:
    hub = hub_with("a", "b")
    directory, index = directory_of(hub)
    ids(directory)
    index.since()

    (old,) = (row for row in hub.registry[Kind.TOOL] if row.id == "a")
    hub.registry.replace([old], expand(old, description="Sing a song"))
    assert [item.id for _, item in directory.search("song", None, 10, None)[1]] == ["a"]
    assert index.since() == ["-a", "+a"]


def test_changes_of_prompts_and_documents_are_followed_too() -> None:
    hub = hub_with("a")
    directory, _ = directory_of(hub)
    assert ids(directory) == ["a"]
    hub.prompt(name="greet")(lambda: "x")
    hub.resource("docs://x", name="x", mime_type="text/markdown")(lambda: "# x")
    assert ids(directory) == ["a", "docs://x", "prompt:greet"]


def test_a_changed_workflow_is_found_by_its_new_description() -> None:
    hub = hub_with()
    hub.workflows.define({"release": flow()})
    directory, _ = directory_of(hub)
    assert ids(directory) == ["release"]
    hub.workflows.define({"release": flow(description="Bake a cake")})
    assert [item.id for _, item in directory.search("cake", None, 10, None)[1]] == ["release"]
    hub.workflows.define({})
    assert ids(directory) == []


@pytest.mark.parametrize("name", ["release", "zebra"])
@pytest.mark.parametrize("first", ["tool", "workflow", "together"])
def test_a_workflow_takes_its_name_from_a_tool_in_any_order_of_registration(name: str, first: str) -> None:
    hub = hub_with()
    directory, _ = directory_of(hub)

    def look(when: str) -> None:
        if first == when:
            ids(directory)

    if first == "workflow":
        hub.workflows.add(name, flow())
        look("workflow")
    hub.tool(name=name)(lambda: "x")
    look("tool")
    if first != "workflow":
        hub.workflows.add(name, flow())

    assert ids(directory) == sorted([name, f"capability:{name}"])
    workflow, tool = directory.get(name), directory.get(f"capability:{name}")
    assert workflow is not None
    assert tool is not None
    assert (workflow.kind, tool.kind) == ("workflow", "capability")
    assert tool.link["args"]["input"] == {"capability": name}
    assert indexed(directory) == 2


def test_a_tool_gets_its_plain_id_back_when_the_workflow_is_removed() -> None:
    hub = hub_with("release", "other")
    hub.workflows.define({"release": flow()})
    directory, _ = directory_of(hub)
    assert ids(directory) == ["capability:release", "other", "release"]
    hub.workflows.define({})
    assert ids(directory) == ["other", "release"]
    found = directory.get("release")
    assert found is not None
    assert found.kind == "capability"
    hub.remove("release")
    assert ids(directory) == ["other"]
    assert indexed(directory) == 1


CLASHING = {
    "hub's prompt": "deploy",
    "worker's tool": "prompt:deploy",
    "hub's tool": "capability:prompt:deploy",
    "hub's other tool": "prompt:prompt:deploy",
}


def clashing(one: str) -> Capability:
    """A row that claims the id `prompt:deploy` or the id that a clashing row gets instead."""
    name = CLASHING[one]
    if one == "hub's prompt":
        definition = PromptDefinition(name)
        return Capability(kind=Kind.PROMPT, id=name, definition=definition, handler=print, is_async=False)
    tool = Capability(kind=Kind.TOOL, id=name, definition=ToolDefinition(name), handler=print, is_async=False)
    return replace(tool, priority=Priority.WORKER) if one == "worker's tool" else tool


@pytest.mark.parametrize("looks", [True, False], ids=["looked at in between", "looked at later"])
@pytest.mark.parametrize("order", list(itertools.permutations(CLASHING)))
def test_the_owner_of_an_id_does_not_depend_on_the_order_of_registration(order: Sequence[str], looks: bool) -> None:
    hub = Hub("hub", "1")
    directory, _ = directory_of(hub)
    rows = {one: clashing(one) for one in order}

    def seen() -> dict[str, str]:
        return {
            item.id: next(one for one, row in rows.items() if row is item.row)
            for item in directory.page(None, everyone)[0]
        }

    for one in order:
        hub.registry.add([rows[one]])
        if looks:
            seen()
    assert seen()["prompt:deploy"] == "hub's prompt"
    assert sorted(seen().values()) == sorted(CLASHING)
    hub.registry.remove([rows["hub's prompt"]])
    assert seen()["prompt:deploy"] == "worker's tool"
    for one in order:
        if one != "hub's prompt":
            hub.registry.remove([rows[one]])
    assert (seen(), indexed(directory)) == ({}, 0)


def test_pages_counts_and_suggestions_contain_only_allowed_items() -> None:
    directory, _ = directory_of(hub_with("mail.send", "mail.sent", "mail.read"))

    def allowed(item: Item) -> bool:
        return item.id != "mail.send"

    assert ids(directory, allowed) == ["mail.read", "mail.sent"]
    assert directory.counts(allowed) == {"kind": {"capability": 2}, "category": {"none": 2}}
    assert directory.find_nearest("mail.send", everyone)[0] == "mail.send"
    assert directory.find_nearest("mail.send", allowed) == ["mail.sent", "mail.read"]


def test_a_page_continues_after_an_id_that_was_removed() -> None:
    directory, _ = directory_of(hub_with("a", "c"))
    assert [item.id for item in directory.page("b", everyone)[0]] == ["c"]
    assert directory.page("z", everyone) == ([], None)


@pytest.mark.anyio
async def test_new_rows_are_indexed_in_the_background_and_only_once() -> None:
    directory, index = directory_of(hub_with(*(f"t{number:03}" for number in range(120))))
    ids(directory)
    assert index.done == []

    directory.index_later()
    directory.index_later()
    for _ in range(20):
        await asyncio.sleep(0)

    assert sorted(index.done) == [f"+t{number:03}" for number in range(120)]


@pytest.mark.anyio
async def test_changes_after_a_search_are_indexed_before_the_next_one() -> None:
    hub = hub_with("a", "b")
    directory, index = directory_of(hub)
    lookup = Lookup(directory, hub.guard, lambda: ())
    await lookup.search("a", None, 10, None)
    assert index.done == ["+a", "+b"]

    hub.tool(name="newcomer")(lambda: "x")
    hub.remove("a")
    await until(lambda: "+newcomer" in index.done)
    assert index.done[2:] == ["-a", "+newcomer"]

    lookup.close()
    hub.remove("b")
    await asyncio.sleep(0.05)
    assert index.done[4:] == []


def test_an_item_that_is_gone_is_not_found_while_it_is_still_in_the_index() -> None:
    hub = hub_with("a", "b")
    directory, index = directory_of(hub)
    directory.search("", None, 10, None)
    view = directory.view(everyone)
    list(view.update())
    hub.remove("a")
    assert directory.get("a") is None
    assert "a" in index

    assert [item.id for _, item in directory.search("", None, 10, view)[1]] == ["b"]
    late = directory.view(everyone)
    list(late.update())
    assert [item.id for _, item in directory.search("", None, 10, late)[1]] == ["b"]
