"""A dynamic skill as a tool: what clients see, and how a call reaches its process."""

from __future__ import annotations

from typing import Any

from waypost.capabilities.capability import Capability
from waypost.capabilities.context import Context, Handler
from waypost.capabilities.names import check_name
from waypost.capabilities.options import ToolOptions
from waypost.capabilities.results import Result, to_result
from waypost.capabilities.tools import make_tool
from waypost.skills.answers import Answers, is_granted
from waypost.skills.child.messages import Done, Failed
from waypost.skills.crashes import crash
from waypost.skills.declarations import Declaration
from waypost.skills.pool import Pool
from waypost.skills.process import Program

OWNER = "dynamic"
BRANCH = "waypost/branch"
REVISION = "waypost/revision"


def tool_name(name: str) -> str:
    """The name of a skill's tool."""
    return f"skill:{name}"


def dynamic_tool(
    name: str, declaration: Declaration, handler: Handler, *, revision: int, timeout: float | None
) -> Capability:
    """The tool of a dynamic skill; its revision tells clients that the code behind it is another."""
    return make_tool(
        check_name(tool_name(name)),
        ToolOptions(timeout=timeout, permissions=declaration.permissions or (), meta={REVISION: revision}),
        arguments=declaration.arguments,
        output=None,
        handler=handler,
        arity=2,
        asynchronous=True,
        description=f"{declaration.description or f'{name} skill'} [dynamic]",
        owner=OWNER,
    )


def handler(program: Program, pool: Pool, answers: Answers) -> Handler:
    """Runs a skill in one of its processes."""

    async def run(arguments: dict[str, Any], ctx: Context) -> Result:
        async with pool.process(program) as process:
            caller = _caller(program, ctx)
            outcome = await process.call(skill_args(arguments), caller, lambda ask: answers.answer(ask, ctx))
        return _result(program.name, outcome)

    return run


def skill_args(arguments: dict[str, Any]) -> dict[str, Any]:
    """What `run` gets: `input`, `config`, and typed fields both beside them and in `config`, whose own keys win."""
    typed = {key: value for key, value in arguments.items() if key not in ("input", "config")}
    config = {**typed, **arguments.get("config", {})}
    return {**typed, "input": arguments.get("input", ""), "config": config}


def _caller(program: Program, ctx: Context) -> dict[str, Any]:
    return {
        "principal": ctx.principal.id,
        "roles": ctx.principal.roles,
        "request_id": ctx.request_id,
        "network": "web_read" in program.permissions and is_granted(ctx, "web_read"),
    }


def _result(name: str, outcome: Done | Failed) -> Result:
    if isinstance(outcome, Failed):
        raise crash(name, outcome)
    result = to_result(outcome.value)
    if outcome.branch is not None:
        result.meta = {BRANCH: outcome.branch}
    return result
