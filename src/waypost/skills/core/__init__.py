"""The skills that come with Waypost, each thin over a library or the system."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

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

if TYPE_CHECKING:
    from waypost.skills.core.inputs import Run


def _succeeded(result: Any) -> str:
    return "on_success"


@dataclass(frozen=True)
class CoreSkill:
    """One skill: what the catalogue shows of it, how it is made, and the route that a result takes."""

    name: str
    description: str
    version: str
    permissions: tuple[str, ...]
    routes: tuple[str, ...]
    external: bool
    input_schema: Mapping[str, Any]
    make: Callable[[CoreSettings], Run]
    branch: Callable[[Any], str]


def _skill(module: ModuleType) -> CoreSkill:
    return CoreSkill(
        name=module.__name__.rpartition(".")[2],
        description=module.description,
        version=module.version,
        permissions=module.permissions,
        routes=module.routes,
        external=module.external,
        input_schema=module.input_schema,
        make=module.make,
        branch=getattr(module, "branch", _succeeded),
    )


CORE: Final = tuple(
    _skill(module)
    for module in (
        *(api_request, llm_transform, rss_collector, send_to_workflow, shell, system_info),
        *(web_browse, web_search),
    )
)

__all__ = ["CORE", "CoreSettings", "CoreSkill"]
