"""`waypost simulate`: random walks through a workflow, without side effects."""

from __future__ import annotations

import json
from argparse import Namespace
from typing import TYPE_CHECKING, Final

import msgspec

from waypost.cli.command import JSON, Argument, Command, Output, Progress, parse_count
from waypost.cli.target import load_workflow

if TYPE_CHECKING:
    from waypost.workflows.definitions import Definition
    from waypost.workflows.simulation import Report, Trouble


def run(args: Namespace) -> Output:
    """Walk through the workflow; a dead end, a failed chain or a state that is never reached fails the command."""
    from waypost.workflows.simulation import simulate

    definition = load_definition(args.config, args.workflow)
    with Progress(f"{args.walks} walks through {args.workflow}"):
        report = simulate(definition, walks=args.walks, steps=args.steps, seed=args.seed)
    return Output(msgspec.to_builtins(report), "\n".join(_format(report)), status=0 if report.ok else 1)


def load_definition(file: str, name: str) -> Definition:
    """A workflow of a configuration file, compiled with executors that reach nothing outside."""
    from waypost.workflows.definitions import Definition, resolve
    from waypost.workflows.simulation import ISOLATED

    workflow, settings = load_workflow(file, name)
    definition = Definition(name, resolve(workflow, settings.capabilities), ISOLATED)
    definition.compile()
    return definition


def _format(report: Report) -> list[str]:
    endings = ", ".join(f"{count} {name}" for name, count in report.endings.items())
    lines = [f"{report.workflow}: {report.walks} walks of at most {report.steps} steps, seed {report.seed}: {endings}"]
    lines += [f"never reached: {name}" for name in report.never_reached]
    lines += [f"nothing leads to: {name}" for name in report.unreachable]
    lines += [
        f"never taken: {one.state}.{one.transition}{f' ({one.reason})' if one.reason else ''}"
        for one in report.never_taken
    ]
    for what, troubles in (("dead end", report.dead_ends), ("chain failure", report.chain_failures)):
        for trouble in troubles:
            lines += _format_trouble(what, trouble)
    return [*lines, "no problems found" if report.ok else "problems found"]


def _format_trouble(what: str, trouble: Trouble) -> list[str]:
    steps = [f"{step['from']} -{step['transition']}-> {step.get('to', step.get('outcome'))}" for step in trouble.steps]
    return [
        f"{what}: {trouble.state}, in walk {trouble.walk}, with the context {json.dumps(trouble.context)}",
        *(f"    {line}" for line in [*trouble.reasons, f"input {json.dumps(trouble.input)}", *steps]),
    ]


COMMAND: Final = Command(
    run,
    "Walk through a workflow at random, without side effects, and report dead ends and what is never reached.",
    "waypost simulate waypost.yaml release --walks 500 --seed 7",
    Argument("config", metavar="CONFIG", help="the configuration file"),
    Argument("workflow", metavar="WORKFLOW", help="the workflow"),
    Argument("--walks", type=parse_count, default=200, metavar="N", help="how many walks (default: 200)"),
    Argument("--steps", type=parse_count, default=50, metavar="N", help="the most decisions in a walk (default: 50)"),
    Argument("--seed", type=int, default=0, metavar="S", help="the same seed walks the same ways (default: 0)"),
    JSON,
)
