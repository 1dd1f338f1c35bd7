"""Hidden documents are in no index, list, search or suggestion; denied ones are listed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.contract.conftest import asynchronous
from tests.documents.folders.library import put, skill, text
from tests.worker.engine import failure, settled, working
from tests.workers.wire import at_work, hub_for_workers
from waypost import Hub, RemoteError
from waypost.capabilities.context import DetachedCaller
from waypost.capabilities.principals import FROM_OUTSIDE, Principal
from waypost.policy import Rule
from waypost.testing import TestClient, connect
from waypost.wire.content import TextContents
from waypost.wire.versions import V2025_11_25
from waypost.worker import Worker

PATIENCE = 60.0
ADA, EVE = Principal("ada"), Principal("eve")
HIDDEN = Rule(name="hidden", type="mcp_restriction", config={"tool_pattern": "finance"}, hide=True)
DENIED = Rule(name="denied", type="mcp_restriction", config={"tool_pattern": "finance"})
FROM_EVE = Rule(
    name="from-eve",
    type="permission_override",
    config={"permission": "*"},
    principals=("eve", "worker:eve"),
    capabilities=("*finance*",),
    hide=True,
)
ALL = """\
- [`finance`](iii://finance) — Finance — Money.
  - [`finance/tax`](iii://finance/tax) — Tax
- [`sales`](iii://sales) — Sales
"""
NOTHING_HIDDEN = ["iii://finance", "iii://finance/tax", "iii://sales", "iii://skills"]


@asynccontextmanager
async def published(*rules: Rule, **options: Any) -> AsyncIterator[tuple[Hub, TestClient, Worker]]:
    """A hub with three skills and two prompts of a worker, and a client of it."""
    hub = hub_for_workers(policies=rules, **options)
    async with at_work(hub) as client, working(hub, "books") as worker:
        await worker.publish_skill("finance", "# Finance\n\nMoney.")
        await worker.publish_skill("finance/tax", "# Tax")
        await worker.publish_skill("sales", "# Sales")
        worker.register_function("books::write", lambda: "Write.")
        for name in ("finance-report", "sales-report"):
            await worker.publish_prompt(name, "Write a report.", function_id="books::write")
        yield hub, client, worker


async def index(hub: Hub, who: Principal) -> str:
    """The index that a principal reads, without its heading."""
    (read,) = await hub.core.pipeline.read("iii://skills", DetachedCaller(who, FROM_OUTSIDE))
    assert isinstance(read, TextContents)
    return read.text.partition("detail.\n\n")[2]


async def everything(client: TestClient) -> list[str]:
    """The lists and the index that a client gets, as text."""
    answers = [
        await client.list_resources(),
        await client.list_prompts(),
        (await client.read_resource("iii://skills")).text,
        (await client.call_tool("skill__fetch", {"uri": "iii://skills"})).text,
    ]
    return [str(answer) for answer in answers]


@asynchronous
async def test_hidden_documents_are_in_no_list_of_a_client() -> None:
    async with published(HIDDEN) as (_, client, _worker):
        assert [one["uri"] for one in await client.list_resources()] == ["iii://sales", "iii://skills"]
        assert [one["name"] for one in await client.list_prompts()] == ["sales-report"]
        assert "finance" not in str(await everything(client))
        assert (await client.read_resource("iii://skills")).text.endswith("\n\n- [`sales`](iii://sales) — Sales\n")


@asynchronous
async def test_denied_documents_are_listed_but_cannot_be_read() -> None:
    async with published(DENIED) as (_, client, _worker):
        assert [one["uri"] for one in await client.list_resources()] == NOTHING_HIDDEN
        assert (await client.read_resource("iii://skills")).text.endswith(ALL)
        for attempt in (
            client.read_resource("iii://finance"),
            client.call_tool("skill__fetch", {"uris": ["iii://sales", "iii://finance/tax"]}),
            client.get_prompt("finance-report"),
        ):
            with pytest.raises(RemoteError, match="blocked by pattern 'finance'"):
                await attempt


@asynchronous
async def test_a_principal_reads_an_index_without_hidden_documents() -> None:
    async with published(FROM_EVE) as (hub, client, _worker):
        assert await index(hub, ADA) == ALL
        assert await index(hub, EVE) == "- [`sales`](iii://sales) — Sales\n"
        assert (await client.read_resource("iii://skills")).text.endswith(ALL)
        hub.guard.policy.replace([])
        assert await index(hub, EVE) == ALL


@asynchronous
async def test_fetching_hides_the_same_documents_as_reading() -> None:
    async with published(FROM_EVE) as (hub, _client, _worker):
        for who, sees in ((ADA, True), (EVE, False)):
            caller = DetachedCaller(who, FROM_OUTSIDE)
            fetched = await hub.runtime.invoke("skill__fetch", {"uri": "iii://skills"}, caller)
            assert ("finance" in fetched.text) is sees
        for uri in ("iii://finance", "iii://nothing"):
            caller = DetachedCaller(EVE, FROM_OUTSIDE)
            fetched = await hub.core.pipeline.call("skill__fetch", {"uri": uri}, caller)
            assert fetched.text == f"Skill not found: {uri.removeprefix('iii://')}"


@asynchronous
async def test_an_index_with_only_hidden_documents_is_empty() -> None:
    rule = Rule(name="few", type="allow_list", config={"allow": ["iii://skills"]}, callers=("mcp",), hide=True)
    async with published(rule) as (_hub, client, _worker):
        assert (await client.read_resource("iii://skills")).text.endswith("_No skills are currently registered._\n")
        assert [one["uri"] for one in await client.list_resources()] == ["iii://skills"]
        assert await client.list_resource_templates() == []


@asynchronous
async def test_hidden_documents_are_not_suggested() -> None:
    async with published(HIDDEN) as (_, client, worker):
        with pytest.raises(RemoteError) as caught:
            await client.read_resource("iii://finanse")
        assert str(caught.value).endswith("(Skill not found: finanse)")
        assert '"finance"' in (await failure(worker.trigger("skill::fetch", {"uri": "iii://finanse"}))).message
        with pytest.raises(RemoteError, match=r'^Unknown prompt: sales-reprt; did you mean "sales-report"\?$'):
            await client.get_prompt("sales-reprt")
        with pytest.raises(RemoteError) as caught:
            await client.get_prompt("finance-reprt")
        assert "finance-report" not in str(caught.value)


@asynchronous
async def test_the_gateway_neither_lists_nor_finds_hidden_documents() -> None:
    hub = hub_for_workers(policies=[HIDDEN])
    hub.runtime.gateway.offer()
    async with at_work(hub) as client, working(hub, "books") as worker:
        await worker.publish_skill("finance", "# Finance\n\nInvoices.")
        await worker.publish_skill("sales", "# Sales\n\nInvoices.")

        async def look_for_sales() -> str:
            home = await client.call_tool("gateway.home", {})
            found = await client.call_tool("gateway.search", {"query": "invoices", "kind": "document"})
            return str((home.structured, found.structured))

        seen = await look_for_sales()
        assert ("iii://finance" in seen, seen.count("iii://sales") > 1) == (False, True)
        hub.guard.policy.replace([])
        assert (await look_for_sales()).count("iii://finance") > 1


@asynchronous
async def test_workers_list_only_documents_that_are_not_hidden_from_them() -> None:
    async with published(FROM_EVE) as (hub, _client, books), working(hub, "eve") as eve:

        async def seen_by(worker: Worker) -> list[list[str]]:
            skills = (await worker.trigger("skills::list"))["skills"]
            resources = (await worker.trigger("skills::resources-list"))["resources"]
            prompts = (await worker.trigger("prompts::list"))["prompts"]
            offered = (await worker.trigger("prompts::mcp-list"))["prompts"]
            return [
                [one["id"] for one in skills],
                [one["uri"] for one in resources],
                [one["name"] for one in prompts],
                [one["name"] for one in offered],
            ]

        prompts = ["finance-report", "sales-report"]
        assert await seen_by(books) == [
            ["finance", "finance/tax", "sales"],
            sorted(NOTHING_HIDDEN, key=lambda uri: uri != "iii://skills"),
            prompts,
            prompts,
        ]
        assert await seen_by(eve) == [["sales"], ["iii://skills", "iii://sales"], prompts[1:], prompts[1:]]
        assert "finance" not in await eve.trigger("skill::fetch", {"uri": "iii://skills"})
        read = (await eve.trigger("skills::resources-read", {"uri": "iii://skills"}))["contents"][0]["text"]
        assert "finance" not in read


@asynchronous
async def test_a_worker_cannot_get_a_prompt_or_read_a_skill_that_is_denied_to_it() -> None:
    async with published(FROM_EVE) as (hub, _client, books), working(hub, "eve") as eve:
        for function, given in (
            ("prompts::mcp-get", {"name": "finance-report"}),
            ("skills::resources-read", {"uri": "iii://finance"}),
            ("skill::fetch", {"uri": "iii://finance"}),
        ):
            hidden = await failure(eve.trigger(function, given))
            other = {key: value.replace("finance", "nothing") for key, value in given.items()}
            absent = await failure(eve.trigger(function, other))
            assert hidden.message.partition(";")[0].replace("finance", "nothing") == absent.message.partition(";")[0]
            assert hidden.code == absent.code == "invocation_failed"
            await books.trigger(function, given)
        assert await eve.trigger("prompts::mcp-get", {"name": "sales-report"})


@asynchronous
async def test_a_rule_about_clients_hides_nothing_from_workers() -> None:
    async with published(HIDDEN) as (_hub, _client, books):
        assert len((await books.trigger("skills::list"))["skills"]) == 3
        assert await books.trigger("skill::fetch", {"uri": "iii://finance/tax"}) == "# iii://finance/tax\n\n# Tax"


@asynchronous
async def test_a_worker_gets_no_trigger_for_hidden_documents() -> None:
    async with published(FROM_EVE) as (hub, _client, books), working(hub, "eve") as eve:
        heard: asyncio.Queue[Any] = asyncio.Queue()
        for kind in ("skills", "prompts"):
            eve.register_function(f"eve::{kind}", heard.put_nowait)
            eve.register_trigger(f"{kind}::on-change", f"eve::{kind}")
        await settled(eve)
        await books.trigger("skills::unregister", {"id": "finance"})
        await books.trigger("prompts::unregister", {"name": "finance-report"})
        await books.publish_skill("finance", "# New")
        await books.trigger("skills::unregister", {"id": "sales"})

        assert await heard.get() == {"op": "unregister", "id": "sales"}


@asynchronous
async def test_an_operator_sees_hidden_documents() -> None:
    everyone = Rule(name="all", type="permission_override", config={"permission": "*"}, hide=True)
    async with published(FROM_EVE) as (hub, _client, _books):
        hub.guard.policy.replace([everyone])
        assert [one["id"] for one in (await hub.documents.skills.list())["skills"]] == [
            "finance",
            "finance/tax",
            "sales",
        ]
        assert (await hub.documents.skills.render("iii://finance")).text == "# Finance\n\nMoney."


def of_folder(pattern: str, *, hide: bool) -> Rule:
    return Rule(name="closed", type="mcp_restriction", config={"tool_pattern": pattern}, hide=hide)


@pytest.mark.parametrize("pattern", ["skill://closed/", "iii://closed"])
@asynchronous
async def test_a_rule_about_a_file_of_a_folder_applies_to_both_of_its_uris(tmp_path: Path, pattern: str) -> None:
    skill(tmp_path, "open")
    skill(tmp_path, "closed", {"more.md": "# More"})
    hub = hub_for_workers(policies=[of_folder(pattern, hide=True)]).add_skills(tmp_path)
    async with at_work(hub) as client:
        text = (await client.read_resource("iii://skills")).text
        assert ("iii://open" in text, "iii://closed" in text) == (True, False)
        for uri in ("iii://closed", "iii://closed/more"):
            missing = f"Skill not found: {uri.removeprefix('iii://')}"
            with pytest.raises(RemoteError) as refused:
                await client.read_resource(uri)
            assert str(refused.value) == f"Resource not found: {uri} ({missing})"
            assert (await client.call_tool("skill__fetch", {"uri": uri})).text == missing
        assert (await client.call_tool("skill__fetch", {"uri": "iii://open"})).text.startswith("# iii://open")
        hub.guard.policy.replace([of_folder(pattern, hide=False)])
        assert "iii://closed/more" in (await client.read_resource("iii://skills")).text


@asynchronous
async def test_a_single_file_of_a_folders_skill_can_be_hidden(tmp_path: Path) -> None:
    skill(tmp_path, "pdf", {"internal.md": "# Internal", "forms.md": "# Forms"})
    hub = hub_for_workers(policies=[of_folder("skill://pdf/internal.md", hide=True)]).add_skills(tmp_path)
    async with at_work(hub) as client:
        text = (await client.read_resource("iii://skills")).text
        assert ("iii://pdf/forms" in text, "iii://pdf/internal" in text) == (True, False)


@asynchronous
async def test_checking_access_to_a_uri_uses_no_slot_of_the_caller(tmp_path: Path) -> None:
    skill(tmp_path, "pdf")
    hub = hub_for_workers(max_running=1, policies=[DENIED]).add_skills(tmp_path)
    async with at_work(hub) as client:
        for _ in range(2):
            reading = (client.read_resource("iii://pdf"), client.call_tool("skill__fetch", {"uri": "iii://pdf"}))
            read, fetched = await asyncio.gather(*reading)
            assert fetched.text == f"# iii://pdf\n\n{read.text.rstrip()}"


@asynchronous
async def test_clients_get_no_notification_about_a_document_with_a_hidden_file(tmp_path: Path) -> None:
    closed, _ = skill(tmp_path, "closed"), skill(tmp_path, "open")
    hub = hub_for_workers(policies=[of_folder("skill://closed/", hide=True)]).add_skills(tmp_path)
    hidden, seen = "iii://closed", "iii://open"
    try:
        async with connect(hub, V2025_11_25) as session, connect(hub) as client:
            await session.subscribe(hidden)
            await session.subscribe(seen)
            async with client.listen(resourceSubscriptions=[hidden, seen]):
                for change in ("# New", "# Newer"):
                    put(closed / "SKILL.md", text("closed", body=change))
                    put(tmp_path / "open" / "SKILL.md", text("open", body=change))
                    for one in (session, client):
                        await one.assert_notification("resources/updated", within=PATIENCE, uri=seen)
                (closed / "SKILL.md").unlink()
                put(tmp_path / "open" / "SKILL.md", text("open", body="# Last"))
                for one in (session, client):
                    await one.assert_notification("resources/updated", within=PATIENCE, uri=seen)
                    await one.refute_notification("resources/updated", uri=hidden)
                hub.guard.policy.replace([])
                skill(tmp_path, "closed")
                for one in (session, client):
                    await one.assert_notification("resources/updated", within=PATIENCE, uri=hidden)
    finally:
        await hub.stop()


@asynchronous
async def test_a_worker_gets_no_trigger_for_a_document_with_a_hidden_file(tmp_path: Path) -> None:
    rule = msgspec.structs.replace(FROM_EVE, capabilities=("skill://closed/*",))
    hub = hub_for_workers(policies=[rule]).add_skills(tmp_path)
    async with at_work(hub), working(hub, "eve") as eve:
        heard: asyncio.Queue[Any] = asyncio.Queue()
        eve.register_function("eve::skills", heard.put_nowait)
        eve.register_trigger("skills::on-change", "eve::skills")
        await settled(eve)
        skill(tmp_path, "closed")
        skill(tmp_path, "open")
        assert await heard.get() == {"op": "register", "id": "open"}
        assert heard.empty()
