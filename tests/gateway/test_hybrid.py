"""Sentences find the right tool, by words alone and with embeddings, however the catalog changes."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from random import Random
from time import thread_time

import pytest

from tests.gateway.conftest import agent, office
from tests.gateway.corpora import documents
from tests.protocol.conftest import asynchronous, until
from waypost.gateway import gateway
from waypost.search import embeddings as embedding
from waypost.search.bm25 import split_sentences
from waypost.search.documents import Document
from waypost.search.embeddings import Embeddings, is_installed
from waypost.search.index import SearchIndex

with_embeddings = pytest.mark.skipif(not is_installed(), reason="needs waypost[embeddings]")
TOOLS = [
    Document("calendar.createEvent", description="Put a meeting into the calendar.", parameters=("attendees", "start")),
    Document("mail.send_message", description="Send an e-mail to somebody.", parameters=("recipient", "subject")),
    Document("money.convert_currency", description="Convert an amount into another currency."),
    Document("weather.current", description="Tell temperature and rain at a place right now.", tags=("meteorology",)),
    Document("code.rollback_release", "workflow", description="Put the previous release back into production."),
]


@pytest.fixture(params=[False, pytest.param(True, marks=with_embeddings)], ids=["words", "meaning"])
def index(request: pytest.FixtureRequest) -> Iterator[SearchIndex]:
    embeddings = Embeddings() if request.param else None
    index = SearchIndex(embeddings=embeddings)
    for tool in TOOLS:
        index.add(tool)
    if embeddings is not None:
        embeddings.wait()
    yield index
    index.close()


def first(index: SearchIndex, query: str) -> str:
    found = index.search(query)
    assert found.ranking == "hybrid"
    return found.results[0].id


@pytest.mark.parametrize(
    ("query", "id"),
    [
        ("Could you set up a meeting with the sales team", "calendar.createEvent"),
        ("who are the attendees of our next gathering", "calendar.createEvent"),
        ("please send this to Anna with the subject lunch", "mail.send_message"),
        ("how many dollars is this amount when converted", "money.convert_currency"),
        ("I need some meteorology for Bergen", "weather.current"),
        ("the new one is broken, go back to the previous release", "code.rollback_release"),
    ],
)
def test_a_sentence_finds_the_tool_it_is_about(index: SearchIndex, query: str, id: str) -> None:
    assert first(index, query) == id


def test_each_sentence_of_a_query_finds_its_own_tool(index: SearchIndex) -> None:
    found = index.search(
        "Convert the amount of this bill into another currency, say Swiss francs, with the currency rate of today."
        " Then send an e-mail to Anna.",
        limit=2,
    )

    assert {id for _, id in found.results} == {"money.convert_currency", "mail.send_message"}


def test_equal_documents_have_the_same_score_and_are_ordered_by_id() -> None:
    index = SearchIndex()
    for number in (3, 1, 2):
        index.add(Document(f"shop{number}.order_pizza", description="Order a pizza."))
    results = index.search("I would like to order a pizza", limit=3).results

    assert [id for _, id in results] == ["shop1.order_pizza", "shop2.order_pizza", "shop3.order_pizza"]
    assert len({score for score, _ in results}) == 1


def test_a_changed_index_gives_the_same_results_as_a_new_one() -> None:
    chance = Random(5)
    changed, built = SearchIndex("hybrid"), SearchIndex("hybrid")
    left = {document.id: document for document in documents(300)}
    for document in left.values():
        changed.add(document)
    for id in chance.sample(sorted(left), 120):
        changed.remove(id)
        del left[id]
    for document in left.values():
        built.add(document)

    for query in ("list the open issues of my github repository", "send a payment to the customer now"):
        mine, theirs = changed.search(query, limit=50).results, built.search(query, limit=50).results
        assert mine == theirs


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("List the open issues! Close the oldest ticket today.", 2),
        ("List the issues of v1.2 in repo.name", 1),
        ("Hello. List the open issues of the repository.", 1),
        ("One line says this much\nanother line says that much", 2),
        ("sentence number one here. " * 40, 8),
        ("", 1),
    ],
)
def test_a_query_is_split_into_sentences(query: str, count: int) -> None:
    assert len(split_sentences(query)) == count


def test_a_long_run_of_dots_is_split_fast() -> None:
    query = "send a message soon" + "." * 50_000
    began = thread_time()
    assert split_sentences(query) == [query]
    assert thread_time() - began < 5


@with_embeddings
def test_embeddings_find_a_tool_that_shares_no_word_with_the_query() -> None:
    embeddings = Embeddings()
    index = SearchIndex("hybrid", embeddings)
    for tool in TOOLS:
        index.add(tool)
    embeddings.wait()

    assert first(index, "electronic post for my colleague") == "mail.send_message"
    index.close()


@with_embeddings
def test_a_search_does_not_wait_for_the_embeddings() -> None:
    index = SearchIndex("hybrid", Embeddings())
    for tool in TOOLS:
        index.add(tool)

    assert first(index, "put a meeting into the calendar") == "calendar.createEvent"
    index.close()


@with_embeddings
def test_embeddings_are_loaded_without_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the network was used")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    embeddings = Embeddings()
    embeddings.add(0, TOOLS[0])
    embeddings.wait()

    embedded = embeddings.encode(["a meeting"])
    assert embedded is not None
    assert embedded.shape == (2, embedding.DIMENSIONS)
    embeddings.close()


@with_embeddings
def test_vectors_follow_the_documents() -> None:
    embeddings = Embeddings()
    index = SearchIndex("hybrid", embeddings)
    index.add(Document("a", description="Bake a cake."))
    index.add(Document("b", description="Repair a bicycle."))
    embeddings.wait()
    index.add(Document("a", description="Repair an automobile."))
    index.remove("b")
    index.add(Document("c", description="Prepare a dessert."))
    embeddings.wait()

    assert first(index, "confectionery with sugar and flour") == "c"
    assert first(index, "my motor vehicle is broken") == "a"
    index.close()


@with_embeddings
def test_without_loadable_embeddings_the_search_uses_words(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise FileNotFoundError("weights.npz")

    monkeypatch.setattr(embedding.Model, "load", fail)
    embeddings = Embeddings()
    index = SearchIndex("hybrid", embeddings)
    index.add(TOOLS[0])
    with pytest.raises(FileNotFoundError):
        embeddings.wait()

    assert first(index, "put a meeting into the calendar") == "calendar.createEvent"
    assert first(index, "put a meeting into the calendar") == "calendar.createEvent"
    assert caplog.text.count("Embeddings cannot be loaded") == 1
    index.close()


@pytest.mark.parametrize("meaning", [False, pytest.param(True, marks=with_embeddings)])
def test_a_very_long_query_is_fast(meaning: bool) -> None:
    embeddings = Embeddings() if meaning else None
    index = SearchIndex("hybrid", embeddings)
    for document in documents(100 if meaning else 5000):
        index.add(document)
    if embeddings is not None:
        embeddings.wait()
    everything = " ".join(document.description for document in documents(400))
    index.search(everything)

    def seconds() -> float:
        began = thread_time()
        index.search(everything)
        return thread_time() - began

    # Far more than it takes on this machine: the test finds queries whose cost grows with their length.
    assert min(seconds() for _ in range(5)) < 0.05
    index.close()


@with_embeddings
def test_a_closed_index_uses_embeddings_again() -> None:
    embeddings = Embeddings()
    index = SearchIndex("hybrid", embeddings)
    for number in range(100):
        index.add(Document(f"tool_{number}", description=f"Counts the pages of book number {number}"))
    embeddings.start()
    index.close()

    embeddings.wait()

    assert index.search("how many pages has book number seven in the shelf").results
    index.close()


@with_embeddings
def test_a_catalog_that_is_too_large_is_ranked_by_words_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "MAX_DOCUMENTS", 3)
    embeddings = Embeddings()
    index = SearchIndex("hybrid", embeddings)
    for tool in TOOLS:
        index.add(tool)
    embeddings.wait()

    found = index.search("put a meeting into the calendar")

    assert (found.ranking, list(found.signals)) == ("hybrid", ["words"])
    assert found.results[0].id == "calendar.createEvent"
    index.close()


@with_embeddings
def test_the_signals_of_a_ranking_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    may_load, load = threading.Event(), embedding.Model.load

    def load_later() -> embedding.Model:
        may_load.wait(60)
        return load()

    monkeypatch.setattr(embedding.Model, "load", load_later)
    embeddings = Embeddings()
    index = SearchIndex("auto", embeddings)
    index.add(TOOLS[0])

    assert list(index.search("put a meeting into the calendar").signals) == ["words"]
    may_load.set()
    embeddings.wait()
    assert list(index.search("put a meeting into the calendar").signals) == ["words", "meaning"]
    assert index.search("meeting").signals == ()
    index.close()


@with_embeddings
def test_embeddings_rank_only_when_every_visible_document_has_a_vector(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    embeddings = Embeddings()
    index = SearchIndex("hybrid", embeddings)
    for tool in TOOLS[1:]:
        index.add(tool)
    embeddings.wait()
    monkeypatch.setattr(Embeddings, "start", lambda self: None)
    index.add(TOOLS[0])

    others = index.view(lambda id: id != TOOLS[0].id)
    list(others.update())
    query = "put a meeting into the calendar"
    assert list(index.search(query).signals) == ["words"]
    assert list(index.search(query, view=others).signals) == ["words", "meaning"]

    monkeypatch.undo()
    embeddings.wait()
    assert list(index.search(query).signals) == ["words", "meaning"]
    index.close()


@with_embeddings
@asynchronous
async def test_a_query_is_encoded_off_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "_LOADING_DELAY_S", 0.0)
    model = await asyncio.to_thread(embedding.Model.load)
    encoded: list[tuple[int, list[str]]] = []

    def encode(texts: list[str]) -> object:
        encoded.append((threading.get_ident(), texts))
        return embedding.Model.encode(model, texts)

    async with agent(office()) as a:
        embeddings = a.hub.runtime.gateway.directory.index._embeddings
        assert embeddings is not None
        await until(lambda: embeddings._jobs is not None)
        await asyncio.to_thread(embeddings.wait)
        monkeypatch.setattr(model, "encode", encode)
        answer = await a.search("how many words does my text have")

    assert answer["signals"] == ["words", "meaning"]
    [thread] = [thread for thread, texts in encoded if texts == ["how many words does my text have"]]
    assert thread != threading.get_ident()


@with_embeddings
@asynchronous
async def test_a_hub_loads_its_embeddings_before_the_first_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "_LOADING_DELAY_S", 0.0)
    await asyncio.to_thread(embedding.Model.load)  # a busy machine takes its time
    async with agent(office()) as a:
        embeddings = a.hub.runtime.gateway.directory.index._embeddings
        assert embeddings is not None
        await until(lambda: embeddings._jobs is not None)
        await asyncio.to_thread(embeddings.wait)
        answer = await a.search("how many words does my text have")
        assert (answer["ranking"], answer["signals"]) == ("hybrid", ["words", "meaning"])
