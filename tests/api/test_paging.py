"""Every list of the API can be read in parts, each row once."""

from __future__ import annotations

import json

import pytest

from tests.api.conftest import operated_hub, operating
from tests.api.releasing import releasing
from tests.protocol.conftest import asynchronous
from waypost.api.api import ROUTES

PAGED = {"before", "limit"}
WHOLE = {"events", "calls", "overview", "audit/export", "audit/verify", "connect", "document"}
"""What is no list of rows, or a stream."""


def test_every_list_has_a_cursor_and_a_limit() -> None:
    lists = [
        route for route in ROUTES.all if route.method == "GET" and "{" not in route.name and route.name not in WHOLE
    ]
    for route in lists:
        own = set(getattr(route.hints.get("query"), "__struct_fields__", ()))
        assert own >= PAGED or route.paged is not None, route.name


@asynchronous
async def test_a_list_in_parts_has_each_row_once_and_survives_a_row_that_goes() -> None:
    async with operating(operated_hub(rules=())) as operator:
        whole = [row["name"] for row in (await operator.fetch("GET", "/api/v1/tools"))["tools"]]
        first = await operator.fetch("GET", "/api/v1/tools?limit=2")
        assert ([row["name"] for row in first["tools"]], "next" in first) == (sorted(whole)[:2], True)
        operator.hub.registry.remove([operator.hub.registry.tool(sorted(whole)[1])])
        rest = await operator.fetch("GET", f"/api/v1/tools?limit=100&before={first['next']}")
        assert ([row["name"] for row in rest["tools"]], rest["next"]) == (sorted(whole)[2:], None)


@pytest.mark.parametrize("path", sorted(route.path for route in ROUTES.all if route.paged and "{" not in route.path))
@asynchronous
async def test_parts_of_one_row_together_are_the_whole_list(path: str) -> None:
    async with releasing() as releases:
        await releases.asked()
        await releases.asked()
        answer = await releases.ask("GET", path)
        if answer.status == 404:
            return  # a hub without such a section
        whole = json.loads(answer.body)
        (name,) = [member for member, value in whole.items() if isinstance(value, list)]
        assert "next" not in whole
        seen, cursor = [], ""
        for _ in range(len(whole[name]) + 1):
            part = await releases.fetch("GET", f"{path}?limit=1{cursor}")
            seen += part[name]
            if part["next"] is None:
                break
            cursor = f"&before={part['next']}"
        for row in (*seen, *whole[name]):
            row.pop("lastSeenAt", None)  # of a replica that answers, it is the moment of the answer
        assert sorted(map(str, seen)) == sorted(map(str, whole[name]))
        for query in ("before=x", "limit=0", "other=1"):
            assert (await releases.refused("GET", f"{path}?{query}"))[0] == 400
