"""The one way a capability runs: resolve, admit the arguments, run under a deadline, check the output.

Every way in (MCP, the shell, another handler) calls `call`, `read` or `prompt`. The steps stand in one place, in order;
what a later step of the house adds to every call (who may, how often, on record) is one more line here.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Any, Final

from waypost.capabilities.capability import Capability
from waypost.capabilities.context import Caller, Context, Services
from waypost.capabilities.prompts import PromptMessage, as_messages
from waypost.capabilities.registry import Registry
from waypost.capabilities.resources import as_contents
from waypost.capabilities.results import Result, as_json, failure, shape
from waypost.errors import CallError, InvalidArguments, InvalidOutput, ProtocolError, UnknownResource
from waypost.execution.deadline import Deadline
from waypost.execution.pool import Pool
from waypost.wire.content import Contents

_log: Final = logging.getLogger(__name__)


class Pipeline:
    """Runs capabilities of one registry."""

    def __init__(self, registry: Registry, services: Services, *, timeout: float, pool: Pool | None = None) -> None:
        self.registry = registry
        self.timeout = timeout
        self.pool = Pool() if pool is None else pool
        self._services = services

    async def call(self, name: str, arguments: dict[str, Any], caller: Caller) -> Result:
        """Call a tool; whatever goes wrong inside it is a result that says so."""
        tool = self.registry.tool(name)
        try:
            admitted = tool.arguments.admit(arguments)
            result = shape(await self._run(tool, admitted, caller))
            check_output(tool, result)
        except InvalidArguments as error:
            return failure(f"Invalid arguments for tool {tool.id}: {error.message}")
        except CallError as error:
            return failure(error.message)
        except ProtocolError:
            raise
        except Exception as error:
            _log.exception("tool %s crashed", tool.id)
            return failure(f"Tool crashed: {type(error).__name__}: {error}")
        return result

    async def read(self, uri: str, caller: Caller) -> list[Contents]:
        """Read a resource; a template that finds nothing lets the next one try."""
        for capability, variables in self.registry.resources(uri):
            try:
                admitted = capability.arguments.admit(variables)
                value = await self._run(capability, admitted, caller)
            except (InvalidArguments, UnknownResource):
                continue
            mime_type = getattr(capability.definition, "mime_type", None) or None
            return as_contents(value, uri, mime_type)
        raise UnknownResource(uri)

    async def prompt(self, prompt: Capability, arguments: dict[str, Any], caller: Caller) -> list[PromptMessage]:
        """Write a prompt's messages."""
        admitted = prompt.arguments.admit(arguments)
        return as_messages(await self._run(prompt, admitted, caller))

    async def _run(self, capability: Capability, admitted: Any, caller: Caller) -> Any:
        context = Context(caller, self._services)
        with Deadline(capability.timeout or self.timeout):
            if capability.is_async:
                return await capability.handler(admitted, context)
            return await self.off_loop(capability.id, capability.handler, admitted, context)

    async def off_loop(self, label: str, function: Callable[..., Any], *args: Any) -> Any:
        """Run a synchronous function in a thread, and await what it returns if that is awaitable."""
        value = await self.pool.run(label, function, *args)
        return await value if inspect.isawaitable(value) else value


def check_output(tool: Capability, result: Result) -> None:
    """Refuse structured data that does not fit the output schema its tool declared."""
    if tool.output is None or result.structured is None or result.is_error:
        return
    seen = as_json(result.structured)
    if not tool.output.is_valid(seen):
        problems = "; ".join(tool.output.problems(seen))
        raise InvalidOutput(f"Tool {tool.id} returned a result that does not fit its output schema: {problems}")
