"""The declarations of the core skills, the reading of their arguments, and their access to private addresses."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from aiohttp import web

from tests.protocol.conftest import asynchronous
from tests.skills.core.calling import calling, serving, skill
from waypost.errors import DefinitionError, ToolError
from waypost.outbound.egress import Egress
from waypost.skills.core import CORE
from waypost.skills.core.inputs import CoreSettings, get_field, get_integer, get_text, require_text

FIELDS = {
    "api_request": {"url", "method", "headers", "body"},
    "llm_transform": {"system_prompt", "model"},
    "rss_collector": {"url", "urls", "max_items"},
    "send_to_workflow": {"target_workflow", "timeout"},
    "shell": {"command"},
    "system_info": set(),
    "web_browse": {"url", "extract"},
    "web_search": {"query", "max_results"},
}
KNOWN = {"web_read", "llm", "workflow_run"}


def test_every_core_skill_has_its_typed_fields() -> None:
    assert {one.name: set(one.declaration.input_schema or {}) for one in CORE} == FIELDS
    assert [one.name for one in CORE] == sorted(FIELDS)


@pytest.mark.parametrize("name", FIELDS)
def test_a_skill_has_descriptions_of_itself_and_its_fields(name: str) -> None:
    one = skill(name).declaration

    assert one.description and one.description.endswith(".")
    assert one.version == "1.0.0"
    assert set(one.permissions or ()) <= KNOWN
    assert "on_error" in (one.routes or ())
    assert all(field["type"] and field["description"] for field in (one.input_schema or {}).values())


def test_skills_that_fetch_foreign_text_are_declared_external() -> None:
    assert {one.name for one in CORE if one.declaration.external} == {
        "api_request",
        "rss_collector",
        "web_browse",
        "web_search",
    }


@pytest.mark.parametrize(
    ("name", "result", "route"),
    [
        ("web_search", {"results": [{}]}, "on_results"),
        ("web_search", {"results": []}, "on_empty"),
        ("rss_collector", {"items": [{}]}, "on_items"),
        ("rss_collector", {"items": []}, "on_empty"),
        ("api_request", {"status": 204}, "on_2xx"),
        ("api_request", {"status": 404}, "on_4xx"),
        ("api_request", {"status": 503}, "on_5xx"),
        ("shell", {"exit_code": 0}, "on_success"),
        ("shell", {"exit_code": 2}, "on_error"),
        ("web_browse", {"text": ""}, "on_success"),
        ("llm_transform", "text", "on_success"),
        ("send_to_workflow", {"status": "completed"}, "on_success"),
    ],
)
def test_a_result_takes_a_declared_route(name: str, result: Any, route: str) -> None:
    assert skill(name).branch(result) == route
    assert route in (skill(name).declaration.routes or ())


def test_importing_the_skills_loads_none_of_their_libraries() -> None:
    libraries = ["aiohttp", "selectolax", "feedparser", "ddgs", "lxml", "primp"]
    code = f"import sys, waypost.skills.core; print([name for name in {libraries} if name in sys.modules])"

    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert said.stdout.strip() == "[]"


def test_a_typed_field_takes_precedence_over_config_and_config_over_input() -> None:
    args = {"input": "c", "config": {"query": "b"}, "query": "a"}

    assert require_text(args, "query") == "a"
    assert require_text(args | {"query": None}, "query") == "b"
    assert require_text({"input": " c ", "config": {}}, "query") == "c"
    assert require_text({"input": {"k": 1}}, "query") == '{"k":1}'


@pytest.mark.parametrize("args", [{}, {"input": ""}, {"input": " ", "config": {}}, {"config": None}, {"config": "x"}])
def test_a_missing_required_field_is_an_error(args: dict[str, Any]) -> None:
    with pytest.raises(ToolError, match="query is missing"):
        require_text(args, "query")


@pytest.mark.parametrize(("given", "read"), [(3, 3), ("7", 7), (1000, 50), (None, 10)])
def test_a_number_is_converted_and_limited(given: Any, read: int) -> None:
    assert get_integer({"config": {"n": given}}, "n", 10, 50) == read


@pytest.mark.parametrize("given", [0, -1, True, "many", "", 1.5, [], "9" * 5000, "\u0663"])
def test_a_value_that_is_not_a_positive_integer_is_an_error(given: Any) -> None:
    with pytest.raises(ToolError, match="whole number"):
        get_integer({"n": given}, "n", 10, 50)


def test_a_field_of_another_type_is_an_error() -> None:
    with pytest.raises(ToolError, match="url must be text"):
        get_text({"url": 5}, "url")
    assert get_field({"config": {"url": 0}}, "url") == 0


@pytest.mark.parametrize("prefix", [(), ("",), ("git", "")])
def test_an_empty_word_in_an_allowed_command_is_an_error(prefix: tuple[str, ...]) -> None:
    with pytest.raises(DefinitionError):
        CoreSettings(Egress(), shell_allowed=(prefix,))


@pytest.mark.parametrize("name", ["web_browse", "api_request", "rss_collector", "web_search"])
@asynchronous
async def test_no_skill_fetches_from_a_private_address_unless_allowed(name: str) -> None:
    seen: list[str] = []

    async def answer(request: web.BaseRequest) -> web.Response:
        seen.append(request.path)
        return web.Response(text="secret")

    async with serving(answer) as base, calling(allow_private=False, searxng=base) as call:
        said = await call(name, **({"query": "x"} if name == "web_search" else {"url": base}))
        redirected = await call(name, config={"allow_private": True}, input=base.replace("127.0.0.1", "localhost"))

    assert said.is_error
    assert redirected.is_error
    assert "private address" in said.text
    assert seen == []


@asynchronous
async def test_the_search_server_of_the_operator_may_be_private_but_pages_may_not() -> None:
    async def answer(request: web.BaseRequest) -> web.Response:
        return web.json_response({"results": []})

    inside = Egress(allow_private=True)
    async with serving(answer) as base, calling(allow_private=False, operator_egress=inside, searxng=base) as call:
        assert (await call("web_search", query="x")).structured == {"results": []}
        assert (await call("web_browse", url=base)).is_error
    await inside.close()
