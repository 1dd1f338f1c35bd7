"""`waypost policy`: the rules of a running hub, and their decisions."""

from __future__ import annotations

import pytest

from tests.cli.operated import Captured, complaint, printed_json
from tests.cli.operated import served as served
from waypost.cli import main

pytestmark = pytest.mark.usefixtures("served")

REASON = "MCP restriction: tool 'shell' blocked by pattern 'shell'"


def test_rules_are_listed(capsys: Captured) -> None:
    assert main(["policy", "list", "--json"]) == 0
    (rule,) = printed_json(capsys)
    assert (rule["name"], rule["type"], rule["priority"]) == ("no-shell", "mcp_restriction", 10)

    assert main(["policy", "list"]) == 0
    _, row = capsys.readouterr().out.splitlines()
    assert row.split(maxsplit=4) == ["10", "no-shell", "mcp_restriction", "enabled", '{"tool_pattern": "shell"}']


def test_an_allowed_call_exits_with_0(capsys: Captured) -> None:
    question = ["policy", "test", "--principal", "agent", "--capability", "add", "--args", '{"a": 1}']
    assert main([*question, "--json"]) == 0
    assert printed_json(capsys) == {"decision": "allow", "reason": "", "rule": ""}
    assert main(question) == 0
    assert capsys.readouterr().out == "allow\n"


def test_a_denied_call_exits_with_1_and_the_reason(capsys: Captured) -> None:
    question = ["policy", "test", "--principal", "agent", "--capability", "shell"]
    assert main([*question, "--json"]) == 1
    assert printed_json(capsys) == {"decision": "deny", "reason": REASON, "rule": "no-shell"}
    assert main(question) == 1
    assert capsys.readouterr().out == f"deny: {REASON} (no-shell)\n"


def test_the_anonymous_principal_can_be_tested(capsys: Captured) -> None:
    assert main(["policy", "test", "--principal", "anonymous", "--capability", "add"]) == 1
    assert capsys.readouterr().out == "deny: Missing Authorization header (authentication)\n"


@pytest.mark.parametrize(("who", "what"), [("nobody", "add"), ("agent", "subtract")])
def test_an_unknown_principal_or_capability_is_a_one_line_error(who: str, what: str, capsys: Captured) -> None:
    assert main(["policy", "test", "--principal", who, "--capability", what, "--json"]) == 1
    assert complaint(capsys).startswith("waypost: ")
