from __future__ import annotations

import ast
import importlib
from math import prod
from pathlib import Path
from typing import Any

import pytest

from tests.requirements import gateway, security, skills_and_policy, toolkits, workflows

TESTS = Path(__file__).parents[1]

CHECKLISTS: dict[str, tuple[dict[Any, tuple[str, tuple[str, ...]]], Any]] = {
    "toolkits": (toolkits.REQUIREMENTS, range(1, 51)),
    "skills_and_policy": (skills_and_policy.REQUIREMENTS, range(1, 19)),
    "gateway": (gateway.REQUIREMENTS, (*range(1, 7), 28)),
    "workflows": (workflows.REQUIREMENTS, (*range(7, 28), 29, 30)),
    "security": (
        {name: (threat.sentence, threat.shown_by) for name, threat in security.THREATS.items()},
        (
            *("DNS rebinding", "Token audience", "Token passthrough", "State-handle hijack", "SSRF"),
            *("Header/body mismatch", "Tool names", "Prompt injection", "Shell injection", "Path traversal"),
            *("Zip bombs", "JSON depth and size", "ReDoS"),
        ),
    ),
}


def functions_in(path: Path) -> set[str]:
    """The names of the test functions in a file."""
    return {
        node.name
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    }


@pytest.mark.parametrize("checklist", CHECKLISTS)
def test_every_statement_of_a_checklist_is_there(checklist: str) -> None:
    statements, numbers = CHECKLISTS[checklist]
    assert list(statements) == list(numbers)


@pytest.mark.parametrize(
    ("checklist", "number"), [(name, number) for name, (statements, _) in CHECKLISTS.items() for number in statements]
)
def test_every_statement_names_tests_that_exist(checklist: str, number: int | str) -> None:
    sentence, shown_by = CHECKLISTS[checklist][0][number]
    assert sentence.endswith(".")
    assert shown_by, f"no test shows: {sentence}"
    assert len(set(shown_by)) == len(shown_by)
    for test in shown_by:
        file, _, name = test.partition("::")
        assert (TESTS / file).is_file(), f"there is no file {file}"
        assert name in functions_in(TESTS / file), f"there is no test {test}"


def cases_of(test: str) -> int:
    """How many cases a test tries: its parameters, and the rows of the table it goes through."""
    file, _, name = test.partition("::")
    module = importlib.import_module("tests." + file.removesuffix(".py").replace("/", "."))
    marks = [mark for mark in getattr(getattr(module, name), "pytestmark", []) if mark.name == "parametrize"]
    table = security.TABLES.get(test)
    return prod(len(list(mark.args[1])) for mark in marks) * (len(getattr(module, table)) if table else 1)


@pytest.mark.parametrize("threat", security.THREATS)
def test_as_many_cases_of_a_threat_are_tried_as_it_says(threat: str) -> None:
    said = security.THREATS[threat].cases
    counted = sum(cases_of(test) for test in security.THREATS[threat].shown_by)
    assert counted >= said > 0, f"{threat}: {counted} cases are tried, {said} are claimed"


def test_what_comes_later_has_a_reason_and_no_tests_yet() -> None:
    assert all(reason.endswith(".") for reason in security.LATER.values())
    assert not set(security.LATER) & set(security.THREATS)
    assert set(security.TABLES) <= {test for threat in security.THREATS.values() for test in threat.shown_by}
