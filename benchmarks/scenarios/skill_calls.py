"""What a process of its own costs: a dynamic skill beside the same function in the hub, one call at a time."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter

import uvloop

from benchmarks.harness import all_cores
from benchmarks.report import SUBJECT, Key, Report, Settings, Target
from waypost import Hub
from waypost.testing import TestClient, connect

INSIDE, OUTSIDE, MORE = "a tool in the hub", "a skill in a warm process", "more for the process"
CALLS, FEWER_CALLS = 1_000, 200
MOST_MS = 2.0

CONFIGURATION = """
toolkits: [./tools.py]
skills: {dynamic: ./skills, core: []}
"""
TOOL = '''
from waypost import tool

@tool
def shout(input: str) -> str:
    """Say it loudly."""
    return input.upper()
'''
SKILL = """
def run(args):
    return args["input"].upper()
"""


def run(settings: Settings) -> Report:
    report = Report("A call of a dynamic skill, p50, 1 at a time")
    with all_cores(), tempfile.TemporaryDirectory(prefix="waypost-bench-") as folder:
        _write(Path(folder))
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_measure(report, Path(folder) / "waypost.yaml", settings))
    report.targets = [Target(f"ms {MORE}", Key(SUBJECT, MORE), at_most=MOST_MS)]
    return report


def _write(folder: Path) -> None:
    (folder / "skills").mkdir()
    (folder / "skills" / "shout.py").write_text(SKILL)
    (folder / "tools.py").write_text(TOOL)
    (folder / "waypost.yaml").write_text(CONFIGURATION)


async def _measure(report: Report, configuration: Path, settings: Settings) -> None:
    calls = FEWER_CALLS if settings.quick else CALLS
    async with connect(Hub.from_config(configuration), version="2026-07-28") as client:
        for name in ("shout", "skill:shout"):
            await _p50_ms(client, name, 20)
        for _ in range(settings.rounds):
            inside = await _p50_ms(client, "shout", calls)
            outside = await _p50_ms(client, "skill:shout", calls)
            report.row(SUBJECT, INSIDE, "ms").add(inside)
            report.row(SUBJECT, OUTSIDE, "ms").add(outside)
            report.row(SUBJECT, MORE, "ms").add(outside - inside)


async def _p50_ms(client: TestClient, name: str, calls: int) -> float:
    times = []
    for _ in range(calls):
        began = perf_counter()
        result = await client.call_tool(name, {"input": "hello"})
        times.append(perf_counter() - began)
        assert result.text == "HELLO", result
    return median(times) * 1000
