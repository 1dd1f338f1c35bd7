"""What rules keep out of lists, for everybody whom they tell apart."""

from __future__ import annotations

from typing import Any

import pytest

from waypost.capabilities.principals import ANONYMOUS
from waypost.policy.decisions import Policy, hidden, onlookers
from waypost.policy.rules import Rule

NAMES = ("mail", "files")


def against(tool: str, **more: Any) -> Rule:
    return Rule(**{"name": "r", "type": "mcp_restriction", "config": {"tool_pattern": tool}, "hide": True, **more})


@pytest.mark.parametrize(
    ("before", "after", "differs"),
    [
        ([], [against("mail")], True),
        ([against("mail")], [], True),
        ([], [against("mail", principals=("bob",))], True),
        ([], [against("mail", roles=("guest",))], True),
        ([], [against("mail", principals=("bob",), roles=("guest",))], True),
        ([against("mail", principals=("bob",))], [against("mail", principals=("ann",))], True),
        ([against("mail")], [against("mail", name="s", priority=5)], False),
        ([], [against("deploy")], False),
        ([], [against("mail", hide=False)], False),
        ([], [against("mail", enabled=False)], False),
        ([against("mail")], [against("mail"), against("mail", name="s", principals=("bob",))], False),
    ],
)
def test_other_rules_show_in_what_is_hidden_from_somebody(before: list[Rule], after: list[Rule], differs: bool) -> None:
    people = onlookers([*before, *after])
    assert (hidden(Policy(before), people, NAMES) != hidden(Policy(after), people, NAMES)) is differs


def test_where_nothing_is_hidden_nobody_is_asked() -> None:
    assert onlookers([against("mail", hide=False)]) == []
    assert ANONYMOUS in onlookers([against("mail", principals=("bob",))])
