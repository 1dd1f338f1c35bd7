"""The audit through the API: pages from the latest on, and a verdict."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.api.conftest import AGENT, Operator, operated_hub, operating
from tests.protocol.conftest import asynchronous
from waypost.stores.schema import AUDIT as TABLE
from waypost.stores.statements import TEXT, Change, Statement

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
            page = await operator.told("GET", f"{AUDIT}?limit=3{before}")
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
        denied = (await operator.told("GET", f"{AUDIT}?decision=deny"))["entries"]
        assert [(entry["capability"], entry["rule"]) for entry in denied] == [("skill:shell", "no-shell")] * 2
        allowed = (await operator.told("GET", f"{AUDIT}?decision=allow"))["entries"]
        assert {entry["capability"] for entry in allowed} == {"audit", "deploy"}


@asynchronous
async def test_no_argument_is_on_record() -> None:
    async with operating() as operator:
        await use_often(operator)
        told = await operator.told("GET", AUDIT)
        assert len(told["entries"]) == 8
        assert "s3cret" not in json.dumps(told)


@pytest.mark.parametrize("cursor", ["x", "W10", "WzEsMiwzXQ", "bm90aGluZw", "!!!!"])
@asynchronous
async def test_a_cursor_that_was_never_given_out_is_400(cursor: str) -> None:
    async with operating() as operator:
        status, sentence = await operator.refused("GET", f"{AUDIT}?before={cursor}")
        assert (status, sentence) == (400, "Invalid cursor in `before`.")


@asynchronous
async def test_an_audit_that_is_whole_has_no_problems() -> None:
    async with operating() as operator:
        await use_often(operator)
        assert await operator.told("GET", f"{AUDIT}/verify") == {"chains": 1, "entries": 8, "problems": []}


@asynchronous
async def test_an_audit_that_was_changed_says_where() -> None:
    hub = operated_hub()
    async with operating(hub) as operator:
        await use_often(operator)
        await operator.told("GET", AUDIT)
        tamper = Statement(TABLE, "UPDATE audit SET entries = replace(entries, ?, ?)", [TEXT, TEXT])
        [entry] = (await operator.told("GET", f"{AUDIT}?limit=6"))["entries"][-1:]
        await hub.store.database.write(Change(tamper), (f'"at":{entry["at"]}', '"at":77.0'))
        verdict = await operator.told("GET", f"{AUDIT}/verify")
        (problem,) = verdict["problems"]
        assert problem.startswith("Entry 3 of chain ")
