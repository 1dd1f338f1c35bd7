"""Connections: the MCP servers, programs and HTTP APIs that executors and imports use."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from waypost.config.names import Command, Directory, Name

Environment = Annotated[dict[str, str], Meta(description="Variables of the process, beside the few it always has.")]


class McpConnection(Struct, frozen=True, kw_only=True, rename="camel", tag="mcp", tag_field="kind"):
    """An MCP server: a child process, or one that is reached over HTTP."""

    command: Annotated[Command | None, Meta(description="The program to start.")] = None
    args: Annotated[list[str], Meta(description="Its arguments.")] = []
    env: Environment = {}
    working_directory: Annotated[Directory | None, Meta(description="Where it runs.")] = None
    url: Annotated[Name | None, Meta(description="The server's address; it wins over a command.")] = None
    headers: Annotated[dict[str, str], Meta(description="Headers of every request.")] = {}
    credentials: Annotated[
        Literal["shared", "user"],
        Meta(description="Whether all callers share one session, or each has one with headers of their own."),
    ] = "shared"
    version: Annotated[
        Literal["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"] | None,
        Meta(description="The version of MCP to speak with it; left out, the newest that it knows."),
    ] = None

    def __post_init__(self) -> None:
        if self.credentials == "user" and self.transport != "http":
            raise ValueError("credentials of users are headers, so they need a connection with a url")

    @property
    def transport(self) -> Literal["stdio", "http"] | None:
        """How the server is reached; a url wins over a command, and without both there is no way."""
        if self.url is not None:
            return "http"
        return None if self.command is None else "stdio"


class CliConnection(Struct, frozen=True, kw_only=True, rename="camel", tag="cli", tag_field="kind"):
    """A program on this machine."""

    command: Annotated[Command, Meta(description="The program.")]
    args: Annotated[list[str], Meta(description="Its first arguments, before those of an executor.")] = []
    working_directory: Annotated[Directory | None, Meta(description="Where it runs.")] = None
    env: Environment = {}


class RestConnection(Struct, frozen=True, kw_only=True, rename="camel", tag="rest", tag_field="kind"):
    """An HTTP API."""

    base_url: Annotated[Name, Meta(description="Where its paths begin.")]
    headers: Annotated[dict[str, str], Meta(description="Headers of every request.")] = {}
    openapi: Annotated[str | None, Meta(description="Its OpenAPI document.", extra={"path": "file"})] = None
    allow_private: Annotated[bool, Meta(description="Whether it may be at a private address.")] = False


Connection = McpConnection | CliConnection | RestConnection
