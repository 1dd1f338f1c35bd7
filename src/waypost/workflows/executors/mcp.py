"""The executor that calls a tool of another MCP server."""

from __future__ import annotations

from typing import Any, Final

from waypost.config import executors as models
from waypost.errors import ExecutorFailed, WaypostError
from waypost.redaction import redacted, secrets_of
from waypost.upstreams.egress import EgressFailed
from waypost.upstreams.transport import UpstreamUnavailable
from waypost.workflows.executors import arguments_of, connection_of
from waypost.workflows.executors.executor import Run, Surroundings
from waypost.workflows.scope import compile_template

KEY: Final = "waypost/idempotencyKey"
"""The entry of `_meta` that carries the key."""


class Mcp:
    """One tool of one connection."""

    kind: Final = "mcp"
    evidence: Final = "mcp_tool_result"
    limit: Final = None

    def __init__(self, model: models.Mcp, surroundings: Surroundings, roots: frozenset[str]) -> None:
        self._model = model
        self._surroundings = surroundings
        self._map = None if model.map is None else compile_template(model.map, roots)

    async def run(self, run: Run) -> Any:
        """The tool's structured answer, or `{content: [...]}`."""
        name = self._model.connection
        connection = connection_of(self._surroundings, name, models.McpConnection)
        secrets = secrets_of(connection.env, connection.headers)
        arguments = arguments_of(self._map, run.scope)
        try:
            answer = await self._surroundings.call_upstream(
                name, self._model.tool, arguments, {KEY: run.key}, run.caller.principal.id
            )
        except TimeoutError:
            raise ExecutorFailed(f"{name} did not answer in time.", "timeout") from None
        except UpstreamUnavailable as error:
            raise ExecutorFailed(redacted(str(error), secrets), "connection_error") from None
        except OSError as error:
            said = error.strerror or type(error).__name__
            raise ExecutorFailed(f"{name} cannot be reached: {redacted(said, secrets)}.", "connection_error") from None
        except EgressFailed as error:
            raise ExecutorFailed(redacted(error.message, secrets), "connection_error") from None
        except WaypostError as error:
            raise ExecutorFailed(f"{name}: {redacted(error.message, secrets)}") from None
        if answer.get("isError"):
            said = redacted(_text(answer), secrets)
            raise ExecutorFailed(said or f"{self._model.tool} of {name} failed.")
        structured = answer.get("structuredContent")
        return {"content": answer.get("content") or []} if structured is None else structured


def _text(answer: dict[str, Any]) -> str:
    blocks = answer.get("content") or []
    return "\n".join(str(block["text"]) for block in blocks if isinstance(block, dict) and "text" in block)
