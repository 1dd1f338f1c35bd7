"""`waypost simulate` and `waypost replay`: what a workflow could do, and whether what it did could happen again."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from waypost.cli.client import Remote, add_options, find, print_json, segment
from waypost.cli.runs import count
from waypost.errors import WaypostError

if TYPE_CHECKING:
    from waypost.workflows.definition import Definition
    from waypost.workflows.replaying import Replay
    from waypost.workflows.simulation import Report, Trouble


def register(commands: Any) -> None:
    """Add the commands."""
    simulate = commands.add_parser(
        "simulate",
        help="walk through a workflow at random, with nothing outside touched",
        description="Walk through a workflow at random, with nothing outside touched, and say what was never reached "
        "and where it came to a dead end.",
        epilog="example: waypost simulate waypost.yaml release --walks 500 --seed 7",
    )
    simulate.add_argument("config", metavar="CONFIG", help="the configuration file")
    simulate.add_argument("workflow", metavar="WORKFLOW", help="the workflow")
    simulate.add_argument("--walks", type=count, default=200, metavar="N", help="how many walks (default: 200)")
    simulate.add_argument(
        "--steps", type=count, default=50, metavar="N", help="how many decisions a walk has at most (default: 50)"
    )
    simulate.add_argument("--seed", type=int, default=0, metavar="S", help="what makes it the same again (default: 0)")
    simulate.add_argument("--json", action="store_true", help="print JSON")
    simulate.set_defaults(run=run_simulate)
    replay = commands.add_parser(
        "replay",
        help="say whether what happened in a run could happen again",
        description="Hold the history of a run against a workflow as it is written now, and say which commits would be "
        "refused.",
        epilog="example: waypost replay waypost.yaml --file history.json",
    )
    replay.add_argument("config", metavar="CONFIG", help="the configuration file")
    history = replay.add_mutually_exclusive_group(required=True)
    history.add_argument("id", nargs="?", metavar="RUN_ID", help="a run of a running hub, such as wf_...")
    history.add_argument(
        "--file", type=Path, metavar="FILE", help="what `waypost runs show --json` printed, in place of a run"
    )
    add_options(replay)
    replay.set_defaults(run=run_replay)


def run_simulate(given: argparse.Namespace) -> int:
    """Print what the walks found; trouble fails."""
    from waypost.workflows.simulation import simulate

    definition = load_definition(given.config, given.workflow)
    report = simulate(definition, walks=given.walks, steps=given.steps, seed=given.seed)
    if given.json:
        print_json(_plain(report))
    else:
        sys.stdout.write("".join(f"{line}\n" for line in _told(report)))
    return 0 if report.ok else 1


def run_replay(given: argparse.Namespace) -> int:
    """Print what would become of every commit; a refusal fails."""
    from waypost.workflows.replaying import recorded, replay

    run = recorded(_read(given.file) if given.file is not None else _fetched(find(given), given.id))
    found = replay(load_definition(given.config, run.definition_id), run)
    if given.json:
        print_json(_plain(found))
    else:
        sys.stdout.write("".join(f"{line}\n" for line in _judged(found)))
    return 0 if found.ok else 1


def load_definition(file: str, name: str) -> Definition:
    """A workflow of a configuration file, ready to be looked at and unable to reach anything."""
    from waypost.config import load
    from waypost.workflows.definition import Definition
    from waypost.workflows.resolution import nearest, resolve
    from waypost.workflows.simulation import ISOLATED

    settings = load(Path(file)).config
    workflow = settings.workflows.get(name)
    if workflow is None:
        raise WaypostError(f"There is no workflow {name!r} in {file}; {nearest(name, settings.workflows)}")
    definition = Definition(name, resolve(workflow, settings.capabilities), ISOLATED)
    definition.compile()
    return definition


def _fetched(hub: Remote, run_id: str) -> Any:
    """A run with all of its history, however many pages that is."""
    path = f"runs/{segment(run_id)}"
    run = hub.get(path)
    after = run.get("next")
    while after is not None:
        page = hub.get(path, after=after)
        run["history"] += page["history"]
        after = page.get("next")
    return run


def _read(file: Path) -> Any:
    try:
        return json.loads(file.read_bytes())
    except OSError as error:
        raise WaypostError(f"{file} cannot be read: {error.strerror}.") from None
    except ValueError:
        raise WaypostError(f"{file} is no JSON.") from None


def _plain(value: Any) -> Any:
    import msgspec

    return msgspec.to_builtins(value)


def _told(report: Report) -> list[str]:
    endings = ", ".join(f"{number} {name}" for name, number in report.endings.items())
    lines = [f"{report.workflow}: {report.walks} walks of at most {report.steps} steps, seed {report.seed}: {endings}"]
    lines += [f"never reached: {name}" for name in report.never_reached]
    lines += [f"nothing leads to: {name}" for name in report.unreachable]
    lines += [
        f"never taken: {one.state}.{one.transition}{f' ({one.reason})' if one.reason else ''}"
        for one in report.never_taken
    ]
    for what, troubles in (("dead end", report.dead_ends), ("chain failure", report.chain_failures)):
        for trouble in troubles:
            lines += _trouble(what, trouble)
    return [*lines, "all is well" if report.ok else "there is trouble"]


def _trouble(what: str, trouble: Trouble) -> list[str]:
    way = [f"{step['from']} -{step['transition']}-> {step.get('to', step.get('outcome'))}" for step in trouble.steps]
    return [
        f"{what}: {trouble.state}, in walk {trouble.walk}, with the context {json.dumps(trouble.context)}",
        *(f"    {reason}" for reason in trouble.reasons),
        f"    input {json.dumps(trouble.input)}",
        *(f"    {step}" for step in way),
    ]


def _judged(found: Replay) -> list[str]:
    lines = []
    for commit in found.commits:
        lines.append(f"{commit.version}  {commit.transition}: {commit.verdict.replace('_', ' ')}")
        lines += [f"    {_reason(reason)}" for reason in commit.reasons]
    return lines


def _reason(reason: dict[str, Any]) -> str:
    operands = reason.get("operands") or {}
    told = ", ".join(f"{path} is {json.dumps(value)}" for path, value in operands.items())
    return f"{reason['message']} {told}".strip()
