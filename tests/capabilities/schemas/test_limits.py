from pathlib import Path

import pytest

from waypost.capabilities.schemas import limits

PAGE = (Path(__file__).parents[3] / "docs" / "tools-and-toolkits.md").read_text()


@pytest.mark.parametrize(
    "row",
    [
        f"| size as JSON | {limits.MAX_SCHEMA_BYTES >> 20} MiB |",
        f"| nesting | {limits.MAX_DEPTH} levels |",
        f"| subschemas | {limits.MAX_SUBSCHEMAS:,} |",
        f"| different patterns | {limits.MAX_PATTERNS:,} |",
        f" | {limits.MAX_PATTERN_SIZE:,} |",
        f"| checks of one value | {limits.MAX_CHECKS_PER_PLACE:,} |",
        f"at most {limits.MAX_PROBLEMS} problems in at most {limits.MAX_PROBLEMS_BYTES >> 10} KiB",
        f"{limits.MAX_PROBLEM_STEPS:,} steps, the message names only the first one",
        f"may need {limits.MAX_CHECKS // 1_000_000} million checks",
        f"Most schemas cost fewer than {limits.FREE_CHECKS_PER_PLACE}",
    ],
)
def test_the_limits_are_documented(row: str) -> None:
    assert row in PAGE
