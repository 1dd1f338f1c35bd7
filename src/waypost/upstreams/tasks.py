"""Tools that run as tasks at a server: which ones do, how such a call is begun, and how a task looks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from waypost.errors import CapabilityNotSupported, RemoteError
from waypost.wire.params import CLIENT_CAPABILITIES
from waypost.wire.versions import V2025_11_25, is_modern

EXTENSION: Final = "io.modelcontextprotocol/tasks"
RELATED: Final = "io.modelcontextprotocol/related-task"
LONGEST: Final = 3600.0
"""Seconds that a task may take, and that a server is asked to keep it for."""
_TTL_MS: Final = int(LONGEST * 1000)

Data = dict[str, Any]


def only_as_tasks(tools: Iterable[Any]) -> set[str]:
    """The names of the tools whose definition says that they only run as a task."""
    found = set()
    for tool in tools:
        execution = tool.get("execution") if isinstance(tool, dict) else None
        if isinstance(execution, dict) and execution.get("taskSupport") == "required":
            found.add(str(tool.get("name")))
    return found


def runs_tasks(version: str, capabilities: Mapping[str, Any]) -> bool:
    """Whether a server with sessions says that tools may be called as tasks."""
    found: Any = capabilities
    for name in ("tasks", "requests", "tools"):
        found = found.get(name) if isinstance(found, dict) else None
    return version == V2025_11_25 and isinstance(found, dict) and "call" in found


def is_wanted(error: RemoteError) -> bool:
    """Whether a server of the newest era refused a call because it would have to be a task."""
    needed = error.data.get("requiredCapabilities") if isinstance(error.data, dict) else None
    extensions = needed.get("extensions") if isinstance(needed, dict) else None
    return error.code == CapabilityNotSupported.code and isinstance(extensions, dict) and EXTENSION in extensions


def begun_as_task(version: str, params: Data, meta: Data, own: Mapping[str, Any]) -> tuple[Data, Data]:
    """The parameters and the `_meta` of a call that is to run as a task; `own` is what the client can do anyway."""
    if is_modern(version):
        return params, declaring(meta, own)
    return {**params, "task": {"ttl": _TTL_MS}}, meta


def declaring(meta: Mapping[str, Any], own: Mapping[str, Any]) -> Data:
    """The `_meta` of a request that says that its client knows tasks."""
    able = meta.get(CLIENT_CAPABILITIES, own)
    return {**meta, CLIENT_CAPABILITIES: {**able, "extensions": {**(able.get("extensions") or {}), EXTENSION: {}}}}


def task_of(answer: Mapping[str, Any]) -> Data | None:
    """The task that a call became, if it did."""
    task = answer if answer.get("resultType") == "task" else answer.get("task")
    if not isinstance(task, dict) or not isinstance(task.get("taskId"), str) or "content" in answer:
        return None
    return task
