"""The skills that come with Waypost: one module for each, declared as a dynamic skill declares itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final, TypeAlias

from waypost.capabilities.context import Context
from waypost.skills.core import (
    api_request,
    llm_transform,
    rss_collector,
    send_to_workflow,
    shell,
    system_info,
    web_browse,
    web_search,
)
from waypost.skills.core.inputs import CoreSettings
from waypost.skills.files import Declaration

Run: TypeAlias = Callable[[Mapping[str, Any], Context, CoreSettings], Awaitable[Any]]


@dataclass(frozen=True)
class CoreSkill:
    """A core skill: its declaration, the function that runs it, and the route that a result takes."""

    name: str
    declaration: Declaration
    run: Run
    branch: Callable[[Any], str]


def _from_module(module: ModuleType) -> CoreSkill:
    declaration = Declaration(
        description=module.description,
        version="1.0.0",
        permissions=getattr(module, "permissions", ()),
        routes=getattr(module, "routes", ("on_success", "on_error")),
        external=getattr(module, "external", False),
        input_schema=module.input_schema,
    )
    branch = getattr(module, "branch", lambda result: "on_success")
    return CoreSkill(module.__name__.rpartition(".")[2], declaration, module.run, branch)


CORE: Final = tuple(
    map(
        _from_module,
        (api_request, llm_transform, rss_collector, send_to_workflow, shell, system_info, web_browse, web_search),
    )
)
