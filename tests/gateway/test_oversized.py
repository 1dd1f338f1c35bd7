"""Ids and queries of four megabytes: they are answered at once, and not repeated."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.contract.conftest import asynchronous
from tests.gateway.conftest import Json, agent, eras
from waypost import Hub
from waypost.errors import MAX_ECHOED_CHARACTERS, RemoteError
from waypost.search.documents import Document
from waypost.search.index import MAX_QUERY_CHARACTERS, MAX_TERM_CHARACTERS, MAX_TERMS, SearchIndex

SIZE = 4_000_000
MAX_SECONDS = 5.0
"""Of processor time, for what takes seconds or minutes if every character is compared."""
MAX_ANSWER_BYTES = 10_000
NAME = "customer.send_message_to_account_{:05}"


def crowd(many: int = 500) -> Hub:
    hub = Hub("crowd", version="1", surface="both")
    for number in range(many):
        hub.tool(name=NAME.format(number), description="Send a message to a customer.")(lambda: "sent")
    return hub


def oversized(text: str) -> str:
    return (text * (SIZE // len(text) + 1))[:SIZE]


@contextmanager
def at_once() -> Iterator[None]:
    began = time.thread_time()
    yield
    assert time.thread_time() - began < MAX_SECONDS


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("gateway.describe", {"id": oversized(NAME.format(7))}),
        ("gateway.describe", {"id": oversized("customer")}),
        ("gateway.describe", {"id": oversized("send message to customer ")}),
        ("workflow.start", {"definitionId": "proxy_default", "input": {"capability": oversized(NAME.format(7))}}),
        ("workflow.explain", {"definitionId": "proxy_default", "transition": oversized(NAME.format(7))}),
        ("workflow.start", {"definitionId": oversized("proxy_defaults"), "input": {}}),
        ("workflow.explain", {"definitionId": oversized("proxy_defaults")}),
        ("workflow.get", {"workflowId": oversized("wf_0")}),
        ("workflow.submit", {"workflowId": oversized("wf_0"), "expectedVersion": 1, "transition": "go"}),
        ("gateway.home", {"cursor": oversized("YWZ0")}),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
@eras
@asynchronous
async def test_an_oversized_id_is_unknown_at_once_and_cut_in_the_answer(
    tool: str, arguments: Json, version: str
) -> None:
    async with agent(crowd(), version) as a:
        with at_once():
            result = await a.client.call_tool(tool, arguments)
        assert result["isError"]
        assert "…" in result["structuredContent"]["error"]["message"]
        assert len(result.text) < MAX_ANSWER_BYTES


@asynchronous
async def test_an_oversized_id_is_still_answered_with_the_nearest_ids_and_a_search() -> None:
    async with agent(crowd()) as a:
        refused = await a.describe(NAME.format(7) + "x" * 20)
        assert refused["error"]["code"] == "UNKNOWN_ID"
        assert refused["error"]["nearest"][0] == NAME.format(7)
        refused = await a.describe(oversized(NAME.format(7)))
        assert refused["error"]["code"] == "UNKNOWN_ID"
        assert len(refused["id"]) == MAX_ECHOED_CHARACTERS + 1
        assert (await a.follow(refused["links"][-1]))["results"]


@asynchronous
async def test_the_transition_of_an_instance_is_cut_in_the_refusal() -> None:
    async with agent(crowd(1)) as a:
        begun = await a.start(capability=NAME.format(0))
        refused = await a.call(
            "workflow.submit", workflowId=begun["workflowId"], expectedVersion=1, transition=oversized("go")
        )
        assert refused["error"]["code"] == "INVALID_TRANSITION"
        assert len(str(refused)) < MAX_ANSWER_BYTES


@pytest.mark.parametrize("name", [oversized(NAME.format(7)), "skill:" + oversized("x"), "workflow:" + oversized("x")])
@eras
@asynchronous
async def test_an_oversized_tool_name_is_cut_in_the_error(name: str, version: str) -> None:
    async with agent(crowd(), version) as a:
        with at_once(), pytest.raises(RemoteError, match=r"^Unknown (tool|skill|workflow): .*…$") as refused:
            await a.client.call_tool(name, {})
        assert len(str(refused.value)) < 2 * MAX_ECHOED_CHARACTERS


@pytest.mark.parametrize(
    "query",
    [
        oversized("customermessage"),
        oversized("customer message account "),
        " ".join(f"customer{number:06}" for number in range(SIZE // 15)),
        oversized("Send a message to a customer. "),
        "find me a tool " + oversized("CustomerMessage"),
        oversized("a b c d "),
        oversized("... "),
        "send a message soon" + oversized("."),
        oversized("ßüİ"),
    ],
    ids=[
        "one word",
        "few words",
        "distinct words",
        "sentences",
        "camel case",
        "letters",
        "punctuation",
        "dots",
        "other scripts",
    ],
)
@pytest.mark.parametrize("ranking", ["weighted", "hybrid"])
def test_an_oversized_query_is_answered_at_once(query: str, ranking: str) -> None:
    index = SearchIndex()
    for number in range(500):
        index.add(Document(id=NAME.format(number), description="Send a message to a customer."))
    with at_once():
        index.search(query, ranking=ranking)  # type: ignore[arg-type]  # one of the two


@asynchronous
async def test_an_oversized_query_is_searched_by_its_beginning() -> None:
    async with agent(crowd()) as a:
        with at_once():
            found = await a.search("customer " + oversized("customer "), limit=1)
        assert found["results"][0]["item"]["id"] == NAME.format(0)


# the budgets of a query


def small() -> SearchIndex:
    index = SearchIndex(ranking="weighted")
    index.add(Document(id="deploy", description="x" * MAX_TERM_CHARACTERS))
    return index


def test_only_the_first_characters_of_a_query_count() -> None:
    fitting = "deploy".rjust(MAX_QUERY_CHARACTERS)
    assert small().search(fitting) == small().search("deploy")
    assert small().search(" " * MAX_QUERY_CHARACTERS + "deploy") == small().search("")


def test_only_the_first_terms_of_a_query_count() -> None:
    whole, more = (small().search("deploy " * count).results for count in (MAX_TERMS, MAX_TERMS + 1))
    assert whole == more
    assert whole[0].score == MAX_TERMS * small().search("deploy").results[0].score


def test_only_the_first_characters_of_a_term_count() -> None:
    whole = "x" * MAX_TERM_CHARACTERS
    assert small().search(whole + "y") == small().search(whole)
    assert small().search(whole[1:] + "y") != small().search(whole[1:])
