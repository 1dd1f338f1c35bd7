"""Asking the person behind the client: where whoever submits may approve as well, they are asked right there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from waypost.capabilities.context import Context
from waypost.errors import CallError, CapabilityNotSupported, WorkflowRefused
from waypost.workflows import answers
from waypost.workflows.answers import Answer
from waypost.workflows.engine import Engine

_FORM: Final = {
    "type": "object",
    "properties": {
        "decision": {"type": "string", "enum": ["approve", "reject"], "description": "Your decision"},
        "reason": {"type": "string", "description": "Why"},
    },
    "required": ["decision"],
}
_SHOWN: Final = 4000


async def offer(engine: Engine, ctx: Context, call: Callable[[], Awaitable[Answer]]) -> Answer:
    """Make a call, and if it stops at people of whom the caller is one, ask them."""
    if not ctx.principal.roles or "elicitation" not in ctx.caller.client_capabilities:
        return await call()

    async def once() -> list[Any]:
        answer = await call()
        return [answer.data, answer.refused]

    data, refused = await ctx.once("workflow", once)
    approval = data.get("approval")
    if refused or approval is None or approval["role"] not in ctx.principal.roles:
        return Answer(data, refused)
    try:
        said = await ctx.elicit(_question(data["workflowId"], approval), _FORM)
    except (CapabilityNotSupported, CallError):
        return Answer(data)
    if said.action != "accept" or not said.content:
        return Answer(data)
    decide = engine.gates.approve if said.content["decision"] == "approve" else engine.gates.reject
    try:
        outcome = await decide(
            approval["id"], ctx.principal, "elicitation", said.content.get("reason", ""), approval["digest"]
        )
    except WorkflowRefused as error:
        live = await engine.seen(data["workflowId"], ctx.principal)
        return answers.refusal(live, ctx.principal, error.code, error.message)
    return answers.outcome(outcome.live, ctx.principal, outcome.error, outcome.chain)


def _question(workflow_id: str, approval: dict[str, Any]) -> str:
    shown = msgspec.json.format(msgspec.json.encode(approval["presents"]).decode(), indent=2)
    cut = f"\n... ({len(shown) - _SHOWN} characters more)" if len(shown) > _SHOWN else ""
    return f"{approval['prompt']}\n\n{shown[:_SHOWN]}{cut}\n\nWorkflow {workflow_id}, {approval['digest']}"
