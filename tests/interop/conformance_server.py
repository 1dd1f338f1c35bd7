"""The server that the official conformance suites expect: every kind of capability, each as small as it can be.

Serve it with `waypost serve tests/interop/conformance_server.py:hub`.
"""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

from tests.interop.conformance_asking import ASKING
from tests.interop.conformance_forms import (
    AGREEMENT,
    CONTACT_SCHEMA,
    NAME_OR_AGREEMENT,
    ROUTED_SCHEMA,
    described,
    form,
)
from waypost import (
    Audio,
    Context,
    EmbeddedResource,
    Hub,
    Image,
    InvalidParams,
    Prompt,
    Resource,
    Text,
    ToolError,
)

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
)
WAV = base64.b64decode("UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=")
PAUSE = 0.05
TASK_AFTER = 0.3

hub = Hub(
    "conformance",
    version="1.0.0",
    instructions="Fixtures of the official conformance suites.",
    task_after=TASK_AFTER,
)
hub.add_skills(Path(__file__).parent / "skills")


@hub.tool
def anything() -> str:
    """Be the first of the list, which a suite calls without looking at what it is."""
    return "Anything."


@hub.tool
def test_simple_text() -> str:
    """Answer with text."""
    return "This is a simple text response for testing."


@hub.tool
def test_image_content() -> Image:
    """Answer with a picture."""
    return Image(PNG, "image/png")


@hub.tool
def test_audio_content() -> Audio:
    """Answer with a sound."""
    return Audio(WAV, "audio/wav")


@hub.tool
def test_embedded_resource() -> EmbeddedResource:
    """Answer with a resource."""
    return EmbeddedResource("test://embedded-resource", "This is an embedded resource.", mime_type="text/plain")


@hub.tool
def test_multiple_content_types() -> list[Text | Image | EmbeddedResource]:
    """Answer with text, a picture and a resource."""
    return [
        Text("Multiple content types test:"),
        Image(PNG, "image/png"),
        EmbeddedResource("test://mixed-content-resource", '{"test": "data"}', mime_type="application/json"),
    ]


@hub.tool
async def test_tool_with_logging(ctx: Context) -> str:
    """Log three messages while running."""
    for message in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await ctx.log("info", message)
        await asyncio.sleep(PAUSE)
    return "Logged three messages."


@hub.tool
async def test_logging_tool(ctx: Context) -> str:
    """Log one message, which only reaches clients that asked for it."""
    await ctx.log("info", "One log message")
    return "Logged one message."


@hub.tool
async def test_tool_with_progress(ctx: Context) -> str:
    """Report progress three times."""
    for percent in (0, 50, 100):
        await ctx.progress(percent, 100, f"{percent} % done")
        await asyncio.sleep(PAUSE)
    return "Reported progress three times."


@hub.tool
def test_error_handling() -> str:
    """Fail, always."""
    raise ToolError("This tool intentionally returns an error for testing")


@hub.tool
async def test_reconnection(ctx: Context) -> str:
    """Let the client go in the middle of the call; it comes back for the answer."""
    await ctx.close_stream()
    await asyncio.sleep(PAUSE)
    return "Reconnection test completed."


@hub.tool(input_schema=CONTACT_SCHEMA)
def json_schema_2020_12_tool(args: dict[str, Any]) -> str:
    """Take arguments whose schema uses the less common keywords."""
    return f"Hello {args.get('name', 'there')}."


@hub.tool(input_schema=ROUTED_SCHEMA)
def test_custom_header(args: dict[str, Any]) -> str:
    """Take an argument that the client repeats as an HTTP header."""
    return f"Routed to {args['region']}."


@hub.tool
async def test_trigger_tool_change() -> str:
    """Change the list of tools: an extra one comes or goes."""
    if any(tool.id == extra_tool.__name__ for tool in hub.expand("tools")):
        hub.remove(extra_tool.__name__)
        return "The extra tool is gone."
    hub.tool(extra_tool)
    return "There is an extra tool."


def extra_tool() -> str:
    """Be there only every other time."""
    return "Extra."


@hub.tool
async def test_trigger_prompt_change() -> str:
    """Change the list of prompts: there is one more after each call."""
    number = len(hub.expand("prompts"))
    hub.prompt(extra_prompt, name=f"extra_prompt_{number}")
    return f"There are {number + 1} prompts."


