"""Markdown skills, prompts and workers through the API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.api.conftest import Operator, operated_hub, operating
from tests.protocol.conftest import asynchronous, until
from tests.worker.engine import settled, working
from waypost import Hub
from waypost.capabilities.capability import Kind
from waypost.capabilities.prompts import prompt_from_template
from waypost.capabilities.registry import Change
from waypost.testing import connect

DOCUMENTS, DOCUMENT, PROMPTS, WORKERS = (f"/api/v1/{name}" for name in ("documents", "document", "prompts", "workers"))
EMAIL = {"id": "resend/email", "skill": "# Email\n\nHow to send it.\n"}


@asynccontextmanager
async def at_work(**options: Any) -> AsyncIterator[tuple[Operator, Hub]]:
    """The operator of a hub with a port for workers."""
    hub = operated_hub(**{"workers": {"port": 0}, **options})
    async with operating(hub) as operator:
        await hub.start()
        yield operator, hub


def at(skill_id: str) -> str:
    """The path of a skill's text."""
    return f"{DOCUMENT}?id={quote(skill_id, safe='')}"


@asynchronous
async def test_a_document_is_published_listed_read_and_removed() -> None:
    async with at_work() as (operator, _):
        added = (await operator.fetch("POST", DOCUMENTS, EMAIL))["document"]
        assert added.keys() == {"id", "registered_at"}
        (listed,) = (await operator.fetch("GET", DOCUMENTS))["documents"]
        assert listed == {**added, "bytes": 25, "owner": "operator", "stale": False}
        assert await operator.fetch("GET", at("resend/email")) == EMAIL
        removed = await operator.fetch("DELETE", f"{DOCUMENTS}?id=resend/email")
        assert removed == {"document": {"id": "resend/email", "removed": True}}
        assert await operator.fetch("GET", DOCUMENTS) == {"documents": []}
        assert await operator.refused("DELETE", f"{DOCUMENTS}?id=resend/email") == (
            404,
            "Skill not found: resend/email",
        )


@asynchronous
async def test_a_document_of_a_folder_is_removed_where_it_is(tmp_path: Path) -> None:
    async with at_work() as (operator, hub):
        (tmp_path / "rel").mkdir()
        (tmp_path / "rel" / "SKILL.md").write_text("---\nname: rel\ndescription: Releases.\n---\n# Rel\n")
        hub.folders.add(tmp_path)
        assert await operator.refused("DELETE", f"{DOCUMENTS}?id=rel") == (
            400,
            "The skill rel was not published; remove it where it is defined.",
        )


@asynchronous
async def test_the_first_document_is_one_change_of_the_resources() -> None:
    async with at_work(workers=False) as (operator, hub):
        changes: list[Change] = []
        hub.registry.subscribe(changes.append)
        await operator.fetch("POST", DOCUMENTS, EMAIL)
        assert sum(Kind.RESOURCE in change.kinds for change in changes) == 1
        assert "iii://resend/email" in hub.registry[Kind.RESOURCE]


@asynchronous
async def test_broken_links_of_a_document_are_warnings() -> None:
    async with at_work() as (operator, _):
        added = await operator.fetch("POST", DOCUMENTS, {"id": "resend", "skill": "See iii://resend/email."})
        assert added["document"]["warnings"] == ["iii://resend/email: no skill is registered under this id yet"]


@pytest.mark.parametrize("skill_id", ["fn/deploy/now", "skills", "resend/../x", "a//b"])
@asynchronous
async def test_only_documents_are_read_and_no_function_runs(skill_id: str) -> None:
    async with at_work() as (operator, hub), working(hub) as worker:
        calls: list[Any] = []
        worker.register_function("deploy::now", calls.append)
        await settled(worker)
        status, _ = await operator.refused("GET", at(skill_id))
        assert (status, calls) == (404, [])


@asynchronous
async def test_the_error_for_an_unknown_document_suggests_the_nearest() -> None:
    async with at_work() as (operator, _):
        await operator.fetch("POST", DOCUMENTS, EMAIL)
        status, answer = await operator.refused("GET", at("resend/emial"))
        assert (status, answer) == (404, 'Skill not found: resend/emial; did you mean "resend/email"?')


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"id": "Email", "skill": "x"}, "invalid id"),
        ({"id": "fn/email", "skill": "x"}, 'id may not have "fn" as its first segment'),
        ({"id": "skills", "skill": "x"}, 'id may not be "skills"'),
        ({"id": "email", "skill": "x" * 262_145}, "skill body too large (262145 bytes; max 262144)"),
        ({"id": "email"}, "skill"),
        ({"id": "email", "skill": ""}, "skill must be non-empty"),
        ({"id": "", "skill": "x"}, "id must be non-empty"),
        ({"id": "a" * 1025, "skill": "x"}, "id too long (1025 chars; max 1024)"),
    ],
)
@asynchronous
async def test_a_wrong_document_is_refused_in_one_sentence(body: Any, text: str) -> None:
    async with at_work() as (operator, _):
        status, answer = await operator.refused("POST", DOCUMENTS, body)
        assert (status, text in answer) == (400, True)
        assert await operator.fetch("GET", DOCUMENTS) == {"documents": []}


