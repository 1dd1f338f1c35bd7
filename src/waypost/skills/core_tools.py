"""Core skills as tools."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from waypost.capabilities.capability import Capability
from waypost.capabilities.context import Context, Handler
from waypost.capabilities.options import ToolOptions
from waypost.capabilities.results import Result, to_result
from waypost.capabilities.tools import make_tool
from waypost.skills.calls import Calls
from waypost.skills.core import CORE, CoreSkill
from waypost.skills.core.settings import CoreSettings
from waypost.skills.declarations import Declaration
from waypost.skills.sanitising import cleaning
from waypost.skills.tools import BRANCH, skill_args, tool_name

OWNER = "core"


def core_tools(
    names: Collection[str] | None,
    settings: CoreSettings,
    timeout: float | None,
    calls: Calls,
    *,
    sanitize: bool = False,
) -> list[Capability]:
    """The tools of the skills that are wanted: those named, else all but the shell."""
    wanted = {skill.name for skill in CORE} - {"shell"} if names is None else set(names)
    return [_tool(skill, settings, timeout, calls, sanitize) for skill in CORE if skill.name in wanted]


def _tool(skill: CoreSkill, settings: CoreSettings, timeout: float | None, calls: Calls, sanitize: bool) -> Capability:
    run = calls.counted(_handler(skill, settings))
    declared = Declaration(
        description=skill.description,
        version=skill.version,
        permissions=skill.permissions,
        routes=skill.routes,
        external=skill.external,
        input_schema=dict(skill.input_schema),
    )
    return make_tool(
        tool_name(skill.name),
        ToolOptions(timeout=timeout, permissions=skill.permissions),
        arguments=declared.arguments,
        output=None,
        handler=cleaning(run) if sanitize and skill.external else run,
        arity=2,
        asynchronous=True,
        description=skill.description,
        owner=OWNER,
    )


def _handler(skill: CoreSkill, settings: CoreSettings) -> Handler:
    run = skill.make(settings)

    async def handler(arguments: dict[str, Any], ctx: Context) -> Result:
        value = await run(skill_args(arguments), ctx)
        result = to_result(value)
        result.meta = {BRANCH: skill.branch(value)}
        return result

    return handler
