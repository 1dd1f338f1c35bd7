"""The page about findings has every code, and each example has exactly its finding."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from tests.workflows.checks.conftest import Checker
from waypost.config import CODES
from waypost.config.findings import WARNINGS

PAGE: Final = (Path(__file__).parents[3] / "docs" / "workflow-findings.md").read_text()
OURS: Final = [code for code in CODES if code.startswith("WF")]
EXAMPLES: Final = dict(re.findall(r"^### `(\w+)`\n\n.+?\n\n```\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL))


def test_every_code_has_a_section_and_no_other() -> None:
    assert list(EXAMPLES) == OURS == re.findall(r"^### `(\w+)`$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("code", OURS)
def test_a_section_contains_the_description_of_its_code(code: str) -> None:
    assert f"### `{code}`\n\n{CODES[code]}\n\n```\n" in PAGE


@pytest.mark.parametrize("code", OURS)
def test_an_example_has_exactly_the_finding_of_its_section(code: str, check: Checker) -> None:
    example = EXAMPLES[code]
    (line,) = [number for number, text in enumerate(example.splitlines(), 1) if text.endswith("# here")]

    found = check.only(example)

    assert (found.code, found.line) == (code, line), found
    assert found.severity == ("warning" if code in WARNINGS else "error")


def test_the_description_of_a_warning_ends_with_warning() -> None:
    assert [code for code in OURS if CODES[code].endswith("(warning).")] == sorted(
        code for code in WARNINGS if code.startswith("WF")
    )


def test_every_code_is_used_and_every_used_code_is_declared() -> None:
    source = Path(__file__).parents[3] / "src" / "waypost" / "workflows"
    files = [source / "checks.py", source / "data_flow.py", *(source / "executors").glob("*.py")]
    used = {code for file in files for code in re.findall(r"WF\d{3}", file.read_text())}
    assert used == set(OURS)
