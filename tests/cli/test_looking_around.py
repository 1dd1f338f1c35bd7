"""Commands that only read a configuration do not resume work of an earlier process."""

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
def folder(tmp_path: Path) -> Path:
    """The folder of a hub that was killed during a transition that may be repeated."""
    (tmp_path / "waypost.yaml").write_text(RUN.replace("PLACE", str(tmp_path)))

    @asynchronous
    async def crash_hub() -> None:
        hub = Hub.from_config(tmp_path / "waypost.yaml")
        await hub.store.open()
        async with connect(hub) as client:
            b = Bench(hub, client, Work())
            await hub.workflows.watch.stop()
            await crash(b, await b.start())
        await hub.stop()

    crash_hub()
    return tmp_path


@pytest.mark.parametrize(
    "command",
    [["list"], ["search", "flow"], ["describe", "flow"], ["read", "waypost://workflows/flow"]],
    ids=lambda it: it[0],
)
def test_a_reading_command_does_not_resume_an_interrupted_transition(command: list[str], folder: Path) -> None:
    name, *more = command

    ended = waypost(name, "waypost.yaml", *more, cwd=folder)

    assert ended.returncode == 0, ended.stderr
    assert not (folder / "ran").exists()
