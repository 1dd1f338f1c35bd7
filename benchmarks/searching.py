"""A process with an index of so many made-up capabilities, measured from within: its answer is one line of JSON."""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from statistics import median, quantiles
from time import process_time, thread_time

import msgspec

from waypost.search.documents import Document
from waypost.search.embeddings import Embeddings
from waypost.search.index import SearchIndex
from waypost.search.words import split_runs

VERBS = split_runs(
    "list get create update delete search deploy build run send read write fetch sync export import approve cancel"
    " schedule merge close open assign upload download validate convert translate analyze restart"
)
NOUNS = split_runs(
    "issue repository request branch commit file document message channel user team invoice payment order customer"
    " product shipment ticket calendar event contact dashboard metric alert log container cluster service database"
    " table schema report image video workflow pipeline release deployment environment secret token account project"
    " task comment label milestone review backup policy session webhook budget forecast"
)
SERVERS = split_runs(
    "github gitlab slack jira stripe salesforce notion linear postgres mysql redis kafka docker kubernetes aws azure"
    " hubspot zendesk shopify twilio datadog grafana sentry pagerduty confluence trello asana dropbox"
)
FILLING = split_runs(
    "the of a from in to with for given all new existing by name id and returns optional filter results page size"
    " default specified workspace current using details status data information"
)
SYLLABLES = split_runs("ba ko ri tel mun dra vex sol qui ter phi lo gan ster ing ment")
QUERIES = 150


class Answer(msgspec.Struct):
    """What one process measured."""

    build_us: float
    memory_mb: float
    cold_p50_ms: float
    p50_ms: float
    p99_ms: float
    sentence_p50_ms: float
    sentence_max_ms: float


def documents(count: int) -> Iterator[Document]:
    """Capabilities of many servers, with a few thousand words that are rare."""
    chance = Random(1)
    rare = ["".join(chance.choices(SYLLABLES, k=chance.randint(2, 4))) for _ in range(4000)]
    for number in range(count):
        verb, server = chance.choice(VERBS), chance.choice(SERVERS)
        noun, other = chance.choice(NOUNS), chance.choice(NOUNS)
        id = f"{server}.{verb}_{noun}_{number}"
        filling = " ".join(chance.choices(FILLING, k=10))
        yield Document(
            id,
            title=f"{verb.title()} {server} {noun}s" if number % 3 else f"{verb.title()} {noun} {other}",
            description=f"{verb.title()}s {noun}s {filling} {server} {other} {chance.choice(rare)}.",
            tags=(server, noun, verb),
            aliases=(f"{chance.choice(VERBS)} {other}",) if number % 5 == 0 else (),
            text=id,
            parameters=(f"{other}_id", "page", "limit"),
        )


def keywords() -> list[str]:
    """One to three terms, every third query with a slip of the keyboard."""
    chance = Random(2)
    return [" ".join(_term(chance, place, number) for place in range(1 + number % 3)) for number in range(QUERIES)]


def _term(chance: Random, place: int, number: int) -> str:
    word = chance.choice(chance.choice((VERBS, NOUNS, SERVERS)))
    if place or number % 3:
        return word
    at = chance.randrange(len(word) - 1)
    return f"{word[:at]}{word[at + 1]}{word[at]}{word[at + 2 :]}"


def tasks() -> list[str]:
    """One to five sentences each."""
    chance = Random(3)
    return [" ".join(_sentence(chance) for _ in range(1 + number % 5)) for number in range(QUERIES)]


def _sentence(chance: Random) -> str:
    filling = " ".join(chance.choices(FILLING, k=6))
    return f"Please {chance.choice(VERBS)} {filling} {chance.choice(NOUNS)} of our {chance.choice(SERVERS)} account."


def _times(queries: list[str], ask: Callable[[str], object]) -> list[float]:
    """Milliseconds of this thread for each query, so that other work on the machine disturbs less."""
    found = []
    for query in queries:
        began = thread_time()
        ask(query)
        found.append((thread_time() - began) * 1000)
    return found


def _memory_mb() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def measure(count: int, meaning: bool) -> Answer:
    """Build an index and ask it."""
    made = list(documents(count))
    gc.collect()
    before = _memory_mb()
    embeddings = Embeddings() if meaning else None
    index = SearchIndex(embeddings=embeddings)
    began = process_time()
    for document in made:
        index.add(document)
    build = process_time() - began
    memory = _memory_mb() - before
    if embeddings is not None:
        embeddings.wait()
    gc.collect()
    gc.freeze()
    cold = _times(keywords(), index.search)
    warm = _times(keywords(), index.search)
    index.search(tasks()[0])
    sentences = _times(tasks(), index.search)
    return Answer(
        build / count * 1e6,
        memory,
        median(cold),
        median(warm),
        quantiles(warm, n=100)[-1],
        median(sentences),
        max(sentences),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("--embeddings", action="store_true")
    given = parser.parse_args()
    sys.stdout.buffer.write(msgspec.json.encode(measure(given.count, given.embeddings)) + b"\n")


if __name__ == "__main__":
    main()
