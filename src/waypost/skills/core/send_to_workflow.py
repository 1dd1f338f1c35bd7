"""The core skill that hands its input over to a workflow."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from waypost.errors import ToolError
from waypost.skills.core.inputs import CoreSettings, field, text, whole

if TYPE_CHECKING:
    from waypost.capabilities.context import Context
    from waypost.skills.core.inputs import Run

description = "Run a workflow with the input and wait for its result."
version = "1.0.0"
permissions = ("workflow_run",)
routes = ("on_success", "on_error")
external = False
input_schema: dict[str, Any] = {
    "target_workflow": {"type": "string", "description": "The workflow to run, by name"},
    "timeout": {"type": "integer", "description": "Seconds to wait for it at most"},
}

_LONGEST: Final = 86_400
_TOOL: Final = "workflow:"


def make(settings: CoreSettings) -> Run:
    """The skill; a workflow has the rights of whoever calls the skill."""

    async def run(args: Mapping[str, Any], ctx: Context) -> Any:
        name = text(args, "target_workflow").removeprefix(_TOOL).strip()
        if not name:
            raise ToolError("target_workflow is missing.")
        tool = ctx.registry.find_tool(name)
        if tool is not None and tool.id.startswith(_TOOL):
            name = tool.id.removeprefix(_TOOL)
        ctx.require("workflow_run")
        given = args.get("input")
        within = None if field(args, "timeout") is None else whole(args, "timeout", 1, _LONGEST)
        try:
            async with asyncio.timeout(within):
                result = await ctx.invoke(f"{_TOOL}{name}", {} if given in (None, "") else {"input": given})
        except TimeoutError:
            raise ToolError(f"Workflow {name} did not end within {within} s.") from None
        if result.is_error:
            raise ToolError(_reason(name, result.structured) or result.text)
        return result.text if result.structured is None else result.structured

    return run


def _reason(name: str, told: Any) -> str:
    """What a workflow that failed says about it, in a sentence."""
    error = told.get("error") if isinstance(told, Mapping) else None
    message = error.get("message") if isinstance(error, Mapping) else error
    return f"Workflow {name} failed: {message}" if message else ""
