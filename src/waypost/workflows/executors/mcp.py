"""The kind `mcp`: calls a tool of another MCP server."""

from __future__ import annotations

from typing import Annotated, Any, Final

from msgspec import Meta

from waypost.config.models import McpConnection, Name
from waypost.errors import ExecutorFailed, WaypostError
from waypost.redaction import redacted, secrets_of
from waypost.upstreams.transport import UpstreamUnavailable
from waypost.workflows.executors.kind import Builder, Executor, ExecutorFields, ExecutorKind, Paths, Run


class Mcp(ExecutorFields, frozen=True, kw_only=True, tag="mcp"):
    """Calls a tool of another MCP server."""

    connection: Annotated[Name, Meta(description="A connection of the kind `mcp`.")]
    tool: Annotated[Name, Meta(description="The tool.")]
    map: Annotated[
        Paths | None, Meta(description="The tool's arguments; left out, those of the transition as they are.")
    ] = None


def _build(model: Mcp, builder: Builder) -> Executor:
    name, arguments = model.connection, builder.arguments(model.map)

    async def run(run: Run) -> Any:
        """The tool's structured answer, or `{content: [...]}`."""
        # Loading the HTTP client takes longer than everything else that a hub needs to start.
        from waypost.outbound.egress import EgressFailed

        connection = builder.context.connection(name, McpConnection)
        secrets = secrets_of(connection.env, connection.headers)
        given, principal = arguments(run.scope), run.caller.principal.id
        try:
            answer = await builder.context.call_upstream(name, model.tool, given, run.meta, principal)
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
            texts = [str(one["text"]) for one in answer.get("content") or () if isinstance(one, dict) and "text" in one]
            said = redacted("\n".join(texts), secrets)
            raise ExecutorFailed(said or f"{model.tool} of {name} failed.")
        structured = answer.get("structuredContent")
        return {"content": answer.get("content") or []} if structured is None else structured

    return Executor("mcp", run, "mcp_tool_result")


MCP: Final = ExecutorKind(
    model=Mcp,
    build=_build,
    plan=None,
    check=None,
    check_place=None,
    names={"connection": McpConnection},
    templates=("map",),
    asks_person=False,
    mark="",
)
