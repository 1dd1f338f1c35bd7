"""`waypost search`, on every kind of target."""

from __future__ import annotations

import json
import re

from tests.cli.operated import Captured, complaint, printed
from tests.cli.targets import LOCAL, on
from waypost.cli import main


@on(*LOCAL, "waypost.yaml", "GATEWAY")
def test_results_are_printed_with_the_best_first(target: str, capsys: Captured) -> None:
    assert main(["search", target, "add"]) == 0

    assert re.match(r" *\d+\.\d{3}  capability  add +Add two numbers\.?\n", printed(capsys))


@on("server.py:hub", "GATEWAY")
def test_a_search_as_json_is_the_answer_of_the_gateway(target: str, capsys: Captured) -> None:
    assert main(["search", target, "", "--kind", "prompt", "--limit", "1", "--json"]) == 0

    found = json.loads(printed(capsys))
    (result,) = found["results"]
    assert (result["score"], result["item"]["id"], found["ranking"]) == (1.0, "prompt:greet", "weighted")


@on("server.py:hub", "GATEWAY")
def test_a_search_that_finds_nothing_prints_nothing(target: str, capsys: Captured) -> None:
    assert main(["search", target, "zzzz"]) == 0
    assert printed(capsys) == ""


def test_a_served_hub_without_a_gateway_cannot_be_searched(url: str, capsys: Captured) -> None:
    assert main(["search", url, "add"]) == 1
    assert "has no gateway" in complaint(capsys)
