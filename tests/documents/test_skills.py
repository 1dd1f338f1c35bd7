"""Skills are registered, listed and removed in both document stores."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.contract.conftest import asynchronous
from tests.documents.desk import SHELVES, UnreachableStore, desk

MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00")
on_each_store = pytest.mark.parametrize("shelf", SHELVES)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"id": "", "skill": "x"}, "id must be non-empty"),
        ({"id": "Brain", "skill": "x"}, "segment may only contain lowercase ASCII letters"),
        ({"id": "a b", "skill": "x"}, "segment may only contain"),
        ({"id": "/a", "skill": "x"}, "id may not have a leading or trailing '/'"),
        ({"id": "a/", "skill": "x"}, "id may not have a leading or trailing '/'"),
        ({"id": "a//b", "skill": "x"}, "segment must be non-empty"),
        ({"id": "a:b", "skill": "x"}, "segment may only contain"),
        ({"id": "a" * 65, "skill": "x"}, "segment too long (65 chars; max 64)"),
        ({"id": "fn", "skill": "x"}, "reserved"),
        ({"id": "fn/a", "skill": "x"}, "reserved"),
        ({"id": "skills", "skill": "x"}, "iii://skills is the index"),
        ({"id": "a", "skill": ""}, "skill must be non-empty"),
        ({"id": "a", "skill": "x" * 262145}, "skill body too large (262145 bytes; max 262144)"),
        ({"id": "A", "skill": ""}, "segment may only contain"),
        ({"skill": "x"}, "missing field `id`"),
        ({"id": "a"}, "missing field `skill`"),
        ({}, "missing field `id`"),
        ({"id": 5}, "invalid type: integer `5`, expected a string"),
        ({"id": None, "skill": "x"}, "invalid type: null, expected a string"),
        ({"id": "a", "skill": ["x"]}, "invalid type: sequence, expected a string"),
        ({"id": "a", "skill": {}}, "invalid type: map, expected a string"),
        ({"id": "a", "skill": True}, "invalid type: boolean `true`, expected a string"),
        ({"id": "a", "skill": 1.5}, "invalid type: floating point `1.5`, expected a string"),
        (None, "invalid type: null, expected struct RegisterSkillInput"),
        ("a", 'invalid type: string "a", expected struct RegisterSkillInput'),
    ],
)
@asynchronous
async def test_an_invalid_registration_is_refused_and_changes_nothing(given: Any, text: str) -> None:
    async with desk() as it:
        assert text in await it.refusal("skills::register", given)

        assert await it.call("skills::list", {}) == {"skills": []}
        assert it.changes == []


@on_each_store
@asynchronous
async def test_a_body_right_at_256_kib_is_accepted(shelf: str) -> None:
    async with desk(shelf) as it:
        body = "é" * 131072
        await it.skill("big", body)

        assert (await it.read("iii://big")) == ("text/markdown", body)
        assert (await it.call("skills::list", {}))["skills"][0]["bytes"] == 262144


@on_each_store
@asynchronous
async def test_registered_skills_are_listed_by_id(shelf: str) -> None:
    async with desk(shelf) as it:
        for skill_id in ("b", "a/c", "a", "a-b"):
            answer = await it.skill(skill_id)
            assert answer["id"] == skill_id
            assert MOMENT.fullmatch(answer["registered_at"])

        rows = (await it.call("skills::list", {}))["skills"]
        assert [row["id"] for row in rows] == ["a", "a-b", "a/c", "b"]
        assert rows[3]["bytes"] == len("# Title\n\nText.\n")


@on_each_store
@asynchronous
async def test_registering_again_overwrites_the_body_and_refreshes_the_time(shelf: str) -> None:
    async with desk(shelf) as it:
        first = await it.skill("a", "one")
        again = await it.skill("a", "one")
        other = await it.skill("a", "two")

        assert first["registered_at"] < again["registered_at"] < other["registered_at"]
        assert (await it.read("iii://a"))[1] == "two"
        assert len((await it.call("skills::list", {}))["skills"]) == 1
        assert it.changes == [("skills", "register", "a")] * 3


@on_each_store
@asynchronous
async def test_removing_twice_is_not_an_error_and_announced_once(shelf: str) -> None:
    async with desk(shelf) as it:
        await it.skill("a/b")

        assert await it.call("skills::unregister", {"id": "a/b"}) == {"id": "a/b", "removed": True}
        assert await it.call("skills::unregister", {"id": "a/b"}) == {"id": "a/b", "removed": False}
        assert it.changes == [("skills", "register", "a/b"), ("skills", "unregister", "a/b")]
        assert "segment may only contain" in await it.refusal("skills::unregister", {"id": "A"})


@asynchronous
async def test_three_rapid_changes_are_each_announced() -> None:
    async with desk() as it:
        for number in range(3):
            await it.skill(f"s{number}")

        assert it.changes == [("skills", "register", f"s{number}") for number in range(3)]


@asynchronous
async def test_a_change_is_announced_after_the_write_and_before_the_answer() -> None:
    async with desk("state") as it:
        seen: list[bool] = []
        it.on_change = lambda: seen.append(("skills", "a") in it.engine.state)
        await it.skill("a")
        await it.call("skills::unregister", {"id": "a"})

        assert seen == [True, False]


@asynchronous
async def test_an_unreachable_store_fails_calls_with_its_reason() -> None:
    async with desk(UnreachableStore()) as it:
        assert await it.refusal("skills::register", {"id": "a", "skill": "x"}) == "the state is away"
        assert await it.refusal("skills::unregister", {"id": "a"}) == "the state is away"
        assert await it.refusal("skills::list", {}) == "the state is away"
        assert await it.unread("iii://a") == "the state is away"
        assert await it.refusal("prompts::mcp-get", {"name": "a"}) == "the state is away"
        assert it.changes == []


@asynchronous
async def test_dead_links_are_warnings_in_the_answer_to_a_registration() -> None:
    async with desk() as it:
        await it.skill("there")
        body = "# x\n\niii://there iii://x iii://skills iii://fn/a/b iii://gone iii://x/demo::guide iii://fn/state/set"
        warnings = (await it.skill("x", body))["warnings"]

        assert len(warnings) == 3
        assert warnings[0] == "iii://gone: no skill is registered under this id yet"
        assert warnings[1].startswith("iii://x/demo::guide: Skill not found")
        assert "iii://fn/demo/guide" in warnings[1]
        assert warnings[2] == "iii://fn/state/set: state::set is in an internal namespace and cannot be read"
        assert set(await it.skill("y", "iii://there")) == {"id", "registered_at"}
