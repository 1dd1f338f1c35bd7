"""The registry in a hub: with folders, with clients that connect early, and with several hubs on one store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.documents.folders.library import BODY, put, skill, text
from tests.postgres import postgres_server as postgres_server
from tests.postgres import postgres_url as postgres_url
from tests.protocol.conftest import asynchronous
from tests.worker.engine import failure, settled, working
from tests.workers.wire import at_work, hub_for_workers
from waypost import Hub, RemoteError
from waypost.policy import Rule
from waypost.testing import connect
from waypost.wire.versions import V2025_11_25


@asynccontextmanager
async def following(hub: Hub) -> AsyncIterator[asyncio.Queue[Any]]:
    """The change triggers of skills that a worker receives."""
    async with working(hub, "follower") as worker:
        heard: asyncio.Queue[Any] = asyncio.Queue()
        worker.register_function("follower::skills", heard.put_nowait)
        worker.register_trigger("skills::on-change", "follower::skills")
        await settled(worker)
        yield heard


@asynchronous
async def test_a_changed_folder_notifies_workers_and_clients(tmp_path: Path) -> None:
    home = skill(tmp_path, "pdf")
    hub = hub_for_workers().add_skills(tmp_path)
    try:
        async with connect(hub, V2025_11_25) as client, following(hub) as heard:
            assert (await client.read_resource("iii://pdf")).text == BODY
            await client.subscribe("iii://pdf")
            await client.subscribe("iii://skills")
            put(home / "SKILL.md", text("pdf", body="# New\n"))
            assert await heard.get() == {"op": "register", "id": "pdf"}
            await client.assert_notification("resources/updated", within=60, uri="iii://pdf")
            await client.assert_notification("resources/updated", within=60, uri="iii://skills")
            skill(tmp_path, "csv")
            assert await heard.get() == {"op": "register", "id": "csv"}
            (home / "SKILL.md").unlink()
            assert await heard.get() == {"op": "unregister", "id": "pdf"}
            index = (await client.read_resource("iii://skills")).text
            assert ("iii://csv" in index, "iii://pdf" in index) == (True, False)
    finally:
        await hub.stop()


@asynchronous
async def test_agents_find_and_fetch_documents_of_folders_and_of_workers(tmp_path: Path) -> None:
    skill(tmp_path / "knowledge", "pdf")
    (tmp_path / "waypost.yaml").write_text(
        "server: {surface: both}\nworkers: {port: 0}\nskills: {core: [], folders: [./knowledge]}\n"
    )
    hub = Hub.from_config(tmp_path / "waypost.yaml")
    async with at_work(hub) as client, working(hub, "mailer") as worker:
        await worker.publish_skill("mail", "# Mail\n\nHow to send an invoice.")
        assert (await client.call_tool("skill__fetch", {"uri": "iii://pdf"})).text == f"# iii://pdf\n\n{BODY.rstrip()}"
        for query, uri in (("pdf", "skill://pdf/SKILL.md"), ("invoice", "iii://mail")):
            found = (await client.call_tool("gateway.search", {"query": query, "kind": "document"})).structured
            item = found["results"][0]["item"]
            assert (item["id"], item["kind"]) == (uri, "document")
            link = item["links"][0]
            assert (await client.request(link["method"], link["args"]))["contents"][0]["uri"] == uri
        listed = {one["id"]: one for one in (await worker.trigger("skills::list"))["skills"]}
        assert listed["pdf"]["owner"].startswith("folder:")
        assert listed["pdf"]["stale"] is False


@asynchronous
async def test_clients_that_connect_before_the_first_prompt_are_notified() -> None:
    hub = hub_for_workers()
    try:
        async with connect(hub, V2025_11_25) as client:
            assert client.server_capabilities["prompts"] == {"listChanged": True}
            assert client.server_capabilities["resources"] == {"listChanged": True, "subscribe": True}
            async with working(hub, "mailer") as worker:
                worker.register_function("mail::write", lambda: "Write.")
                await worker.publish_prompt("send-email", "Write an email.", function_id="mail::write")
                await client.assert_notification("prompts/list_changed", within=60)
                assert (await client.get_prompt("send-email")).text == "Write."
    finally:
        await hub.stop()


@asynchronous
async def test_a_hub_without_workers_declares_no_prompts_or_resources() -> None:
    hub = hub_for_workers(workers=False)
    try:
        async with connect(hub, V2025_11_25) as client:
            assert client.server_capabilities.keys().isdisjoint({"prompts", "resources"})
    finally:
        await hub.stop()


@asynchronous
async def test_hubs_on_one_store_share_the_documents_of_their_workers(postgres_url: str) -> None:
    first, second = hub_for_workers(store=postgres_url), hub_for_workers(store=postgres_url)
    try:
        async with connect(first), connect(second, V2025_11_25) as client, following(second) as heard:
            await second.documents.refresh()
            async with working(first, "mailer") as worker:
                worker.register_function("mail::write", lambda: "Write.")
                await worker.publish_skill("mail", "# Mail")
                await worker.publish_prompt("send-email", "Write an email.", function_id="mail::write")
                assert await heard.get() == {"op": "register", "id": "mail"}
                await client.assert_notification("prompts/list_changed", within=60)
                assert (await client.read_resource("iii://mail")).text == "# Mail"
                await worker.trigger("skills::unregister", {"id": "mail"})
                assert await heard.get() == {"op": "unregister", "id": "mail"}
    finally:
        await second.stop()
        await first.stop()


@asynchronous
async def test_a_denied_function_cannot_be_read_as_a_section_or_prompt() -> None:
    rule = Rule(name="no-deploys", type="mcp_restriction", config={"tool_pattern": "deploy__"})
    hub = hub_for_workers(policies=[rule])
    async with at_work(hub) as client, working(hub, "ops") as worker:
        calls: list[Any] = []
        worker.register_function("deploy::now", calls.append)
        await worker.publish_prompt("deploy", "Deploy.", function_id="deploy::now")
        with pytest.raises(RemoteError, match="blocked by pattern"):
            await client.read_resource("iii://fn/deploy/now")
        with pytest.raises(RemoteError, match="blocked by pattern"):
            await client.get_prompt("deploy")
        with pytest.raises(RemoteError, match="blocked by pattern"):
            await client.call_tool("skill__fetch", {"uri": "iii://fn/deploy/now"})
        assert calls == []


@asynchronous
async def test_fetching_does_not_call_a_function_that_is_denied_to_the_worker() -> None:
    rule = Rule(name="few", type="allow_list", config={"allow": ["skill*", "iii://*", "open__*"]}, callers=("worker",))
    hub = hub_for_workers(policies=[rule])
    async with at_work(hub), working(hub, "ops") as owner, working(hub, "reader") as reader:
        calls: list[Any] = []
        owner.register_function("deploy::now", calls.append)
        owner.register_function("open::now", lambda: "# Open")
        assert await owner.trigger("open::now") == "# Open"
        assert await reader.trigger("skill::fetch", {"uri": "iii://fn/open/now"}) == "# iii://fn/open/now\n\n# Open"
        refused = await failure(reader.trigger("skill::fetch", {"uri": "iii://fn/deploy/now"}))
        assert (refused.code, calls) == ("FORBIDDEN", [])


@asynchronous
async def test_a_denied_skill_cannot_be_fetched() -> None:
    rule = Rule(name="no-finance", type="mcp_restriction", config={"tool_pattern": "iii://finance"})
    hub = hub_for_workers(policies=[rule])
    async with at_work(hub) as client, working(hub, "books") as worker:
        await worker.publish_skill("finance", "# Finance")
        await worker.publish_skill("sales", "# Sales")
        with pytest.raises(RemoteError, match="blocked by pattern"):
            await client.read_resource("iii://finance")
        with pytest.raises(RemoteError, match="blocked by pattern"):
            await client.call_tool("skill__fetch", {"uris": ["iii://sales", "iii://finance"]})
        fetched = await client.call_tool("skill__fetch", {"uri": "iii://sales"})
        assert fetched.text == "# iii://sales\n\n# Sales"
        assert await worker.trigger("skill::fetch", {"uri": "iii://finance"}) == "# iii://finance\n\n# Finance"
