"""The parsers hold for inputs made of their own words and of mutated examples."""

from __future__ import annotations

from time import thread_time
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.mutators import Mutator
from tests.fuzz.parsers import PARSERS

MAX_SECONDS: Final = 1.0
EXAMPLES: Final = 150


def run(name: str, data: bytes) -> None:
    """Run a parser, which may take a second of CPU time at most."""
    began = thread_time()
    PARSERS[name].fuzz(data)
    assert thread_time() - began < MAX_SECONDS, f"{name} took {thread_time() - began:.1f} s for {data[:200]!r}"


@pytest.mark.parametrize("name", PARSERS)
def test_a_parser_reads_its_examples(name: str) -> None:
    for seed in PARSERS[name].seeds:
        run(name, seed)


@pytest.mark.parametrize("name", PARSERS)
def test_a_parser_holds_for_inputs_made_of_its_words(name: str) -> None:
    words = st.lists(st.sampled_from(PARSERS[name].words) | st.binary(max_size=4), max_size=60)

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
    @given(words)
    def holds(parts: list[bytes]) -> None:
        run(name, b"".join(parts))
        run(name, b" ".join(parts))

    holds()


@pytest.mark.parametrize("name", PARSERS)
def test_a_parser_holds_for_mutated_examples(name: str) -> None:
    seeds = PARSERS[name].seeds

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.integers(0, 2**32))
    def holds(seed: int) -> None:
        mutator = Mutator(seed, [*seeds, *PARSERS[name].words])
        data = mutator.chance.choice(seeds)
        for _ in range(4):
            data = mutator.mutate(data)[:100_000]
            run(name, data)

    holds()
