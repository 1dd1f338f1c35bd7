"""The names that what other servers offer may have."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.capabilities.test_registry import a_prompt, a_tool
from waypost.capabilities.capability import Capability, Priority
from waypost.imports.rows import Taken


@pytest.mark.parametrize("row", [a_tool("git.push"), a_prompt("git.push")])
def test_what_makes_room_stands_in_nobodys_way_but_nobody_looks_like_it(row: Capability) -> None:
    firm, soft = Taken(), Taken()
    firm.take([row])
    soft.take([replace(row, priority=Priority.WORKER)])

    assert "is the name of another" in (firm.problem(row.kind, "git.push") or "")
    assert soft.problem(row.kind, "git.push") is None
    soft.take([row])
    assert "is the name of another" in (soft.problem(row.kind, "git.push") or "")
    for taken in (firm, soft):
        assert "can be taken for git.push" in (taken.problem(row.kind, "git.Push") or "")
