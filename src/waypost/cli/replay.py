"""`waypost replay`: check the history of a workflow instance against the current workflow."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from waypost.cli.client import HUB_OPTIONS, HubClient, find_hub, quote_segment
from waypost.cli.command import Argument, Command, OneOf, Output
from waypost.cli.simulate import load_definition
from waypost.errors import WaypostError

if TYPE_CHECKING:
    from waypost.workflows.replay import Replay


def run(args: Namespace) -> Output:
    """Judge every commit of the history; one that would be refused fails the command."""
    from waypost.workflows.replay import parse_recording, replay

    history = _read(args.file) if args.file is not None else _fetch(find_hub(args), args.id)
    recording = parse_recording(history)
    judged = replay(load_definition(args.config, recording.definition_id), recording)
    return Output(msgspec.to_builtins(judged), "\n".join(_format(judged)), status=0 if judged.ok else 1)


def _fetch(hub: HubClient, instance_id: str) -> Any:
    """An instance with its whole history, over as many pages as it has."""
    path = f"runs/{quote_segment(instance_id)}"
    instance = hub.get(path)
    after = instance.get("next")
    while after is not None:
        page = hub.get(path, after=after)
        instance["history"] += page["history"]
        after = page.get("next")
    return instance


def _read(file: Path) -> Any:
    try:
        return json.loads(file.read_bytes())
    except OSError as error:
        raise WaypostError(f"{file} cannot be read: {error.strerror}.") from None
    except ValueError:
        raise WaypostError(f"{file} is not JSON.") from None


def _format(judged: Replay) -> list[str]:
    lines = []
    for commit in judged.commits:
        lines.append(f"{commit.version}  {commit.transition}: {commit.verdict.replace('_', ' ')}")
        for reason in commit.reasons:
            operands = (reason.get("operands") or {}).items()
            values = ", ".join(f"{path} is {json.dumps(value)}" for path, value in operands)
            lines.append(f"    {reason['message']} {values}".rstrip())
    return lines


COMMAND: Final = Command(
    run,
    "Check the history of a workflow instance against the current workflow, and report refused commits.",
    "waypost replay waypost.yaml --file history.json",
    Argument("config", metavar="CONFIG", help="the configuration file"),
    OneOf(
        Argument("id", nargs="?", metavar="RUN_ID", help="an instance of a running hub, such as wf_..."),
        Argument("--file", type=Path, metavar="FILE", help="the output of `waypost runs show --json`"),
    ),
    *HUB_OPTIONS,
)
