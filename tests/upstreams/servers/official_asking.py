"""A server on the official SDK's low-level class that asks and offers prompts and resources.

On standard streams when run as a program.
"""

from __future__ import annotations

from typing import Any

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

Context = ServerRequestContext[Any]
FORM: dict[str, Any] = {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]}
MODERN = "2026-07-28"


def text(value: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=value)])


async def list_tools(ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    tools = [types.Tool(name=name, input_schema={"type": "object"}) for name in ("paint", "think")]
    return types.ListToolsResult(tools=tools)


async def call_tool(
    ctx: Context, params: types.CallToolRequestParams
) -> types.CallToolResult | types.InputRequiredResult:
    if ctx.protocol_version == MODERN:
        return in_rounds(params)
    if params.name == "paint":
        answer = await ctx.session.elicit_form("Which colour?", FORM, related_request_id=ctx.request_id)
        return text(str((answer.content or {}).get("colour", answer.action)))
    message = types.SamplingMessage(role="user", content=types.TextContent(type="text", text="What is it?"))
    said = await ctx.session.create_message([message], max_tokens=9, related_request_id=ctx.request_id)
    assert isinstance(said.content, types.TextContent)
    return text(said.content.text)


def in_rounds(params: types.CallToolRequestParams) -> types.CallToolResult | types.InputRequiredResult:
    """A question first, and the answer when it is made again with the state that went along."""
    answered = params.input_responses or {}
    if "q" in answered:
        assert params.request_state == "state of the server"
        given = answered["q"]
        if isinstance(given, types.ElicitResult):
            return text(str((given.content or {}).get("colour", given.action)))
        assert isinstance(given, types.CreateMessageResult)
        assert isinstance(given.content, types.TextContent)
        return text(given.content.text)
    asked: Any
    if params.name == "paint":
        asked = types.ElicitRequest(
            params=types.ElicitRequestFormParams(message="Which colour?", requested_schema=FORM)
        )
    else:
        message = types.SamplingMessage(role="user", content=types.TextContent(type="text", text="What is it?"))
        asked = types.CreateMessageRequest(params=types.CreateMessageRequestParams(messages=[message], max_tokens=9))
    return types.InputRequiredResult(input_requests={"q": asked}, request_state="state of the server")


async def list_prompts(ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
    argument = types.PromptArgument(name="name", description="Whom.", required=True)
    return types.ListPromptsResult(prompts=[types.Prompt(name="greet", title="Greeting", arguments=[argument])])


async def get_prompt(ctx: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
    content = types.TextContent(type="text", text=f"Greet {(params.arguments or {})['name']}.")
    return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=content)])


async def list_resources(ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
    return types.ListResourcesResult(resources=[types.Resource(uri="memo://one", name="one")])


async def list_templates(
    ctx: Context, params: types.PaginatedRequestParams | None
) -> types.ListResourceTemplatesResult:
    template = types.ResourceTemplate(uri_template="memo://search{?words,limit}", name="search")
    return types.ListResourceTemplatesResult(resource_templates=[template])


async def read_resource(ctx: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
    uri = str(params.uri)
    return types.ReadResourceResult(contents=[types.TextResourceContents(uri=uri, text=f"All of {uri}.")])


def build() -> Server[Any]:
    """The server."""
    return Server(
        "asking",
        version="1.0.0",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
    )


async def main() -> None:
    """Serve standard streams."""
    server = build()
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main)
