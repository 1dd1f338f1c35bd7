"""`waypost graph`: draw a workflow."""

from __future__ import annotations

from argparse import Namespace
from typing import Final

from msgspec.structs import replace

from waypost.cli.command import Argument, Command, Output
from waypost.cli.target import load_workflow

FORMATS: Final = ("mermaid", "dot", "svg")


def run(args: Namespace) -> Output:
    """Draw the workflow under its title, or its name where it has no title."""
    from waypost.workflows import graph

    workflow, _ = load_workflow(args.config, args.workflow)
    draw = {"mermaid": graph.mermaid, "dot": graph.dot, "svg": graph.svg}[args.format]
    return Output(text=draw(replace(workflow, title=workflow.title or args.workflow)))


COMMAND: Final = Command(
    run,
    "Draw a workflow of a configuration file: its states and transitions, or its steps and routes.",
    "waypost graph waypost.yaml deploy_pipeline --format svg > deploy.svg",
    Argument("config", metavar="CONFIG", help="the configuration file"),
    Argument("workflow", metavar="WORKFLOW", help="the workflow"),
    Argument("--format", choices=FORMATS, default=FORMATS[0], help="the language of the drawing (default: mermaid)"),
)
