"""A hub of workflows to be killed: `waypost serve mill.py:hub`; what its tools do is a line in `MILL_EFFECTS`.

`MILL_STORE` and `MILL_BUS` make it one of several replicas; with `MILL_WORKERS` workers may connect.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any, Final

from waypost import Context, Hub
from waypost.capabilities.principals import ANONYMOUS
from waypost.config.models import Workflow
from waypost.identity.authentication import Authentication
from waypost.identity.keys import Key, digest
from waypost.kinds import convert
from waypost.policy.rules import Rule
from waypost.settings import Bus, Server, Settings, Workers

EFFECTS: Final = Path(os.environ.get("MILL_EFFECTS", os.devnull))
HOLD: Final = EFFECTS.with_name("hold")
"""While it is there, nothing comes to an end after its effect."""
PAUSE: Final = 0.005
"""Seconds between an effect and its end, for a kill to fall into."""
MAX_TOLLS: Final = 6
TOLL_WINDOW_S: Final = 2.0
"""So many calls of `toll` are admitted in any such time, at all replicas together."""
MAX_RUNNING: Final = 64
"""So many calls of one principal run at once, at all replicas together; those of all anonymous clients are fewer."""
CROWD_KEY: Final = "crowd-key"
"""The key of a principal that makes more."""
HOLD_S: Final = 2.0
"""How long each of its calls takes."""

hub = Hub(
    "mill",
    version="1.0.0",
    store=os.environ.get("MILL_STORE"),
    settings=Settings(
        bus=Bus(url=os.environ.get("MILL_BUS", "auto")),
        server=Server(max_running=MAX_RUNNING),
        workers=Workers(port=0) if "MILL_WORKERS" in os.environ else None,
    ),
    # Lenient: workers need no token although there is a key.
    auth=Authentication([Key("crowd", digest(CROWD_KEY))], anonymous=ANONYMOUS, lenient=True),
    policies=[
        Rule(
            name="tolls",
            type="rate_limit",
            config={"max_calls": MAX_TOLLS, "window_seconds": TOLL_WINDOW_S},
            capabilities=("toll",),
        )
    ],
)


def _write(line: str) -> None:
    with EFFECTS.open("a") as file:
        file.write(line)


async def _end() -> None:
    await asyncio.sleep(PAUSE)
    while HOLD.exists():  # noqa: ASYNC110  # the test is another process
        await asyncio.sleep(PAUSE)


@hub.tool
async def mark(kind: str, ticket: str, ctx: Context) -> str:
    """Have an effect: a line that says what was run, for which submit and under which key."""
    _write(f"{kind} {ticket} {ctx.idempotency_key}\n")
    await _end()
    return "marked"


@hub.tool(task="required")
async def chore(ticket: str) -> str:
    """Have an effect that must not be repeated, as a task."""
    _write(f"once {ticket} -\n")
    await _end()
    return ticket


@hub.tool(task="required", annotations={"idempotentHint": True})
async def round_trip(ticket: str) -> str:
    """Have an effect that may be repeated, as a task."""
    _write(f"once {ticket} -\n")
    await _end()
    return ticket


@hub.tool
async def errand(ticket: str) -> str:
    """Have an effect that must not be repeated, in a plain call."""
    _write(f"once {ticket} -\n")
    return ticket


@hub.tool
async def toll(ticket: str) -> str:
    """Say when a call ran that a rate limit admitted, by the clock of all processes of the machine."""
    _write(f"toll {ticket} {time.monotonic()}\n")
    return ticket


@hub.tool
async def hold(ticket: str) -> str:
    """Take a while, and say when it began and ended."""
    _write(f"begin {ticket} {time.monotonic()}\n")
    try:
        await asyncio.sleep(HOLD_S)
    finally:
        _write(f"end {ticket} {time.monotonic()}\n")
    return ticket


def marks(kind: str, ticket: str = "$.arguments.ticket") -> dict[str, Any]:
    """An executor that has an effect; only a safe one may be run again by itself."""
    arguments = {"kind": kind, "ticket": ticket}
    return {"kind": "capability", "capability": "mark", "arguments": arguments, "idempotent": kind == "safe"}


PROGRAM: Final = {
    "kind": "cli",
    "command": "/bin/sh",
    "args": ["-c", 'echo "unsafe $1 $IDEMPOTENCY_KEY" >> "$0"; sleep 0.005', str(EFFECTS), "$.arguments.ticket"],
}
CHILD: Final = {"kind": "workflow", "definitionId": "child", "input": {"ticket": "$.arguments.ticket"}}
REMEMBERED: Final = {"ticket": "$.arguments.ticket"}
IN_CONTEXT: Final = "$.context.ticket"


def by_itself(target: str, **more: Any) -> dict[str, Any]:
    """The only way out of a state, taken by itself."""
    return {"on": {"target": target, "actor": "deterministic", **more}}


def back_and_forth(**more: Any) -> dict[str, Any]:
    """Two states, and a way from each to the other."""
    return {
        "here": {"transitions": {"go": {"target": "there", **more}}},
        "there": {"transitions": {"go": {"target": "here", **more}}},
    }


KINDS: Final[dict[str, dict[str, Any]]] = {
    "pure": back_and_forth(),
    "safe": back_and_forth(executor=marks("safe")),
    "unsafe": back_and_forth(executor=marks("unsafe")),
    "program": back_and_forth(executor=PROGRAM),
    "chain": {
        "here": {"transitions": {"go": {"target": "first", "output": REMEMBERED}}},
        "first": {"transitions": by_itself("second")},
        "second": {"transitions": by_itself("third", executor=marks("safe", IN_CONTEXT))},
        "third": {"onEnter": {"executor": marks("safe", IN_CONTEXT)}, "transitions": by_itself("here")},
    },
    "risky": {
        "here": {"transitions": {"go": {"target": "danger", "output": REMEMBERED}}},
        "danger": {"transitions": by_itself("here", executor=marks("unsafe", IN_CONTEXT))},
    },
    "parent": back_and_forth(executor=CHILD),
}
"""What clients move on for ever, by `go` with a ticket."""

CHILDREN: Final[dict[str, Any]] = {
    "here": {"transitions": by_itself("half", executor=marks("safe", "$.input.ticket"))},
    "half": {"transitions": by_itself("end")},
    "end": {"terminal": True},
}

for name, states in {**KINDS, "child": CHILDREN}.items():
    hub.workflow(name, convert({"initialState": "here", "states": states}, Workflow))
