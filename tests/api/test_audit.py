"""The audit through the API: pages from the latest on, and a verdict."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest

from tests.api.conftest import AGENT, Operator, operated_hub, operating
from tests.protocol.conftest import asynchronous, until
from waypost.api.api import ROUTES
from waypost.policy import audit as audits
from waypost.policy.audit import AdministrativeAction
from waypost.stores.database import TEXT, Change, Statement
from waypost.stores.schema import AUDIT as TABLE

AUDIT = "/api/v1/audit"


async def use_often(operator: Operator) -> None:
    for number in range(5):
        await operator.use("deploy", {"secret": f"s3cret-{number}"}, AGENT)
    for _ in range(2):
        await operator.use("skill:shell", {"secret": "s3cret"}, AGENT)


@asynchronous
async def test_entries_come_latest_first_in_pages() -> None:
    async with operating(operated_hub(())) as operator:
        await use_often(operator)
        found: list[dict[str, Any]] = []
        before = ""
        while True:
            page = await operator.fetch("GET", f"{AUDIT}?limit=3{before}")
            found += page["entries"]
            if page["next"] is None:
                break
            before = f"&before={page['next']}"
        assert [entry["number"] for entry in found] == [8, 7, 6, 5, 4, 3, 2, 1]
        assert [entry["at"] for entry in found] == sorted((entry["at"] for entry in found), reverse=True)
        assert (found[0]["principal"], found[0]["capability"], found[0]["outcome"]) == ("agent", "skill:shell", "error")


@asynchronous
async def test_denials_can_be_picked_out() -> None:
    async with operating() as operator:
        await use_often(operator)
        denied = (await operator.fetch("GET", f"{AUDIT}?decision=deny"))["entries"]
        assert [(entry["capability"], entry["rule"]) for entry in denied] == [("skill:shell", "no-shell")] * 2
        allowed = (await operator.fetch("GET", f"{AUDIT}?decision=allow"))["entries"]
        assert {entry["capability"] for entry in allowed} == {"audit", "deploy"}


@asynchronous
async def test_entries_are_selected_by_principal_capability_action_and_time() -> None:
    async with operating(operated_hub(())) as operator:
        await use_often(operator)
        await operator.fetch("POST", "/api/v1/keys", {"id": "ci"})

        async def select(query: str) -> list[str]:
            return [one["capability"] for one in (await operator.fetch("GET", f"{AUDIT}?{query}"))["entries"]]

        assert await select("principal=root") == ["ci"]
        assert await select("principal=nothing") == []
        assert await select("capability=shell") == ["skill:shell"] * 2
        assert await select("action=key.created") == ["ci"]
        assert await select("principal=agent&capability=dep&decision=deny") == []
        (latest,) = (await operator.fetch("GET", f"{AUDIT}?limit=1"))["entries"]
        assert await select(f"after={latest['at']}") == ["ci"]
        assert "ci" not in await select(f"until={latest['at']}")


@asynchronous
async def test_an_export_has_every_selected_entry_as_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("waypost.api.audit.EXPORT_PAGE_ENTRIES", 2)
    async with operating(operated_hub(())) as operator:
        await use_often(operator)
        call = await operator.ask("GET", f"{AUDIT}/export?capability=deploy")
        assert (call.status, call.headers["content-type"]) == (200, "application/x-ndjson")
        lines = [json.loads(line) for line in call.body.splitlines()]
        shown = (await operator.fetch("GET", f"{AUDIT}?capability=deploy"))["entries"]
        assert (lines, len(lines)) == (shown, 5)


@asynchronous
async def test_arguments_are_not_recorded() -> None:
    async with operating() as operator:
        await use_often(operator)
        answer = await operator.fetch("GET", AUDIT)
        assert len(answer["entries"]) == 8
        assert "s3cret" not in json.dumps(answer)


@pytest.mark.parametrize("cursor", ["x", "W10", "WzEsMiwzXQ", "bm90aGluZw", "!!!!"])
@asynchronous
async def test_an_invalid_cursor_is_400(cursor: str) -> None:
    async with operating() as operator:
        status, sentence = await operator.refused("GET", f"{AUDIT}?before={cursor}")
        assert (status, sentence) == (400, "Invalid cursor in `before`.")


@asynchronous
async def test_an_intact_audit_has_no_problems() -> None:
    async with operating() as operator:
        await use_often(operator)
        assert await operator.fetch("GET", f"{AUDIT}/verify") == {"chains": 1, "entries": 8, "problems": []}


@asynchronous
async def test_verifying_a_changed_audit_names_the_entry() -> None:
    hub = operated_hub()
    async with operating(hub) as operator:
        await use_often(operator)
        await operator.fetch("GET", AUDIT)
        tamper = Statement(TABLE, "UPDATE audit SET entries = replace(entries, ?, ?)", [TEXT, TEXT])
        [entry] = (await operator.fetch("GET", f"{AUDIT}?limit=6"))["entries"][-1:]
        await hub.store.database.write(Change(tamper), (f'"at":{entry["at"]}', '"at":77.0'))
        verdict = await operator.fetch("GET", f"{AUDIT}/verify")
        (problem,) = verdict["problems"]
        assert problem.startswith("Entry 3 of chain ")


Act = tuple[str, str, str, str]


async def acts(operator: Operator) -> list[Act]:
    """The recorded administrative acts, the oldest first: action, principal, caller type, object."""
    entries = (await operator.fetch("GET", f"{AUDIT}?limit=1000"))["entries"][::-1]
    known = get_args(AdministrativeAction)
    return [
        (one["action"], one["principal"], one["callerType"], one["capability"])
        for one in entries
        if one.get("action") in known
    ]


def test_every_request_that_changes_something_is_recorded() -> None:
    """A route without an act changes nothing or is recorded otherwise, as calls, workflows and approvals are."""
    silent = {route.name for route in ROUTES.all if route.method != "GET" and route.act is None}

    assert silent == {
        "catalog/hide",
        "catalog/show",
        "policies/test",
        "tools/{name}/call",
        "upstreams/{name}/approve",
        "upstreams/{name}/login",
        "upstreams/{name}/logout",
        "workflows/{id}/simulate",
        "runs/batch",
        "runs/{id}/cancel",
        "runs/{id}/resolve",
        "runs/{id}/submit",
        "approvals/{id}/approve",
        "approvals/{id}/reject",
    }


@asynchronous
async def test_operator_acts_are_recorded_with_principal_caller_type_and_object() -> None:
    async with operating() as operator:
        cli = {"more": {"waypost-via": "cli"}}
        steps = {
            "initialState": "a",
            "states": {"a": {"transitions": {"go": {"target": "b"}}}, "b": {"terminal": True}},
        }
        await operator.fetch("POST", "/api/v1/keys", {"id": "ci"}, **cli)
        await operator.fetch("DELETE", "/api/v1/keys/ci")
        await operator.fetch("POST", "/api/v1/documents", {"id": "a/b", "skill": "# B"}, **cli)
        await operator.fetch("DELETE", "/api/v1/documents?id=a/b", more={"waypost-via": "console"})
        await operator.fetch("POST", "/api/v1/workflows", {"name": "ship", "workflow": {"title": "Ship", **steps}})
        await operator.fetch("POST", "/api/v1/workflows/ship/disable")
        copy = (await operator.fetch("POST", "/api/v1/workflows/ship/duplicate"))["workflow"]["id"]
        exported = await operator.fetch("GET", "/api/v1/workflows/ship/export")
        imported = (await operator.fetch("POST", "/api/v1/workflows/import", exported))["workflow"]["id"]
        await operator.fetch("DELETE", "/api/v1/workflows/ship")
        assert (await operator.refused("DELETE", "/api/v1/workflows/ship"))[0] == 404  # nothing was done

        assert await acts(operator) == [
            ("key.created", "root", "cli", "ci"),
            ("key.revoked", "root", "api", "ci"),
            ("document.published", "root", "cli", "a/b"),
            ("document.removed", "root", "console", "a/b"),
            ("workflow.defined", "root", "api", "ship"),
            ("workflow.defined", "root", "api", "ship"),
            ("workflow.defined", "root", "api", copy),
            ("workflow.defined", "root", "api", imported),
            ("workflow.removed", "root", "api", "ship"),
        ]


@asynchronous
async def test_refused_requests_are_recorded() -> None:
    async with operating() as operator:
        for key, status in ((AGENT, 403), (None, 401), ("wp_wrong", 401)):
            assert (await operator.ask("GET", "/api/v1/keys", key=key)).status == status
        assert (await operator.ask("GET", "/api/v1/" + "x" * 5000, key=AGENT, client="203.0.113.10")).status == 403

        assert [(action, who, how, what[:20]) for action, who, how, what in await acts(operator)] == [
            ("api.refused", "agent", "api", "/api/v1/keys"),
            ("api.refused", "anonymous", "api", "/api/v1/keys"),
            ("api.refused", "agent", "api", "/api/v1/xxxxxxxxxxxx"),
        ]
        entries = (await operator.fetch("GET", f"{AUDIT}?decision=deny"))["entries"]
        assert {one["caller"] for one in entries} == {"203.0.113.9", "203.0.113.10"}
        assert all(len(one["capability"]) <= 200 for one in entries)


@asynchronous
async def test_a_flood_of_refused_requests_is_counted() -> None:
    async with operating() as operator:
        for number in range(300):
            await operator.ask("GET", "/api/v1/keys", key=None, client=f"203.0.113.{number % 3}")
        for number in range(300):
            await operator.ask("GET", "/api/v1/keys", key=None, client=f"2001:db8::{number:x}")
        assert len(await acts(operator)) == 101  # a hundred sources, and all others together
        await operator.hub.runtime.api.stop()

        entries = (await operator.fetch("GET", f"{AUDIT}?limit=1000"))["entries"]
        counted = {one.get("caller", ""): one["reason"] for one in entries if "more within" in one.get("reason", "")}
        assert counted == {
            "203.0.113.0": "99 more within 60 s",
            "203.0.113.1": "99 more within 60 s",
            "203.0.113.2": "99 more within 60 s",
            "": "202 more within 60 s",
        }


@asynchronous
async def test_a_flood_is_recorded_when_its_minute_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audits, "REFUSAL_WINDOW_S", 1.0)  # long enough for all three requests
    async with operating() as operator:
        for _ in range(3):
            await operator.ask("GET", "/api/v1/keys", key=None)

        refusals = operator.hub.runtime.api._refusals
        assert refusals is not None
        await until(lambda: not refusals._counts)
        assert len(await acts(operator)) == 2
