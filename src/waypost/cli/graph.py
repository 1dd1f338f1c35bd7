"""`waypost graph`: a picture of a workflow."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from waypost.errors import WaypostError

FORMATS: Final = ("mermaid", "dot", "svg")


def register(commands: Any) -> None:
    """Add the command."""
    graph = commands.add_parser(
        "graph",
        help="draw a workflow",
        description="Draw a workflow of a configuration file: its states and transitions, or its steps and routes.",
        epilog="example: waypost graph waypost.yaml deploy_pipeline --format svg > deploy.svg",
    )
    graph.add_argument("config", metavar="CONFIG", help="the configuration file")
    graph.add_argument("workflow", metavar="WORKFLOW", help="the workflow")
    graph.add_argument("--format", choices=FORMATS, default=FORMATS[0], help="what to print (default: mermaid)")
    graph.set_defaults(run=run_graph)


def run_graph(given: argparse.Namespace) -> int:
    """Print the picture."""
    from waypost.config import load
    from waypost.workflows import graph
    from waypost.workflows.resolution import nearest

    workflows = load(Path(given.config)).config.workflows
    workflow = workflows.get(given.workflow)
    if workflow is None:
        raise WaypostError(
            f"There is no workflow {given.workflow!r} in {given.config}; {nearest(given.workflow, workflows)}"
        )
    draw = {"mermaid": graph.mermaid, "dot": graph.dot, "svg": graph.svg}[given.format]
    sys.stdout.write(draw(replace(workflow, title=workflow.title or given.workflow)))
    return 0
