"""One tool for each workflow: it runs until it ends, or until somebody has to decide."""

from __future__ import annotations

import asyncio
from typing import Any

from waypost.capabilities.capability import Capability
from waypost.capabilities.context import Context
from waypost.capabilities.options import ToolOptions
from waypost.capabilities.principals import Principal
from waypost.capabilities.results import Result, failure
from waypost.capabilities.schemas.forms import RawForm
from waypost.capabilities.tools import make_tool
from waypost.errors import WorkflowRefused
from waypost.workflows import answers
from waypost.workflows.answers import Answer
from waypost.workflows.chaining import Outcome
from waypost.workflows.definition import Definition
from waypost.workflows.engine import Engine
from waypost.workflows.landing import new_id
from waypost.workflows.library import tool_name
from waypost.workflows.steps import GIVEN
from waypost.workflows.tools import OWNER, told

Data = dict[str, Any]


def run_tool(engine: Engine, definition: Definition) -> Capability:
    """The tool that runs a workflow."""
    model, name = definition.model, definition.id
    given: Data = GIVEN if model.steps else model.input_schema or {"type": "object"}

    async def run(args: Data, ctx: Context) -> Result:
        if not model.enabled:
            return failure(f"Workflow {name} is disabled")
        value = args.get("input")
        if model.steps:
            value = {} if value is None else {"input": value}
        elif "input" not in args:
            value = args
        workflow_id = new_id()
        try:
            outcome = await engine.begin(name, value or {}, ctx.caller, authorised=True, workflow_id=workflow_id)
        except WorkflowRefused as error:
            return failure(error.message)
        except asyncio.CancelledError:
            await asyncio.shield(engine.spawn(engine.ending.abandon(workflow_id, "nobody waits for it any more")))
            raise
        return told(run_answer(outcome, ctx.principal))

    return make_tool(
        tool_name(name),
        ToolOptions(
            task="optional",
            title=model.title,
            tags=tuple(model.tags),
            aliases=tuple(model.aliases),
            hidden=not model.enabled,
        ),
        arguments=RawForm({"type": "object", "properties": {"input": given}}),
        output=None,
        handler=run,
        arity=2,
        asynchronous=True,
        description=model.description or f"Run the {name} workflow",
        owner=OWNER,
    )


def run_answer(outcome: Outcome, principal: Principal) -> Answer:
    """What running a workflow came to: its result, or what has to be decided."""
    live = outcome.live
    standing = answers.outcome(live, principal, outcome.error, outcome.chain)
    data: Data = {"run_id": live.id, **standing.data}
    if not live.is_over:
        return Answer(data, standing.refused)
    context = live.body.context
    data["status"] = "completed" if live.body.outcome == "succeeded" else live.settled
    data["result"] = context.get("result") if live.definition.model.steps else context
    if live.definition.model.steps and context.get("error"):
        data["error"] = context["error"]
    return Answer(data, refused=live.body.outcome == "failed")