@asynchronous
async def test_a_hub_without_workers_serves_documents_as_soon_as_there_is_one() -> None:
    hub = operated_hub()
    async with operating(hub) as operator, connect(hub) as client:
        assert await operator.fetch("GET", DOCUMENTS) == {"documents": []}
        assert "iii://skills" not in [one.uri for one in await client.list_resources()]
        await operator.fetch("POST", DOCUMENTS, EMAIL)
        assert (await client.read_resource("iii://resend/email")).text == EMAIL["skill"]
        assert await operator.fetch("GET", WORKERS) == {"address": None, "workers": [], "needsToken": False}


@asynchronous
async def test_prompts_of_the_hub_and_of_workers_are_listed() -> None:
    async with at_work() as (operator, hub), working(hub, "mailer") as worker:
        worker.register_function("mail::write", lambda: "Write.")
        arguments = [{"name": "to", "description": "Who gets it", "required": True}]
        assert await worker.publish_prompt(
            "send-email", "Write an email.", function_id="mail::write", arguments=arguments
        )
        listed = {one["name"]: one for one in (await operator.fetch("GET", PROMPTS))["prompts"]}
        assert (listed["greet"]["owner"], listed["greet"]["stale"]) == ("hub", False)
        assert listed["send-email"] == {
            "name": "send-email",
            "description": "Write an email.",
            "arguments": arguments,
            "owner": "worker:mailer",
            "stale": False,
            "left_out": False,
        }
        assert await operator.fetch("GET", f"{PROMPTS}/send-email") == listed["send-email"]
        assert await operator.refused("GET", f"{PROMPTS}/nothing") == (404, "Unknown prompt: nothing")
        unknown = 'Unknown prompt: sendemail; did you mean "send-email"?'
        assert await operator.refused("GET", f"{PROMPTS}/sendemail") == (404, unknown)


@asynchronous
async def test_an_operator_removes_a_prompt_that_a_worker_published() -> None:
    async with at_work() as (operator, hub), working(hub, "mailer") as worker:
        await worker.publish_prompt("send-email", "Write an email.", function_id="mail::write")
        removed = await operator.fetch("DELETE", f"{PROMPTS}/send-email")
        assert removed == {"prompt": {"name": "send-email", "removed": True}}
        assert "send-email" not in hub.registry[Kind.PROMPT]
        again = await operator.refused("DELETE", f"{PROMPTS}/send-email")
        assert again == (404, "Unknown prompt: send-email")
        assert await operator.refused("DELETE", f"{PROMPTS}/gret") == (
            404,
            'Unknown prompt: gret; did you mean "greet"?',
        )
        assert await operator.refused("DELETE", f"{PROMPTS}/greet") == (
            400,
            "The prompt greet was not published; remove it where it is defined.",
        )


@asynchronous
async def test_a_prompt_left_out_by_a_name_conflict_is_listed_and_can_be_removed() -> None:
    async with at_work() as (operator, hub), working(hub, "mailer") as worker:
        await worker.publish_prompt("send", "From the worker.", function_id="mail::write")
        hub.add(prompt_from_template("send", "Send.", description="From the hub."))
        rows = [one for one in (await operator.fetch("GET", PROMPTS))["prompts"] if one["name"] == "send"]
        assert [(one["owner"], one["description"], one["left_out"]) for one in rows] == [
            ("hub", "From the hub.", False),
            ("worker:mailer", "From the worker.", True),
        ]
        assert (await operator.fetch("GET", f"{PROMPTS}/send"))["description"] == "From the hub."
        await operator.fetch("DELETE", f"{PROMPTS}/send")
        assert [one["name"] for one in (await operator.fetch("GET", PROMPTS))["prompts"]] == ["greet", "send"]


@asynchronous
async def test_a_hub_without_its_own_registry_refuses_changes_of_documents_and_prompts() -> None:
    async with at_work(workers={"port": 0, "registry": False}) as (operator, hub):
        for method, path, body in (
            ("GET", DOCUMENTS, None),
            ("GET", at("a"), None),
            ("POST", DOCUMENTS, EMAIL),
            ("DELETE", f"{DOCUMENTS}?id=a", None),
            ("DELETE", f"{PROMPTS}/greet", None),
        ):
            status, answer = await operator.refused(method, path, body)
            assert (status, "workers.registry is false" in answer) == (400, True)
        assert [one["name"] for one in (await operator.fetch("GET", PROMPTS))["prompts"]] == ["greet"]
        assert hub.workers.functions.get("default", "skills::register") is None


