"""The answers and links of `gateway.home`, `gateway.search` and `gateway.describe`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.conftest import asynchronous
from tests.gateway.conftest import agent, eras, office
from waypost import Hub
from waypost.gateway.directory import PAGE_SIZE
from waypost.gateway.gateway import MAX_RESULTS

ITEM = {"id", "kind", "title", "description", "tags", "links"}


def crowd(many: int, **options: Any) -> Hub:
    hub = Hub("crowd", version="1", surface="gateway", **options)
    for number in range(many):
        hub.tool(name=f"t{number:05}", description="One of many", category=f"c{number % 2}")(lambda: "x")
    return hub


# home


@eras
@asynchronous
async def test_home_shows_everything_with_the_call_that_uses_it(version: str) -> None:
    async with agent(office(), version) as a:
        home = await a.home()
        assert home.keys() == {"items", "links"}
        assert all(item.keys() == ITEM for item in home["items"])
        assert {item["id"]: item["kind"] for item in home["items"]} == {
            "docs://guide": "document",
            "mail.send": "capability",
            "prompt:greet": "prompt",
            "release": "workflow",
            "skill:count": "skill",
        }
        assert [item["id"] for item in home["items"]] == sorted(item["id"] for item in home["items"])
        mail = next(item for item in home["items"] if item["id"] == "mail.send")
        assert mail == {
            "id": "mail.send",
            "kind": "capability",
            "title": "Send a mail",
            "description": "Send a mail to somebody.",
            "tags": ["mail"],
            "links": [
                {
                    "rel": "start",
                    "method": "workflow.start",
                    "args": {"definitionId": "proxy_default", "input": {"capability": "mail.send"}},
                }
            ],
        }


@eras
@asynchronous
async def test_every_link_of_home_can_be_followed_unchanged(version: str) -> None:
    hub = office()
    hub.prompt(name="sum-up")(lambda: "Sum up.")
    async with agent(hub, version) as a:
        home = await a.home()
        answers = {
            item["id"]: await a.follow(item["links"][0]) for item in home["items"] if item["id"] != "prompt:greet"
        }
        assert [answers[id]["state"] for id in ("release", "mail.send", "skill:count")] == ["build", "ready", "ready"]
        assert answers["docs://guide"]["contents"][0]["text"] == "# Guide"
        assert answers["prompt:sum-up"]["messages"]
        for link in home["links"]:
            assert (await a.follow(link))["results"]


@asynchronous
async def test_a_hub_with_nothing_has_an_empty_home() -> None:
    async with agent(Hub("empty", version="1", surface="gateway")) as a:
        assert (await a.home())["items"] == []
        assert (await a.search("anything"))["results"] == []


@asynchronous
async def test_a_catalog_of_one_page_is_complete() -> None:
    async with agent(crowd(PAGE_SIZE)) as a:
        home = await a.home()
        assert len(home["items"]) == PAGE_SIZE
        assert home.keys() == {"items", "links"}


@eras
@asynchronous
async def test_a_larger_catalog_has_pages_with_counts_and_advice_to_search(version: str) -> None:
    async with agent(crowd(2 * PAGE_SIZE + 1), version) as a:
        home, sizes, seen = await a.home(), [], []
        while True:
            sizes.append(len(home["items"]))
            seen += [item["id"] for item in home["items"]]
            assert home["counts"] == {"kind": {"capability": 401}, "category": {"c0": 201, "c1": 200}}
            assert "search" in home["advice"]
            following = [link for link in home["links"] if link["rel"] == "next"]
            if not following:
                break
            home = await a.follow(following[0])
        assert sizes == [PAGE_SIZE, PAGE_SIZE, 1]
        assert seen == [f"t{number:05}" for number in range(401)]


@asynchronous
async def test_the_next_page_is_stable_while_tools_are_added_and_removed() -> None:
    hub = crowd(PAGE_SIZE + 2)
    async with agent(hub) as a:
        link = (await a.home())["links"][0]
        hub.remove(f"t{PAGE_SIZE - 1:05}")
        hub.tool(name="a-new-one")(lambda: "x")
        assert [item["id"] for item in (await a.follow(link))["items"]] == [f"t{PAGE_SIZE:05}", f"t{PAGE_SIZE + 1:05}"]


# search


@eras
@asynchronous
async def test_a_search_answers_scores_items_and_the_ranking(version: str) -> None:
    async with agent(office(), version) as a:
        answer = await a.search("mail")
        assert answer.keys() == {"results", "ranking", "links"}
        assert answer["ranking"] == "weighted"
        (result,) = answer["results"]
        assert result.keys() == {"score", "item"}
        # title 6, id 5, tags 3, description 2, text (the id) 1
        assert result["score"] == 17.0
        assert result["item"] == next(item for item in (await a.home())["items"] if item["id"] == "mail.send")
        assert (await a.follow(answer["links"][0]))["items"]


@asynchronous
async def test_items_are_found_by_their_aliases_states_transitions_and_goals() -> None:
    async with agent(office()) as a:
        assert await a.found("post") == ["mail.send"]
        for words in ("ship", "publish", "wheel", "DEPLOY"):
            assert await a.found(words) == ["release"], words


@asynchronous
async def test_a_sentence_is_ranked_by_its_rare_words() -> None:
    async with agent(office()) as a:
        answer = await a.search("I would like to know how to count the words of a text")
        assert answer["ranking"] == "hybrid"
        assert answer["results"][0]["item"]["id"] == "skill:count"
        assert (await a.search("mail", kind="capability"))["ranking"] == "weighted"


@pytest.mark.parametrize(("ranking", "query"), [("weighted", "please do send me a mail"), ("hybrid", "mail")])
@asynchronous
async def test_the_ranking_can_be_chosen(ranking: str, query: str) -> None:
    async with agent(office(ranking=ranking)) as a:
        assert (await a.search(query))["ranking"] == ranking


@eras
@asynchronous
async def test_an_empty_query_lists_everything(version: str) -> None:
    async with agent(office(), version) as a:
        for arguments in ({"query": ""}, {"query": " ?! "}, {}):
            results = (await a.call("gateway.search", **arguments))["results"]
            assert [one["item"]["id"] for one in results] == await a.ids()
            assert {one["score"] for one in results} == {1.0}


@asynchronous
async def test_only_one_kind_can_be_asked_for() -> None:
    async with agent(office()) as a:
        for kind, id in (
            ("workflow", "release"),
            ("capability", "mail.send"),
            ("skill", "skill:count"),
            ("prompt", "prompt:greet"),
            ("document", "docs://guide"),
        ):
            assert await a.found("", kind=kind) == [id]


@pytest.mark.parametrize(
    ("limit", "many"),
    [
        (None, 10),
        (3, 3),
        (MAX_RESULTS, MAX_RESULTS),
        (MAX_RESULTS + 1, MAX_RESULTS),
        (10**12, MAX_RESULTS),
        (0, 1),
        (-5, 1),
        (3.0, 3),
    ],
)
@asynchronous
async def test_limits_are_clamped_between_1_and_100(limit: int | None, many: int) -> None:
    async with agent(crowd(MAX_RESULTS + 50)) as a:
        given: dict[str, Any] = {} if limit is None else {"limit": limit}
        for query in ("", "many", "one of the many that there are"):
            assert len(await a.found(query, **given)) == many


# describe


@eras
@asynchronous
async def test_an_item_is_described_flat_with_the_schema_in_its_link(version: str) -> None:
    async with agent(office(), version) as a:
        described = await a.describe("mail.send")
        (link,) = described["links"]
        schema = link.pop("input_schema")
        assert schema["required"] == ["to"]
        assert schema["properties"].keys() == {"to", "text"}
        assert described.pop("aliases") == ["post"]
        assert described == next(item for item in (await a.home())["items"] if item["id"] == "mail.send")


@asynchronous
async def test_everything_that_is_listed_can_be_described() -> None:
    async with agent(office()) as a:
        described = {id: await a.describe(id) for id in await a.ids()}
        schemas = {id: item["links"][0]["input_schema"] for id, item in described.items()}
        assert [item["id"] for item in described.values()] == list(described)
        assert schemas["release"]["properties"] == {"version": {"type": "string"}}
        assert schemas["prompt:greet"]["required"] == ["name"]
        assert schemas["prompt:greet"]["properties"].keys() == {"name", "tone"}
        assert schemas["docs://guide"] is None


@eras
@asynchronous
async def test_an_unknown_id_is_answered_with_the_nearest_and_a_search_link(version: str) -> None:
    async with agent(office(), version) as a:
        refused = await a.describe("mail.sned")
        assert refused["id"] == "mail.sned"
        assert refused["error"]["code"] == "UNKNOWN_ID"
        assert "mail.send" in refused["error"]["message"]
        assert refused["error"]["nearest"] == ["mail.send"]
        near, search = refused["links"]
        assert (await a.follow(near))["id"] == "mail.send"
        assert (await a.follow(search))["results"][0]["item"]["id"] == "mail.send"


@pytest.mark.parametrize("id", ["", " ", "\x00", "ä" * 10_000, "mail.send ", "gateway.home", "attic", "docs://logo"])
@asynchronous
async def test_an_id_that_is_not_an_item_is_unknown(id: str) -> None:
    async with agent(office()) as a:
        refused = await a.describe(id)
        assert refused["error"]["code"] == "UNKNOWN_ID"
        assert refused["links"][-1]["method"] == "gateway.search"
