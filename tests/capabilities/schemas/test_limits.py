from pathlib import Path

import pytest

from waypost.capabilities.schemas import graph

PAGE = (Path(__file__).parents[3] / "docs" / "tools-and-toolkits.md").read_text()


@pytest.mark.parametrize(
    "row",
    [
        f"| size as JSON | {graph.MAX_SCHEMA_BYTES >> 20} MiB |",
        f"| nesting | {graph.MAX_DEPTH} levels |",
        f"| subschemas | {graph.MAX_SUBSCHEMAS:,} |",
        f"| different patterns | {graph.MAX_PATTERNS:,} |",
        f" | {graph.MAX_PATTERN_SIZE:,} |",
        f"| checks of one value | {graph.MAX_CHECKS_PER_PLACE:,} |",
        f"at most {graph.MAX_PROBLEMS} problems in at most {graph.MAX_PROBLEMS_BYTES >> 10} KiB",
        f"{graph.MAX_PROBLEM_STEPS:,} steps, the message names only the first one",
        f"may need {graph.MAX_CHECKS // 1_000_000} million checks",
        f"Most schemas cost fewer than {graph.FREE_CHECKS_PER_PLACE}",
    ],
)
def test_the_limits_are_documented(row: str) -> None:
    assert row in PAGE
