"""How far a reader has to walk to follow an action; the bounds may only be lowered."""

from __future__ import annotations

import pytest

from tests.protocol.conftest import asynchronous
from tests.walks import WALKS

BOUNDS = {
    "tools/call": (45, 22),
    "workflow.submit": (98, 40),  # the goal is 70 functions in 25 files
    "start": (30, 15),
    "reload": (10, 5),
    "reload, one tool changed": (70, 18),
    "upstream call over stdio": (36, 14),
    "upstream call over http": (50, 15),  # six of them are the callbacks of the HTTP parser
}


@pytest.mark.parametrize("name", WALKS)
def test_a_walk_stays_within_its_bounds(name: str) -> None:
    @asynchronous
    async def check() -> None:
        functions, files = BOUNDS[name]
        walk = await WALKS[name]()
        assert walk.functions <= functions, str(walk)
        assert walk.files <= files, str(walk)

    check()
