"""The kind `mcp`: calls a tool of another MCP server."""

from __future__ import annotations

from typing import Annotated, Any, Final

from msgspec import Meta

from waypost.config.models import McpConnection, Name
from waypost.errors import ExecutorFailed, WaypostError
from waypost.redaction import redacted, secrets_of
from waypost.upstreams.transport import UpstreamUnavailable
from waypost.workflows.executors.kind import (
    IDEMPOTENCY_KEY,
    Builder,
    ExecutorFields,
    ExecutorKind,
    Paths,
    Run,
    fill_arguments,
)


class Mcp(ExecutorFields, frozen=True, kw_only=True, tag="mcp"):
    """Calls a tool of another MCP server."""

    connection: Annotated[Name, Meta(description="A connection of the kind `mcp`.")]
    tool: Annotated[Name, Meta(description="The tool.")]
    map: Annotated[
        Paths | None, Meta(description="The tool's arguments; left out, those of the transition as they are.")
    ] = None


class McpExecutor:
    """One tool of one connection."""

    kind: Final = "mcp"
    evidence: Final = "mcp_tool_result"
    limit: Final = None

    def __init__(self, model: Mcp, builder: Builder) -> None:
        self._model = model
        self._context = builder.context
        self._map = builder.template(model.map)

    async def run(self, run: Run) -> Any:
        """The tool's structured answer, or `{content: [...]}`."""
        # Loading the HTTP client takes longer than everything else that a hub needs to start.
        from waypost.upstreams.egress import EgressFailed

        name = self._model.connection
        connection = self._context.connection(name, McpConnection)
        secrets = secrets_of(connection.env, connection.headers)
        arguments = fill_arguments(self._map, run.scope)
        try:
            answer = await self._context.call_upstream(
                name, self._model.tool, arguments, {IDEMPOTENCY_KEY: run.key}, run.caller.principal.id
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
            said = redacted(_join_text(answer), secrets)
            raise ExecutorFailed(said or f"{self._model.tool} of {name} failed.")
        structured = answer.get("structuredContent")
        return {"content": answer.get("content") or []} if structured is None else structured


def _join_text(answer: dict[str, Any]) -> str:
    blocks = answer.get("content") or []
    return "\n".join(str(block["text"]) for block in blocks if isinstance(block, dict) and "text" in block)


MCP: Final = ExecutorKind(
    model=Mcp,
    build=McpExecutor,
    plan=None,
    check=None,
    check_place=None,
    names={"connection": McpConnection},
    templates=("map",),
    asks_person=False,
    mark="",
)
