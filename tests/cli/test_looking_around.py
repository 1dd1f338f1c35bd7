"""Commands that only look at a configuration run nothing that an earlier process left."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.shell import waypost
from tests.protocol.conftest import asynchronous
from tests.workflows.conftest import Bench, Work
from tests.workflows.test_unknown_outcomes import crash
from waypost import Hub
from waypost.testing import connect

RUN = """\
version: "1"
workflows:
  flow:
    initialState: a
    states:
      a:
        transitions:
          go: {target: done, executor: {kind: cli, command: touch, args: [PLACE/ran], idempotent: true}}
      done: {terminal: true}
"""


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """The folder of a hub that was killed while it ran something that may be run again."""
    (tmp_path / "waypost.yaml").write_text(RUN.replace("PLACE", str(tmp_path)))

    @asynchronous
    async def leave() -> None:
        hub = Hub.from_config(tmp_path / "waypost.yaml")
        await hub.store.open()
        async with connect(hub) as client:
            b = Bench(hub, client, Work())
            await hub.workflows.watch.stop()
            await crash(b, await b.start())
        await hub.stop()

    leave()
    return tmp_path


@pytest.mark.parametrize(
    "command",
    [["list"], ["search", "flow"], ["describe", "flow"], ["read", "waypost://workflows/flow"]],
    ids=lambda it: it[0],
)
def test_to_look_around_runs_nothing(command: list[str], left: Path) -> None:
    name, *more = command

    ended = waypost(name, "waypost.yaml", *more, cwd=left)

    assert ended.returncode == 0, ended.stderr
    assert not (left / "ran").exists()
