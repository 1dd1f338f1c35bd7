"""`python -m benchmarks`: run the scenarios, print ratios beside targets, write results/latest.json."""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import signal
import sys
from pathlib import Path
from time import perf_counter

from benchmarks import machine, output, scenarios
from benchmarks.harness import pin_generator
from benchmarks.report import SUBJECT, Report, Settings
from waypost.cli.command import Progress
from waypost.suggestions import did_you_mean

RESULTS = Path(__file__).parent / "results" / "latest.json"


def main(arguments: list[str] | None = None) -> int:
    """Exit 1 when Waypost itself failed; a missed target is printed, not fatal, for machines differ."""
    names = [module.name for module in pkgutil.iter_modules(scenarios.__path__)]
    given = _parse(arguments, names)
    settings = _settings(given.quick, given.rounds, given.seconds)
    about = machine.describe()
    print(f"{about['cpu']}, {about['cores']} cores, Python {about['python']}, commit {about['commit']}")
    print(f"load average before the run: {about['load_average_at_start']:.2f} (other work disturbs the numbers)")
    # A terminated run still stops its contenders.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    pin_generator()
    began = perf_counter()
    chosen = given.only or names
    reports = {name: _run(name, settings, f"{number} of {len(chosen)}") for number, name in enumerate(chosen, 1)}
    _write(given.output, about, settings, reports)
    _summarise(reports)
    print(f"\n{perf_counter() - began:.0f} s; written to {given.output}")
    return 1 if any(SUBJECT in report.failed for report in reports.values()) else 0


def _parse(arguments: list[str] | None, names: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="under two minutes: fewer cases and shorter rounds")
    parser.add_argument("--only", action="append", metavar="NAME[,NAME]", help=f"any of: {', '.join(names)}")
    parser.add_argument("--rounds", type=int, help="how often each contender is measured in turn")
    parser.add_argument("--seconds", type=float, help="how long one measurement takes; longer for slow contenders")
    parser.add_argument("--output", type=Path, default=RESULTS, help="where the JSON goes")
    given = parser.parse_args(arguments)
    given.only = [name for text in given.only or [] for name in text.split(",") if name]
    for name in given.only:
        if name not in names:
            parser.error(f"there is no benchmark {name!r}{did_you_mean(name, names, ', ')} Use {', '.join(names)}")
    return given


def _settings(quick: bool, rounds: int | None, seconds: float | None) -> Settings:
    if quick:
        return Settings(rounds=rounds or 2, seconds=seconds or 0.4, warmup=0.1, quick=True)
    return Settings(rounds=rounds or 3, seconds=seconds or 1.0)


def _run(name: str, settings: Settings, place: str) -> Report:
    with Progress(f"{name}, {place}"):
        report: Report = importlib.import_module(f"{scenarios.__name__}.{name}").run(settings)
    print(output.render(report), flush=True)
    return report


def _write(path: Path, about: dict[str, object], settings: Settings, reports: dict[str, Report]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "machine": about,
        "settings": {"rounds": settings.rounds, "seconds": settings.seconds, "quick": settings.quick},
        "scenarios": {name: report.as_json() for name, report in reports.items()},
    }
    path.write_text(json.dumps(content, indent=1) + "\n")


def _summarise(reports: dict[str, Report]) -> None:
    print("\nAll targets\n-----------")
    for report in reports.values():
        for outcome in report.outcomes():
            print(output.target(outcome))


if __name__ == "__main__":
    sys.exit(main())
