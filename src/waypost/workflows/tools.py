"""The four MCP tools that every workflow is driven by."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from waypost.capabilities.capability import Capability
from waypost.capabilities.context import Context
from waypost.capabilities.options import ToolOptions
from waypost.capabilities.results import Result, encode_json
from waypost.capabilities.schemas.forms import RawForm
from waypost.capabilities.tools import make_tool
from waypost.wire.content import Text
from waypost.workflows.answers import Answer
from waypost.workflows.approving import offer
from waypost.workflows.engine import Engine

OWNER: Final = "workflow"
DAY: Final = 86_400.0
"""How long one of the four may take: what it runs has deadlines of its own."""

Data = dict[str, Any]
Handler = Callable[[Data, Context], Awaitable[Result]]

_ID: Final = {"type": "string", "description": "The id of the workflow instance, such as wf_..."}
_DEFINITION: Final = {"type": "string", "description": "The id of the workflow definition"}
_START: Final = {
    "type": "object",
    "properties": {
        "definitionId": _DEFINITION,
        "input": {"type": "object", "description": "The input of the workflow, by its input schema"},
    },
    "required": ["definitionId", "input"],
    "additionalProperties": False,
}
_GET: Final = {
    "type": "object",
    "properties": {"workflowId": _ID},
    "required": ["workflowId"],
    "additionalProperties": False,
}
_SUBMIT: Final = {
    "type": "object",
    "properties": {
        "workflowId": _ID,
        "expectedVersion": {"type": "integer", "description": "The version that the link was for"},
        "transition": {"type": "string", "description": "The transition to take"},
        "arguments": {"type": "object", "description": "Its arguments, by the link's inputSchema"},
        "requestId": {
            "type": "string",
            "minLength": 1,
            "maxLength": 200,
            "description": "Any id of your own: the same call with the same id is answered again, not done again",
        },
        "resolve": {
            "enum": ["retry", "succeeded", "failed"],
            "description": "What became of a transition whose outcome is unknown; only where a link says so",
        },
        "output": {"description": "With resolve: succeeded, what the transition gave"},
    },
    "required": ["workflowId", "expectedVersion", "transition", "arguments"],
    "additionalProperties": False,
}
_EXPLAIN: Final = {
    "type": "object",
    "properties": {
        "definitionId": _DEFINITION,
        "transition": {"type": "string", "description": "One transition to look at"},
        "workflowId": {
            "type": "string",
            "description": "An instance: tells also what is allowed there now, and why not",
        },
    },
    "required": ["definitionId"],
    "additionalProperties": False,
}


class Forgiving(RawForm):
    """A schema that is published as it is, and forgives what has only one meaning when it is left out."""

    def __init__(self, schema: Data, **otherwise: Any) -> None:
        super().__init__(schema)
        self._otherwise = otherwise

    def admit(self, arguments: Data) -> Data:
        """The arguments, with what was left out."""
        return super().admit({**self._otherwise, **arguments})


def workflow_tools(engine: Engine) -> list[Capability]:
    """The four tools."""

    async def start(args: Data, ctx: Context) -> Result:
        return told(await offer(engine, ctx, lambda: engine.start(args["definitionId"], args["input"], ctx.caller)))

    async def get(args: Data, ctx: Context) -> Result:
        return told(await engine.get(args["workflowId"], ctx.caller))

    async def submit(args: Data, ctx: Context) -> Result:
        def once() -> Awaitable[Answer]:
            return engine.submit(
                args["workflowId"],
                int(args["expectedVersion"]),
                args["transition"],
                args["arguments"],
                ctx.caller,
                request_id=args.get("requestId", ""),
                resolve=args.get("resolve", ""),
                output=args.get("output"),
            )

        return told(await offer(engine, ctx, once))

    async def explain(args: Data, ctx: Context) -> Result:
        return told(
            await engine.explain(
                args["definitionId"], args.get("transition", ""), args.get("workflowId", ""), ctx.caller
            )
        )

    return [
        _tool(
            "workflow.start",
            "Start a workflow by its definitionId and get its state, its context and links: each link is the next call "
            "you may make, ready to be made as it is.",
            Forgiving(_START, definitionId="", input={}),
            start,
        ),
        _tool(
            "workflow.get",
            "Look at a workflow instance: its state, version, context, and links to every move that is legal now.",
            RawForm(_GET),
            get,
            read_only_hint=True,
            idempotent_hint=True,
        ),
        _tool(
            "workflow.submit",
            "Take a transition of a workflow instance. Follow a link: its args are the arguments of this call; fill in "
            "`arguments` by the link's inputSchema. A refusal says what was wrong and carries links that lead on.",
            Forgiving(_SUBMIT, arguments={}),
            submit,
        ),
        _tool(
            "workflow.explain",
            "See what a workflow would do, without doing anything: its states, or one transition with its guards, "
            "schema and executor; with a workflowId also what is allowed in that instance now, and why not.",
            Forgiving(_EXPLAIN, definitionId=""),
            explain,
            read_only_hint=True,
            idempotent_hint=True,
        ),
    ]


def _tool(name: str, description: str, arguments: RawForm, handler: Handler, **annotations: bool) -> Capability:
    return make_tool(
        name,
        ToolOptions(timeout=DAY, annotations=annotations or None),
        arguments=arguments,
        output=None,
        handler=handler,
        arity=2,
        asynchronous=True,
        description=description,
        owner=OWNER,
    )


def told(answer: Answer) -> Result:
    """An answer as a tool's result: structured, and the same as text."""
    text = Text(encode_json(answer.data).decode())
    return Result([text], structured=answer.data, is_error=answer.refused)
