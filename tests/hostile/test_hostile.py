"""A hostile client, worker, upstream server and skill, each beside a normal client that hardly notices.

`make test` gives each a quarter of a minute, `make soak` as many as `WAYPOST_SOAK_SECONDS` says.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.cli.shell import environment
from tests.fuzz.hub_under_test import HubUnderTest, opened_hub
from tests.hostile import upstream
from tests.hostile.neighbour import Seen, find_faults, visit

SECONDS: Final = int(os.environ.get("WAYPOST_SOAK_SECONDS", "15"))
QUIET_S: Final = max(2.0, SECONDS / 10)
SEED: Final = int(os.environ.get("WAYPOST_FUZZ_SEED", str(random.randrange(1_000_000))))
ROOT: Final = Path(__file__).parents[2]
PATHS: Final = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
pytestmark = pytest.mark.timeout(SECONDS * 3 + 90)

UPSTREAM: Final = f"""\
connections:
  bad: {{kind: mcp, command: {sys.executable}, args: ["{upstream.__file__}", "{SEED}"], env: {{PYTHONPATH: "{PATHS}"}}}}
proxy:
  import: [{{connection: bad, trust: "off"}}]
"""
SKILL: Final = """\
import os
import time

description = "Does what a skill should not do."


def run(args):
    kind = args.get("input")
    if kind == "loop":
        while True:
            pass
    if kind == "memory":
        kept = []
        while True:
            kept.append(bytearray(1 << 24))
    if kind == "output":
        for _ in range(20_000):
            print("o" * 1_000)
    if kind == "result":
        return ["r" * 1_000] * 20_000
    if kind == "deep":
        value = []
        for _ in range(5_000):
            value = [value]
        return value
    if kind == "exit":
        os._exit(3)
    if kind == "files":
        return [open("/dev/null") for _ in range(10_000)]
    if kind == "sleep":
        time.sleep(5)
    raise ValueError("e" * 1_000_000)
"""


@contextmanager
def attacker(*arguments: str | int) -> Iterator[subprocess.Popen[bytes]]:
    """A hostile process until the block ends; with a low priority, since the machine is not what it attacks."""
    process = subprocess.Popen(
        [sys.executable, "-m", *map(str, arguments)],
        cwd=ROOT,
        env=environment(PYTHONPATH=PATHS),
        preexec_fn=lambda: os.nice(10),
    )
    try:
        yield process
        assert process.poll() is None, "the attacker ended by itself"
    finally:
        process.kill()
        process.wait()


def judge(under_test: HubUnderTest, attack: Callable[[], Iterator[object]]) -> None:
    """Compare a quiet run with one beside an attack."""
    visit(under_test, lambda: False)  # everything is loaded
    quiet = visit(under_test, _for(QUIET_S))
    with contextmanager(attack)():
        beside = visit(under_test, _for(SECONDS))
    show(quiet, beside)
    faults = find_faults(under_test, quiet, beside)
    assert not faults, f"seed {SEED}: " + "\n".join(faults)


def _for(seconds: float) -> Callable[[], bool]:
    until = time.monotonic() + seconds
    return lambda: time.monotonic() < until


def show(quiet: Seen, beside: Seen) -> None:
    """Print the figures, for `pytest -s`."""
    for name, seen in (("quiet", quiet), ("beside", beside)):
        print(  # noqa: T201
            f"{name}: {seen.requests} requests, median {seen.median * 1000:.1f} ms, p99 {seen.p99 * 1000:.1f} ms, "
            f"memory {seen.memory >> 20} MiB"
        )


def test_a_hostile_client_hardly_slows_down_a_normal_one(tmp_path: Path) -> None:
    with opened_hub(tmp_path / "hub") as under_test:
        judge(under_test, lambda: _run("tests.hostile.clients", under_test.port))


def test_a_hostile_worker_hardly_slows_down_a_normal_client(tmp_path: Path) -> None:
    with opened_hub(tmp_path / "hub") as under_test:
        judge(under_test, lambda: _run("tests.hostile.workers", under_test.worker_port))


def test_a_hostile_upstream_hardly_slows_down_a_normal_client(tmp_path: Path) -> None:
    with opened_hub(tmp_path / "hub", more=UPSTREAM) as under_test:
        judge(under_test, lambda: _run("tests.hostile.callers", under_test.port, "upstream"))


def test_a_hostile_skill_hardly_slows_down_a_normal_client(tmp_path: Path) -> None:
    with opened_hub(tmp_path / "hub", skills={"bad": SKILL}) as under_test:
        judge(under_test, lambda: _run("tests.hostile.callers", under_test.port, "skill"))


def _run(module: str, port: int, *more: str) -> Iterator[object]:
    with attacker(module, port, SEED, *more) as process:
        yield process