def extra_prompt() -> str:
    """Be one more prompt."""
    return "Extra."


@hub.tool
async def test_trigger_resource_update(ctx: Context) -> str:
    """Tell subscribers that the watched resource changed."""
    await ctx.notify_resource_updated("test://watched-resource")
    return "The watched resource changed."


@hub.tool
def greet(name: str) -> str:
    """Greet, at once."""
    return f"Hello, {name}!"


@hub.tool(task="optional")
async def slow_compute(seconds: float, label: str = "work") -> str:
    """Take as long as asked."""
    await asyncio.sleep(seconds)
    return f"{label} took {seconds} s."


@hub.tool(task="required")
async def failing_job() -> str:
    """Be a task that comes to a failure."""
    raise ToolError("This job fails, always.")


@hub.tool(task="required")
async def protocol_error_job() -> str:
    """Be a task that ends with an error of the protocol."""
    raise InvalidParams("This job ends with an error, always.")


@hub.tool(task="required")
async def confirm_delete(filename: str, ctx: Context) -> str:
    """Be a task that asks before it goes on."""
    answer = await ctx.elicit(f"Delete {filename}?", AGREEMENT, key="confirm")
    return f"{filename}: {described(answer)}"


@hub.tool(task="required")
async def multi_input(ctx: Context) -> str:
    """Be a task that asks two things at once."""
    name, agreed = await asyncio.gather(
        ctx.elicit("What is your name?", NAME_OR_AGREEMENT, key="name"),
        ctx.elicit("Do you agree?", NAME_OR_AGREEMENT, key="confirm"),
    )
    return f"{described(name)}, {described(agreed)}"


@hub.tool(task="optional")
async def test_tool_with_task(ctx: Context) -> str:
    """Ask for a name, then become a task."""
    answer = await ctx.elicit("What is your name?", form("name"), key="user_name")
    await asyncio.sleep(2 * TASK_AFTER)
    return f"Hello, {described(answer)}!"


@hub.resource("test://static-text", mime_type="text/plain")
def static_text() -> str:
    """A fixed text."""
    return "This is the content of the static text resource."


@hub.resource("test://static-binary", mime_type="image/png")
def static_binary() -> bytes:
    """A fixed picture."""
    return PNG


class WatchedResource(Resource, uri="test://watched-resource", mime_type="text/plain", subscribable=True):
    """A text that clients can subscribe to."""

    def read(self) -> str:
        return "Watched resource content"


class TemplateResource(Resource, uri_template="test://template/{id}/data", mime_type="application/json"):
    """Data about the id in its address."""

    id: str

    def read(self) -> dict[str, Any]:
        return {"id": self.id, "templateTest": True, "data": f"Data for ID: {self.id}"}


@hub.prompt
def test_simple_prompt() -> str:
    """One message."""
    return "This is a simple prompt for testing."


class TestPromptWithArguments(Prompt):
    """One message made of two arguments."""

    arg1: str
    arg2: str

    def messages(self) -> str:
        return f"Prompt with arguments: arg1='{self.arg1}', arg2='{self.arg2}'"


class TestPromptWithEmbeddedResource(Prompt):
    """A resource and a question about it."""

    resourceUri: str

    def messages(self) -> list[EmbeddedResource | str]:
        embedded = EmbeddedResource(self.resourceUri, "Embedded resource content for testing.", mime_type="text/plain")
        return [embedded, "Please process the embedded resource above."]


@hub.prompt
def test_prompt_with_image() -> list[Image | str]:
    """A picture and a question about it."""
    return [Image(PNG, "image/png"), "Please analyze the image above."]


@hub.prompt
async def test_input_required_result_prompt(ctx: Context) -> str:
    """One message that needs something from the person first."""
    answer = await ctx.elicit("What context should the prompt use?", form("context"), key="user_context")
    return f"Use this context: {described(answer)}"


@hub.on("completion")
async def complete(ref: str, argument: dict[str, Any], ctx: Context) -> list[str]:
    """Offer values that begin with what was typed."""
    return [value for value in ("paris", "park", "party") if value.startswith(argument["value"])]


for component in (WatchedResource, TemplateResource, TestPromptWithArguments, TestPromptWithEmbeddedResource):
    hub.add(component)

for tool in ASKING:
    hub.tool(tool)
