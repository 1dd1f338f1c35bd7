"""The trace of a call goes on in what its handler does, with spans where a process has OpenTelemetry.

Seen in a process of its own: an SDK that was imported once would trace every other test.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, Final

import pytest

TRACE: Final = "0af7651916cd43dd8448eb211c80319c"
PARENT: Final = "b7ad6b7169203331"
SAID: Final = {"traceparent": f"00-{TRACE}-{PARENT}-01", "baggage": "tenant=t1"}

PROGRAM: Final = """
import asyncio, json, sys
from tests.worker.engine import failure, settled, working
from tests.workers.wire import at_work, hub_for_workers, wired
from waypost.worker import current_invocation
from waypost.workers.frames import split_baggage

WITH_SDK, SAID = json.loads(sys.argv[1])
spans = []
if WITH_SDK:
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)

async def main():
    hub = hub_for_workers()
    async with at_work(hub) as client, working(hub, "middle") as middle, wired(hub) as end, wired(hub) as start:
        await end.offer("end::of", name="end")
        await start.introduce("start")
        known = []

        @middle.register_function("middle::plain")
        def plain(payload):
            known.append(current_invocation())
            return middle.trigger("end::of", payload).result(60)

        @middle.register_function("middle::fails")
        async def fails():
            raise KeyError("pear")

        await settled(middle)
        asked = await start.ask("middle::plain", 1, **SAID)
        call = await end.serve("end::of", 2)
        await start.next("invocationresult", invocation_id=asked)
        await start.error("middle::fails", **SAID)
        asking = asyncio.create_task(client.call_tool("end__of", {}, meta=SAID))
        of_agent = await end.serve("end::of", 2)
        await asking
        return {
            "of_agent": of_agent.get("traceparent"),
            "call": {"traceparent": call.get("traceparent"), "baggage": split_baggage(call.get("baggage"))[0]},
            "known": {name: getattr(known[0], name) for name in ("traceparent", "baggage")},
        }

received = asyncio.run(main())
if WITH_SDK:
    received["spans"] = [
        {
            "name": one.name,
            "trace": format(one.context.trace_id, "032x"),
            "id": format(one.context.span_id, "016x"),
            "parent": one.parent and format(one.parent.span_id, "016x"),
            "ok": one.status.is_ok,
            "events": [event.name for event in one.events],
            "attributes": dict(one.attributes),
        }
        for one in exporter.get_finished_spans()
    ]
    received["runs"] = [one for one in received["spans"] if one["name"].startswith("run ")]
    received["spans"] = [one for one in received["spans"] if one["name"].startswith("execute ")]
received["imported"] = any(name.startswith("opentelemetry") for name in sys.modules)
print(json.dumps(received))
"""


def run(*, with_sdk: bool, said: dict[str, str]) -> Any:
    """The output of the program."""
    given = json.dumps([with_sdk, said])
    done = subprocess.run([sys.executable, "-c", PROGRAM, given], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("said", [SAID, {}], ids=["traced", "not traced"])
def test_without_opentelemetry_the_trace_is_known_and_passed_on_and_nothing_is_imported(said: dict[str, str]) -> None:
    received = run(with_sdk=False, said=said)
    expected = {"traceparent": said.get("traceparent"), "baggage": said.get("baggage")}
    assert received == {"call": expected, "known": expected, "of_agent": None, "imported": False}


def test_with_opentelemetry_a_handler_is_a_span_of_the_trace_and_its_calls_belong_to_that() -> None:
    received = run(with_sdk=True, said=SAID)
    plain, fails = received["spans"]
    assert (plain["name"], plain["trace"], plain["ok"]) == ("execute middle::plain", TRACE, True)
    assert plain["parent"] == PARENT
    assert plain["attributes"] == {"waypost.function": "middle::plain"}
    assert received["call"] == {"traceparent": f"00-{TRACE}-{plain['id']}-01", "baggage": "tenant=t1"}
    assert received["known"] == SAID
    assert (fails["name"], fails["trace"], fails["ok"], fails["events"]) == (
        "execute middle::fails",
        TRACE,
        False,
        ["exception"],
    )


def test_with_opentelemetry_the_trace_of_an_agent_reaches_the_worker() -> None:
    received = run(with_sdk=True, said=SAID)
    (agents,) = [one for one in received["runs"] if one["name"] == "run end__of" and one["trace"] == TRACE]
    assert received["of_agent"] == f"00-{TRACE}-{agents['id']}-01"


def test_with_opentelemetry_a_call_without_a_trace_begins_one() -> None:
    received = run(with_sdk=True, said={})
    plain = received["spans"][0]
    assert plain["parent"] is None
    assert received["call"]["traceparent"].startswith(f"00-{plain['trace']}-{plain['id']}-")
