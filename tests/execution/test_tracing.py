"""Spans, exported in a separate process, since an imported SDK would trace every other test."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, Final

import pytest

from waypost.execution import tracing
from waypost.wire.versions import ALL, LEGACY, V2025_11_25, V2026_07_28, is_modern

TRACE: Final = "0af7651916cd43dd8448eb211c80319c"
PARENT: Final = "b7ad6b7169203331"
CONTEXT: Final = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "vendor=1"}

PROGRAM: Final = """
import asyncio, json, sys
from waypost import Context, Hub, ToolError
from waypost.testing import connect

WITH_SDK, VERSION, META = json.loads(sys.argv[1])
if WITH_SDK:
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)

hub = Hub("traced", version="1")

@hub.tool
async def add(a: int, b: int) -> int:
    return a + b

@hub.tool
def plain() -> str:
    if WITH_SDK:
        with trace.get_tracer("mine").start_as_current_span("mine"):
            pass
    return "plain"

@hub.tool
async def fail() -> None:
    raise ToolError("no luck")

@hub.tool
async def crash() -> None:
    raise KeyError("pear")

@hub.tool
async def ask(ctx: Context) -> str:
    return str((await ctx.elicit("Who?", {"name": {"type": "string"}})).content)

@hub.resource("docs://readme")
async def readme() -> str:
    return "hello"

@hub.prompt
def greet() -> str:
    return "Greet."

async def answer(params):
    return {"action": "accept", "content": {"name": "Ada"}}

async def main():
    async with connect(hub, VERSION, elicitation=answer) as client:
        if WITH_SDK:
            exporter.clear()
        await client.call_tool("add", {"a": 1, "b": 2}, meta=META)
        for name in ("plain", "fail", "crash", "ask"):
            await client.call_tool(name)
        await client.read_resource("docs://readme")
        await client.get_prompt("greet")
        await client.list_tools()
    await hub.stop()

asyncio.run(main())
seen = []
for span in exporter.get_finished_spans() if WITH_SDK else ():
    context, parent = span.get_span_context(), span.parent
    seen.append({
        "name": span.name,
        "id": f"{context.span_id:016x}",
        "trace": f"{context.trace_id:032x}",
        "state": context.trace_state.to_header(),
        "parent": f"{parent.span_id:016x}" if parent else None,
        "remote": bool(parent and parent.is_remote),
        "attributes": dict(span.attributes),
        "failed": not span.status.is_ok,
        "scope": span.instrumentation_scope.name,
    })
loaded = sorted(name for name in sys.modules if name.split(".")[0] == "opentelemetry")
print(json.dumps({"spans": seen, "loaded": loaded}))
"""

Span = dict[str, Any]


def play(*, sdk: bool = True, version: str = V2026_07_28, meta: dict[str, str] | None = None) -> dict[str, Any]:
    given = json.dumps([sdk, version, meta])
    run = subprocess.run([sys.executable, "-c", PROGRAM, given], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    answer: dict[str, Any] = json.loads(run.stdout)
    return answer


@pytest.fixture(scope="module", params=[V2025_11_25, V2026_07_28])
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def spans(version: str) -> list[Span]:
    found: list[Span] = play(version=version, meta=CONTEXT)["spans"]
    return found


def named(spans: list[Span], name: str) -> Span:
    (span,) = (span for span in spans if span["name"] == name)
    return span


def around(spans: list[Span], span: Span) -> Span:
    """The parent of a span."""
    (outer,) = (other for other in spans if other["id"] == span["parent"])
    return outer


def test_a_request_is_a_span_with_the_run_of_its_tool_as_a_child(spans: list[Span], version: str) -> None:
    run = named(spans, "run add")
    assert run["attributes"] == {"waypost.capability": "add"}
    request = around(spans, run)
    assert request["name"] == "tools/call add"
    assert request["attributes"] == {
        "rpc.system": "jsonrpc",
        "mcp.method.name": "tools/call",
        "mcp.protocol.version": version,
        "gen_ai.tool.name": "add",
        "gen_ai.operation.name": "execute_tool",
    }
    assert {run["scope"], request["scope"]} == {"waypost"}


def test_the_trace_context_of_a_request_is_its_parent(spans: list[Span]) -> None:
    request = around(spans, named(spans, "run add"))
    assert (request["trace"], request["parent"], request["remote"]) == (TRACE, PARENT, True)
    assert request["state"] == "vendor=1"
    assert named(spans, "run add")["trace"] == TRACE


def test_a_request_without_a_trace_context_starts_a_trace(spans: list[Span]) -> None:
    request = around(spans, named(spans, "run plain"))
    assert request["parent"] is None
    others = [span["trace"] for span in spans if span["parent"] is None]
    assert TRACE not in others
    assert len(set(others)) == len(others)


def test_spans_of_a_tool_in_a_thread_are_children_of_its_run(spans: list[Span]) -> None:
    assert around(spans, named(spans, "mine"))["name"] == "run plain"


def test_a_run_that_raises_is_marked(spans: list[Span]) -> None:
    assert [named(spans, f"run {name}")["failed"] for name in ("add", "plain", "fail", "crash")] == [
        False,
        False,
        True,
        True,
    ]


def test_resources_prompts_and_lists_are_spans_too(spans: list[Span]) -> None:
    names = {span["name"] for span in spans}
    assert names >= {"resources/read", "prompts/get greet", "tools/list"}
    assert named(spans, "prompts/get greet")["attributes"]["gen_ai.prompt.name"] == "greet"
    assert all("mcp.resource.uri" in span["attributes"] for span in spans if span["name"] == "resources/read")
    runs = {span["name"]: around(spans, span)["name"] for span in spans if span["name"].startswith("run ")}
    assert runs["run greet"] == "prompts/get greet"
    assert "resources/read" in runs.values()


def test_a_question_to_a_client_with_a_session_is_a_span_inside_the_run(spans: list[Span], version: str) -> None:
    asked = [span for span in spans if span["name"] == "ask elicitation/create"]
    if is_modern(version):
        assert asked == []
        return
    (question,) = asked
    assert question["attributes"] == {"rpc.system": "jsonrpc", "mcp.method.name": "elicitation/create"}
    assert around(spans, question)["name"] == "run ask"


def test_a_question_to_a_stateless_client_makes_two_runs(spans: list[Span], version: str) -> None:
    runs = [span for span in spans if span["name"] == "run ask"]
    assert len(runs) == (2 if is_modern(version) else 1)


@pytest.mark.parametrize("broken", ["", "nonsense", f"00-{'0' * 32}-{PARENT}-01", f"ff-{TRACE}-{PARENT}-01"])
def test_an_invalid_trace_context_is_ignored(broken: str) -> None:
    spans = play(meta={"traceparent": broken})["spans"]
    assert around(spans, named(spans, "run add"))["parent"] is None


@pytest.mark.parametrize("version", [ALL[-1], LEGACY[0]])
def test_without_an_sdk_no_telemetry_module_is_imported(version: str) -> None:
    assert play(sdk=False, version=version, meta=CONTEXT) == {"spans": [], "loaded": []}


def test_without_an_sdk_a_span_only_runs_its_body(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "opentelemetry.sdk.trace", raising=False)
    assert tracing.SDK not in sys.modules
    with pytest.raises(KeyError), tracing.span("name", {}, CONTEXT):
        raise KeyError("through")
