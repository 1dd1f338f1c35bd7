from __future__ import annotations

import ast
import importlib
from math import prod
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.requirements import content, gateway, security, skills_and_policy, toolkits, workers, workflows

TESTS = Path(__file__).parents[1]

CHECKLISTS: dict[str, tuple[dict[Any, tuple[str, tuple[str, ...]]], Any]] = {
    "toolkits": (toolkits.REQUIREMENTS, range(1, 51)),
    "skills_and_policy": (skills_and_policy.REQUIREMENTS, range(1, 19)),
    "gateway": (gateway.REQUIREMENTS, (*range(1, 7), 28)),
    "workflows": (workflows.REQUIREMENTS, (*range(7, 28), 29, 30)),
    "workers": (workers.REQUIREMENTS, tuple(f"P{number}" for number in range(1, 25))),
    "content": (
        content.REQUIREMENTS,
        (*(f"S{number}" for number in range(1, 16)), *(f"M{number}" for number in range(1, 5))),
    ),
    "security": (
        {name: (threat.sentence, threat.shown_by) for name, threat in security.THREATS.items()},
        (
            *("DNS rebinding", "Token audience", "Token passthrough", "State-handle hijack", "SSRF"),
            *("Header/body mismatch", "Tool names", "Prompt injection", "Shell injection", "Path traversal"),
            *("Zip bombs", "JSON depth and size", "ReDoS", "Slow and greedy clients"),
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


def module_of(test: str) -> ModuleType:
    """The module that contains a test."""
    file = test.partition("::")[0]
    return importlib.import_module("tests." + file.removesuffix(".py").replace("/", "."))


def marks_of(test: str) -> list[Any]:
    """The parametrisations of a test."""
    found = getattr(module_of(test), test.partition("::")[2])
    return [mark for mark in getattr(found, "pytestmark", []) if mark.name == "parametrize"]


@pytest.mark.parametrize("feature", content.TABLES)
def test_every_scenario_of_a_feature_is_a_case_of_its_test(feature: str) -> None:
    test, names = content.TABLES[feature]
    (mark,) = marks_of(test)
    assert [name for name in names if name not in mark.kwargs["ids"]] == []


@pytest.mark.parametrize("feature", content.SCENARIOS)
def test_every_scenario_of_a_feature_is_a_test(feature: str) -> None:
    for test in content.SCENARIOS[feature].values():
        file, _, name = test.partition("::")
        assert name in functions_in(TESTS / file), f"there is no test {test}"


def cases_of(test: str) -> int:
    """How many cases a test tries: its parameters, and the rows of the table it goes through."""
    table = security.TABLES.get(test)
    rows = len(getattr(module_of(test), table)) if table else 1
    return prod(len(list(mark.args[1])) for mark in marks_of(test)) * rows


@pytest.mark.parametrize("threat", security.THREATS)
def test_as_many_cases_of_a_threat_are_tried_as_it_says(threat: str) -> None:
    said = security.THREATS[threat].cases
    counted = sum(cases_of(test) for test in security.THREATS[threat].shown_by)
    assert counted >= said > 0, f"{threat}: {counted} cases are tried, {said} are claimed"


def test_postponed_threats_have_a_reason_and_no_tests() -> None:
    assert all(reason.endswith(".") for reason in security.LATER.values())
    assert not set(security.LATER) & set(security.THREATS)
    assert set(security.TABLES) <= {test for threat in security.THREATS.values() for test in threat.shown_by}
