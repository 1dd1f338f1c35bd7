"""The MCP tools of workflows: `workflow.start`, `.get`, `.submit`, `.explain`, and one tool for each definition.

Where a submit stops at an approval that its own caller may give, the client is asked at once (elicitation).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

import msgspec

from waypost.capabilities.capability import Capability, ToolOptions
from waypost.capabilities.context import Context
from waypost.capabilities.principals import Principal
from waypost.capabilities.results import Result, encode_json, failure
from waypost.capabilities.schemas.forms import RawForm
from waypost.capabilities.tools import make_tool
from waypost.errors import CallError, CapabilityNotSupported, WorkflowRefused
from waypost.wire.content import Text
from waypost.workflows import views
from waypost.workflows.definitions import Definition, tool_name
from waypost.workflows.engine import Engine
from waypost.workflows.instance import may_decide
from waypost.workflows.runner import Outcome
from waypost.workflows.steps import GIVEN
from waypost.workflows.transitions import new_id
from waypost.workflows.views import Answer

OWNER: Final = "workflow"
MAX_CALL_S: Final = 86_400.0
"""The time limit of the workflow tools: long, as executors have their own deadlines."""

Data = dict[str, Any]
Handler = Callable[[Data, Context], Awaitable[Result]]


def _schema(properties: Data, required: list[str], **more: Any) -> Data:
    return {"type": "object", "properties": properties, "required": required, **more}


_ID: Final = {"type": "string", "description": "The id of the workflow instance, such as wf_..."}
_DEFINITION: Final = {"type": "string", "description": "The id of the workflow definition"}
_START: Final = _schema(
    {
        "definitionId": _DEFINITION,
        "input": {"type": "object", "description": "The input of the workflow, by its input schema"},
    },
    ["definitionId", "input"],
    additionalProperties=False,
)
_GET: Final = _schema({"workflowId": _ID}, ["workflowId"], additionalProperties=False)
_SUBMIT: Final = _schema(
    {
        "workflowId": _ID,
        "expectedVersion": {"type": "integer", "description": "The version that the link was for"},
        "transition": {"type": "string", "description": "The transition to take"},
        "arguments": {"type": "object", "description": "Its arguments, by the link's inputSchema"},
        "requestId": {
            "type": "string",
            "minLength": 1,
            "maxLength": 200,
            "description": "An id of your choice: a repeated call with the same id only returns the first answer",
        },
        "resolve": {
            "enum": ["retry", "succeeded", "failed"],
            "description": "The outcome of a transition whose outcome is unknown; only where a link says so",
        },
        "output": {"description": "With resolve: succeeded, the output of the transition"},
    },
    ["workflowId", "expectedVersion", "transition", "arguments"],
    additionalProperties=False,
)
_EXPLAIN: Final = _schema(
    {
        "definitionId": _DEFINITION,
        "transition": {"type": "string", "description": "One transition to look at"},
        "workflowId": {
            "type": "string",
            "description": "An instance: also explains which transitions it allows now, and why not the others",
        },
    },
    ["definitionId"],
    additionalProperties=False,
)
_FORM: Final = _schema(
    {
        "decision": {"type": "string", "enum": ["approve", "reject"], "description": "Your decision"},
        "reason": {"type": "string", "description": "Why"},
    },
    ["decision"],
)
_MAX_SHOWN_CHARS: Final = 4000
_DATA_KEYWORDS: Final = ("const", "enum", "default", "examples")
"""Keywords of JSON Schema whose values are data."""
_NAMED_SCHEMAS: Final = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")
"""Keywords of JSON Schema whose values are schemas by name."""


def workflow_tools(engine: Engine) -> list[Capability]:
    """The four workflow tools."""

    async def start(args: Data, ctx: Context) -> Result:
        call = partial(engine.start, args["definitionId"], args["input"], ctx.caller)
        return to_result(await elicit_approval(engine, ctx, call))

    async def get(args: Data, ctx: Context) -> Result:
        return to_result(await engine.get(args["workflowId"], ctx.caller))

    async def submit(args: Data, ctx: Context) -> Result:
        asked = (args["workflowId"], int(args["expectedVersion"]), args["transition"], args["arguments"])
        more = {"request_id": args.get("requestId", ""), "resolve": args.get("resolve", "")}
        call = partial(engine.submit, *asked, ctx.caller, **more, output=args.get("output"))
        return to_result(await elicit_approval(engine, ctx, call))

    async def explain(args: Data, ctx: Context) -> Result:
        return to_result(
            await engine.explain(
                args["definitionId"], args.get("transition", ""), args.get("workflowId", ""), ctx.caller
            )
        )

    return [
        build_tool(
            "workflow.start",
            "Start a workflow by its definitionId and get its state, its context and links: each link is the next call "
            "you may make, ready to be made as it is.",
            RawForm(_START, definitionId="", input={}),
            start,
        ),
        build_tool(
            "workflow.get",
            "Look at a workflow instance: its state, version, context, and links to every move that is legal now.",
            RawForm(_GET),
            get,
            read_only_hint=True,
            idempotent_hint=True,
        ),
        build_tool(
            "workflow.submit",
            "Take a transition of a workflow instance. Follow a link: its args are the arguments of this call; fill in "
            "`arguments` by the link's inputSchema. A refusal says what was wrong and carries links that lead on.",
            RawForm(_SUBMIT, arguments={}),
            submit,
        ),
        build_tool(
            "workflow.explain",
            "See what a workflow would do, without doing anything: its states, or one transition with its guards, "
            "schema and executor; with a workflowId also what is allowed in that instance now, and why not.",
            RawForm(_EXPLAIN, definitionId=""),
            explain,
            read_only_hint=True,
            idempotent_hint=True,
        ),
    ]


def build_tool(name: str, description: str, arguments: RawForm, handler: Handler, **annotations: bool) -> Capability:
    """One of the seven tools."""
    return make_tool(
        name,
        ToolOptions(timeout=MAX_CALL_S, annotations=annotations or None),
        arguments=arguments,
        handler=handler,
        description=description,
        owner=OWNER,
    )


def to_result(answer: Answer) -> Result:
    """An answer as a tool result: structured content, and the same as text."""
    text = Text(encode_json(answer.data).decode())
    return Result([text], structured=answer.data, is_error=answer.refused)


async def elicit_approval(engine: Engine, ctx: Context, call: Callable[[], Awaitable[Answer]]) -> Answer:
    """Make a call, and ask the client for the decision about an approval that its caller may give.

    The call runs inside `ctx.once`: a modern client answers by repeating its request, which must not submit again.
    """
    # Such a caller cannot be asked or cannot decide, so the call need not be kept for a repeated request.
    if not ctx.caller.principal.roles or "elicitation" not in ctx.caller.client_capabilities:
        return await call()

    async def once() -> list[Any]:
        answer = await call()
        return [answer.data, answer.refused]

    data, refused = await ctx.once("workflow", once)
    approval = data.get("approval")
    if refused or approval is None or not may_decide(approval["role"], ctx.principal):
        return Answer(data, refused)
    shown = msgspec.json.format(msgspec.json.encode(approval["presents"]).decode(), indent=2)
    if len(shown) > _MAX_SHOWN_CHARS:
        # A person approves what they saw: what a form cannot show whole is decided elsewhere.
        note = (
            f"What is to be approved has {len(shown):,} characters, more than the {_MAX_SHOWN_CHARS:,} of a form. "
            f"Read it with `waypost approvals list --json`, then use `waypost approvals approve {approval['id']}`"
            f" or the HTTP API to decide; the digest is {approval['digest']}."
        )
        return Answer({**data, "approval": {**approval, "note": note}})
    question = f"{approval['prompt']}\n\n{shown}\n\nWorkflow {data['workflowId']}, {approval['digest']}"
    try:
        said = await ctx.elicit(question, _FORM)
    except (CapabilityNotSupported, CallError):
        return Answer(data)
    if said.action != "accept" or not said.content:
        return Answer(data)
    decide = engine.approvals.approve if said.content["decision"] == "approve" else engine.approvals.reject
    try:
        outcome = await decide(
            approval["id"], ctx.principal, "elicitation", said.content.get("reason", ""), approval["digest"]
        )
    except WorkflowRefused as error:
        instance = await engine.get_visible(data["workflowId"], ctx.principal)
        return views.refusal_answer(instance, ctx.principal, error.code, error.message)
    return views.describe_instance(outcome.instance, ctx.principal, outcome.chain, outcome.error)


def run_tool(engine: Engine, definition: Definition) -> Capability:
    """The tool that runs a definition until it ends or a caller has to decide."""
    model, name = definition.model, definition.id
    takes_text = bool(model.steps) and _takes_text(definition)
    given: Data = GIVEN if takes_text else model.input_schema or {"type": "object"}

    async def run(args: Data, ctx: Context) -> Result:
        if not model.enabled:
            return failure(f"Workflow {name} is disabled")
        value = args.get("input")
        if takes_text:
            value = {} if value is None else {"input": value}
        elif "input" not in args:
            value = args
        workflow_id = new_id()
        try:
            outcome = await engine.begin(name, value or {}, ctx.caller, authorised=True, workflow_id=workflow_id)
        except WorkflowRefused as error:
            return failure(error.message)
        except asyncio.CancelledError:
            # As a task of the engine: what cancels this call must not stop the cancellation of its instance.
            await asyncio.shield(engine.runner.spawn(engine.runner.abandon(workflow_id, "its caller is gone")))
            raise
        return to_result(run_answer(outcome, ctx.principal))

    return make_tool(
        tool_name(name),
        ToolOptions(
            task="optional",
            title=model.title,
            tags=tuple(model.tags),
            aliases=tuple(model.aliases),
            hidden=not model.enabled,
        ),
        arguments=RawForm({"type": "object", "properties": {"input": _move_references(given)}}),
        handler=run,
        description=model.description or f"Run the {name} workflow",
        owner=OWNER,
    )


def _takes_text(definition: Definition) -> bool:
    """Whether a text can be the whole input of a workflow of steps, as it is without a schema of its own."""
    own = definition.model.input_schema
    if own is None or "input" in (own.get("properties") or ()):
        return True
    return definition.schema is None or definition.schema.is_valid({"input": ""})


def _move_references(schema: Any, is_schema: bool = True) -> Any:
    """A schema that becomes the property `input` of another; `#/...` in it is below that property from then on."""
    if isinstance(schema, list):
        return [_move_references(one, is_schema) for one in schema]
    if not isinstance(schema, dict) or (is_schema and "$id" in schema):  # references are relative to the `$id`
        return schema
    moved = {}
    for key, value in schema.items():
        if is_schema and key == "$ref" and isinstance(value, str) and (value == "#" or value.startswith("#/")):
            moved[key] = f"#/properties/input{value[1:]}"
        elif is_schema and key in _DATA_KEYWORDS:
            moved[key] = value
        else:
            moved[key] = _move_references(value, not (is_schema and key in _NAMED_SCHEMAS))
    return moved


def run_answer(outcome: Outcome, principal: Principal) -> Answer:
    """The answer of a run tool: the result, or the state in which it waits."""
    instance = outcome.instance
    standing = views.describe_instance(instance, principal, outcome.chain, outcome.error)
    data: Data = {"run_id": instance.id, **standing.data}
    if not instance.is_over:
        return Answer(data, standing.refused)
    context = instance.body.context
    data["status"] = "completed" if instance.body.outcome == "succeeded" else instance.settled
    data["result"] = context.get("result") if instance.definition.model.steps else context
    if instance.definition.model.steps and context.get("error"):
        data["error"] = context["error"]
    return Answer(data, refused=instance.body.outcome == "failed")
