import ast
from pathlib import Path

import pytest

from tests.requirements import skills_and_policy, toolkits

TESTS = Path(__file__).parents[1]

CHECKLISTS = {
    "toolkits": (toolkits.REQUIREMENTS, range(1, 51)),
    "skills_and_policy": (skills_and_policy.REQUIREMENTS, (5, 6, 10, 11, 12, 15, 16)),
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
def test_every_statement_names_tests_that_exist(checklist: str, number: int) -> None:
    sentence, shown_by = CHECKLISTS[checklist][0][number]
    assert sentence.endswith(".")
    assert shown_by, f"no test shows: {sentence}"
    assert len(set(shown_by)) == len(shown_by)
    for test in shown_by:
        file, _, name = test.partition("::")
        assert (TESTS / file).is_file(), f"there is no file {file}"
        assert name in functions_in(TESTS / file), f"there is no test {test}"
