"""The core skill that runs a workflow with its input."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from waypost.capabilities.context import Context
from waypost.errors import ToolError
from waypost.skills.core.inputs import CoreSettings, get_field, get_integer, get_text

description = "Run a workflow with the input and wait for its result."
permissions = ("workflow_run",)
input_schema: dict[str, Any] = {
    "target_workflow": {"type": "string", "description": "The workflow to run, by name"},
    "timeout": {"type": "integer", "description": "Seconds to wait for it at most"},
}

MAX_TIMEOUT_S: Final = 86_400
_PREFIX: Final = "workflow:"


async def run(args: Mapping[str, Any], ctx: Context, settings: CoreSettings) -> Any:
    """Run the workflow with the rights of the caller."""
    name = get_text(args, "target_workflow").removeprefix(_PREFIX).strip()
    if not name:
        raise ToolError("target_workflow is missing.")
    tool = ctx.registry.find_tool(name)
    if tool is not None and tool.id.startswith(_PREFIX):
        name = tool.id.removeprefix(_PREFIX)
    ctx.require("workflow_run")
    given = args.get("input")
    within = None if get_field(args, "timeout") is None else get_integer(args, "timeout", 1, MAX_TIMEOUT_S)
    try:
        async with asyncio.timeout(within):
            result = await ctx.invoke(f"{_PREFIX}{name}", {} if given in (None, "") else {"input": given})
    except TimeoutError:
        raise ToolError(f"Workflow {name} did not end within {within} s.") from None
    if result.is_error:
        error = result.structured.get("error") if isinstance(result.structured, Mapping) else None
        message = error.get("message") if isinstance(error, Mapping) else error
        raise ToolError(f"Workflow {name} failed: {message}" if message else result.text)
    return result.text if result.structured is None else result.structured