@asynchronous
async def test_workers_are_listed_and_documents_of_a_disconnected_one_are_stale() -> None:
    async with at_work() as (operator, hub):
        async with working(hub, "mailer") as worker:
            worker.register_function("mail::write", lambda: "Write.")
            await worker.publish_skill("mail", "# Mail")
            found = await operator.fetch("GET", WORKERS)
            assert found["address"] == hub.workers.address
            (row,) = found["workers"]
            assert (row["name"], row["functions"], row["namespace"]) == ("mailer", ["mail::write"], "default")
            assert row["latency_ms"] is None
            await operator.use("mail__write")
            (row,) = (await operator.fetch("GET", WORKERS))["workers"]
            assert row["latency_ms"] > 0
        await until(lambda: hub.workers.connected == [])
        assert (await operator.fetch("GET", WORKERS))["workers"] == []
        (left,) = (await operator.fetch("GET", DOCUMENTS))["documents"]
        assert (left["id"], left["owner"], left["stale"]) == ("mail", "worker:mailer", True)
        await operator.fetch("DELETE", f"{DOCUMENTS}?id=mail")


@asynchronous
async def test_an_operator_may_replace_a_workers_document() -> None:
    async with at_work() as (operator, hub), working(hub, "mailer") as worker:
        await worker.publish_skill("mail", "# Mail")
        await operator.fetch("POST", DOCUMENTS, {"id": "mail", "skill": "# Better"})
        assert (await operator.fetch("GET", at("mail")))["skill"] == "# Better"


@pytest.mark.parametrize("path", [DOCUMENTS, f"{DOCUMENT}?id=a", PROMPTS, f"{PROMPTS}/greet", WORKERS])
@asynchronous
async def test_requests_without_a_key_are_refused(path: str) -> None:
    async with at_work() as (operator, _):
        assert (await operator.ask("GET", path, key=None)).status == 401


@asynchronous
async def test_tokens_and_groups_are_counted_again_after_a_change() -> None:
    async with operating() as operator:
        before = (await operator.fetch("GET", "/api/v1/overview"))["tokens"]["everything"]
        groups = (await operator.fetch("GET", "/api/v1/catalog"))["counts"]["category"]

        @operator.hub.tool(category="Late")
        async def late() -> str:
            return "late"

        after = (await operator.fetch("GET", "/api/v1/overview"))["tokens"]["everything"]
        assert (after["tools"], after["tokens"] > before["tokens"]) == (before["tools"] + 1, True)
        found = (await operator.fetch("GET", "/api/v1/catalog"))["counts"]["category"]
        assert found == {**groups, "Late": 1}


@asynchronous
async def test_items_are_hidden_and_shown_in_bulk_with_a_record_of_each() -> None:
    async with operating(operated_hub(rules=())) as operator:
        found = (await operator.fetch("GET", "/api/v1/catalog"))["items"]
        assert "add" in [row["id"] for row in found]

        done = await operator.fetch("POST", "/api/v1/catalog/hide", {"ids": ["add", "deploy"]})
        assert done == {"ids": ["add", "deploy"], "hidden": True}
        page = await operator.fetch("GET", "/api/v1/catalog?q=add")
        assert ("add" in [row["id"] for row in page["items"]], page["hidden"]) == (False, 2)
        hidden = await operator.fetch("GET", "/api/v1/catalog?hidden=true&limit=1")
        rest = await operator.fetch("GET", f"/api/v1/catalog?hidden=true&before={hidden['next']}")
        assert [row["id"] for row in hidden["items"] + rest["items"]] == ["add", "deploy"]
        assert (await operator.fetch("GET", "/api/v1/catalog/add"))["hidden"] is True
        assert (await operator.use("add", {"a": 1, "b": 2})).json["result"]["structuredContent"] == {"result": 3}

        assert (await operator.fetch("POST", "/api/v1/catalog/show", {"category": "Maths"}))["ids"] == ["add"]
        assert (await operator.fetch("GET", "/api/v1/catalog"))["hidden"] == 1
        entries = (await operator.fetch("GET", "/api/v1/audit"))["entries"]
        acts = [(one["action"], one["capability"]) for one in entries if one.get("action", "").startswith("catalog.")]
        assert acts == [("catalog.shown", "add"), ("catalog.hidden", "deploy"), ("catalog.hidden", "add")]


@asynchronous
async def test_a_selection_of_nothing_or_of_something_unknown_changes_nothing() -> None:
    async with operating(operated_hub(rules=())) as operator:
        hide = "/api/v1/catalog/hide"
        assert (await operator.refused("POST", hide, {}))[0] == 400
        assert (await operator.refused("POST", hide, {"ids": ["add", "nothing"]}))[0] == 404
        assert (await operator.refused("POST", hide, {"source": "nowhere"}))[0] == 404
        # What its definition hides is not for operators to show: it may be held back until it is approved.
        assert (await operator.refused("POST", "/api/v1/catalog/show", {"ids": ["skill:shell"]}))[0] == 404
        assert (await operator.fetch("GET", "/api/v1/catalog"))["hidden"] == 0
