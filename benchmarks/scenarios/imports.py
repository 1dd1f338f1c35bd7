"""What importing a package costs, and whether it drags in a framework that is not needed."""

from __future__ import annotations

import subprocess
import sys
from time import perf_counter

import msgspec

from benchmarks.harness import environment
from benchmarks.report import Key, Report, Settings, Target

STATEMENTS = {
    "waypost": "from waypost import Hub",
    "mcp lowlevel": "from mcp.server.lowlevel import Server",
    "fastmcp": "from fastmcp import FastMCP",
}
TIME, MEMORY, FRAMEWORKS = "import", "memory after import", "frameworks imported"
UNWANTED = ("pydantic", "starlette", "fastapi", "mcp", "fastmcp", "httpx")
PROBE = """
import json, sys
rss = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmRSS")][0]
print(json.dumps({"rss": int(rss), "modules": sorted(m for m in sys.modules if "." not in m), "all": len(sys.modules)}))
"""


class _Seen(msgspec.Struct):
    rss: int
    modules: list[str]
    all: int


def run(settings: Settings) -> Report:
    report = Report("Import of the package")
    for _ in range(settings.rounds):
        for name, statement in STATEMENTS.items():
            if name not in report.failed:
                _measure(report, name, statement)
    report.targets = [Target("frameworks imported by `from waypost import Hub`", Key("waypost", FRAMEWORKS), at_most=0)]
    return report


def _measure(report: Report, name: str, statement: str) -> None:
    began = perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", f"{statement}\n{PROBE}"],
        capture_output=True,
        env=environment(),
        check=False,
        timeout=30,
    )
    elapsed = perf_counter() - began
    if done.returncode != 0:
        report.fail(name, done.stderr.decode(errors="replace").strip().rpartition("\n")[2])
        return
    seen = msgspec.json.decode(done.stdout, type=_Seen)
    unwanted = [module for module in UNWANTED if module in seen.modules]
    report.row(name, TIME, "ms").add(elapsed * 1000, modules=seen.all)
    report.row(name, MEMORY, "MB").add(seen.rss / 1024)
    report.row(name, FRAMEWORKS, "").add(len(unwanted))
    note = f"{statement}: {', '.join(unwanted) or 'no framework'}, {seen.all} modules"
    if note not in report.notes:
        report.notes.append(note)
