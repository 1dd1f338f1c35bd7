"""How often a ranking finds the right tool: R@5, nDCG@10 and MRR@10, beside FastMCP's ranker on the same tools.

    .venv/bin/python -m benchmarks.retrieval --data FOLDER

Each folder in FOLDER is a set: `tools.jsonl` with `id`, `server`, `name`, `description` and `inputSchema`, and
`queries.jsonl` with `query` and `gold`, the ids of the right tools. Without FOLDER only the two small sets in
`benchmarks/retrieval_sets` are measured.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable
from math import log2
from pathlib import Path
from statistics import median
from time import thread_time
from typing import Any, NamedTuple, TypeAlias

import msgspec

from waypost.search.documents import Document, Ranking
from waypost.search.embeddings import Embeddings, is_installed
from waypost.search.index import SearchIndex

OWN = Path(__file__).parent / "retrieval_sets"
VARIABLE = "WAYPOST_RETRIEVAL_DATA"
DEPTH = 10

Ranker: TypeAlias = Callable[[str], list[int]]


class NoData(Exception):
    """There are no sets where they were said to be."""


class Tool(msgspec.Struct):
    """A tool of a set."""

    id: int
    name: str
    description: str = ""
    server: str = ""
    inputSchema: dict[str, Any] = {}

    def parameters(self) -> list[str]:
        """Names of parameters, each with what is said about it."""
        found: list[str] = []
        for name, schema in (self.inputSchema.get("properties") or {}).items():
            found.append(name)
            if isinstance(schema, dict) and isinstance(schema.get("description"), str):
                found.append(schema["description"])
        return found


class Question(msgspec.Struct):
    """A query of a set, with the ids of the right tools."""

    query: str
    gold: list[int]


class Measured(NamedTuple):
    """How one ranker does on one set."""

    recall: float
    ndcg: float
    mrr: float
    p50_ms: float


class Set(NamedTuple):
    """Tools, and questions with right answers."""

    name: str
    tools: list[Tool]
    questions: list[Question]


def sets(data: Path | None) -> list[Set]:
    """Our own sets, and those of a folder."""
    folders = [*_folders(OWN), *(_folders(data) if data is not None else ())]
    return [
        Set(folder.name, _lines(folder / "tools.jsonl", Tool), _lines(folder / "queries.jsonl", Question))
        for folder in folders
    ]


def _folders(data: Path) -> list[Path]:
    found = sorted(tools.parent for tools in data.glob("*/tools.jsonl"))
    if not found:
        raise NoData(
            f"{data} has no folder with tools.jsonl and queries.jsonl; give another with --data or {VARIABLE}."
        )
    return found


def _lines(file: Path, kind: type[Any]) -> list[Any]:
    decoder = msgspec.json.Decoder(kind)
    return [decoder.decode(line) for line in file.read_bytes().splitlines() if line.strip()]


def rankers(tools: list[Tool]) -> dict[str, Ranker]:
    """Every contender, with these tools in its index."""
    rankings: tuple[Ranking, ...] = ("hybrid", "auto")
    found = {"weighted": _waypost(tools, "weighted")}
    found |= {f"{ranking} words": _waypost(tools, ranking) for ranking in rankings}
    if is_installed():
        found |= {ranking: _waypost(tools, ranking, Embeddings()) for ranking in rankings}
    fastmcp = _fastmcp(tools)
    return found if fastmcp is None else {"fastmcp bm25": fastmcp, **found}


def _waypost(tools: list[Tool], ranking: Ranking, embeddings: Embeddings | None = None) -> Ranker:
    index = SearchIndex(ranking, embeddings)
    numbers: dict[str, int] = {}
    for tool in tools:
        id = f"{tool.server}.{tool.name}" if tool.server else tool.name
        if id in numbers:
            id = f"{id}.{tool.id}"
        numbers[id] = tool.id
        index.add(Document(id, description=tool.description, text=id, parameters=tuple(tool.parameters())))
    if embeddings is not None:
        embeddings.wait()
    return lambda query: [numbers[id] for _, id in index.search(query, limit=DEPTH).results]


def _fastmcp(tools: list[Tool]) -> Ranker | None:
    """FastMCP's own ranker, over the text that it would make of each tool."""
    try:
        from fastmcp.server.transforms.search.bm25 import _BM25Index
    except ImportError:
        return None
    index = _BM25Index()
    index.build([_fastmcp_text(tool) for tool in tools])
    return lambda query: [tools[place].id for place in index.query(query, DEPTH)]


def _fastmcp_text(tool: Tool) -> str:
    name = f"{tool.server}_{tool.name}" if tool.server else tool.name
    return " ".join(part for part in (name, tool.description, *tool.parameters()) if part)


def measure(ranker: Ranker, questions: list[Question]) -> Measured:
    """Ask every question once; times are this thread's own."""
    ranker(questions[0].query)
    quality: list[tuple[float, float, float]] = []
    times: list[float] = []
    for question in questions:
        began = thread_time()
        found = ranker(question.query)
        times.append((thread_time() - began) * 1000)
        quality.append(judge(found, set(question.gold)))
    recall, ndcg, mrr = (sum(values) / len(values) for values in zip(*quality, strict=True))
    return Measured(recall, ndcg, mrr, median(times))


def judge(found: list[int], gold: set[int]) -> tuple[float, float, float]:
    """R@5, nDCG@10 and MRR@10 of one answer."""
    places = [place for place, tool in enumerate(found[:DEPTH]) if tool in gold]
    ideal = _gain(range(min(DEPTH, len(gold))))
    return sum(place < 5 for place in places) / len(gold), _gain(places) / ideal, 1 / (places[0] + 1) if places else 0.0


def _gain(places: Iterable[int]) -> float:
    return sum(1 / log2(place + 2) for place in places)


def folder(given: Path | None = None) -> Path | None:
    """Where the sets are: as given, else as the environment says."""
    named = os.environ.get(VARIABLE)
    return given or (Path(named) if named else None)


def main(arguments: list[str] | None = None) -> int:
    """Print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.retrieval", description=__doc__)
    parser.add_argument("--data", type=Path, help=f"folder of sets; default: {VARIABLE} in the environment")
    data = folder(parser.parse_args(arguments).data)
    try:
        found = sets(data)
    except NoData as error:
        print(error, file=sys.stderr)
        return 1
    if data is None:
        print(f"Only our own small sets: name a folder of sets with --data or {VARIABLE} for more.")
    print(f"{'set':<16}{'tools':>6}{'queries':>8}  {'ranker':<14}{'R@5':>6}{'nDCG@10':>9}{'MRR@10':>8}{'p50 ms':>8}")
    for each in found:
        for name, ranker in rankers(each.tools).items():
            measured = measure(ranker, each.questions)
            print(
                f"{each.name:<16}{len(each.tools):>6}{len(each.questions):>8}  {name:<14}"
                f"{measured.recall:>6.3f}{measured.ndcg:>9.3f}{measured.mrr:>8.3f}"
                f"{measured.p50_ms:>8.2f}"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
