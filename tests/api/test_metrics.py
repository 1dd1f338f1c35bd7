"""`/metrics`: for Prometheus and as JSON, open to the same machine."""

from __future__ import annotations

import json
import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.api.conftest import AGENT, Operator, operated_hub, operating
from tests.protocol.conftest import asynchronous
from waypost import Hub, __version__
from waypost.capabilities.registry import Table
from waypost.execution.pipeline import Counters

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"(,|$)')
SAMPLE = re.compile(rf"({NAME})(?:\{{(.*)\}})? (-?[0-9.]+(?:e[+-]?[0-9]+)?|\+Inf|NaN)")
TYPES = {"gauge", "counter", "histogram"}

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def labels_of(text: str) -> tuple[tuple[str, str], ...]:
    """Parse the labels of a sample; fail on any character that is not part of one."""
    found, place = [], 0
    while place < len(text):
        label = LABEL.match(text, place)
        assert label is not None, text
        value = re.sub(r"\\(.)", lambda escape: "\n" if escape[1] == "n" else escape[1], label[2])
        found.append((label[1], value))
        place = label.end()
    return tuple(found)


def parse(text: str) -> Samples:
    """Parse the text format strictly: families together, each with help and type, no sample twice."""
    assert text.endswith("\n")
    samples: Samples = {}
    family, kind, finished = "", "", set[str]()
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith("# HELP "):
            finished.add(family)
            family = line.split(" ", 3)[2]
            assert family not in finished
            typed = re.fullmatch(rf"# TYPE ({NAME}) (\w+)", next(lines))
            assert typed is not None and typed[1] == family and typed[2] in TYPES
            kind = typed[2]
            continue
        sample = SAMPLE.fullmatch(line)
        assert sample is not None, line
        suffixes = {"_bucket", "_sum", "_count"} if kind == "histogram" else {""}
        assert sample[1].removeprefix(family) in suffixes, line
        key = (sample[1], labels_of(sample[2] or ""))
        assert key not in samples, line
        samples[key] = float(sample[3])
    return samples


async def scraped(operator: Operator) -> Samples:
    call = await operator.ask("GET", "/metrics", key=None, client="127.0.0.1", accept="text/plain")
    assert call.status == 200
    assert call.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    samples = parse(call.body.decode())
    # Prometheus's own reader finds the same.
    families = text_string_to_metric_families(call.body.decode())
    read = {(one.name, tuple(one.labels.items())): one.value for family in families for one in family.samples}
    assert read == samples
    return samples


def counting(hub: Hub) -> Counters:
    """The counters of a hub."""
    return hub.core.pipeline.counters


@asynchronous
async def test_prometheus_reads_it() -> None:
    hub = operated_hub(breakers=True)
    counters = counting(hub)
    counters.count("add", "ok", 0.002)
    counters.count("add", "ok", 0.3)
    counters.count('od"d\\na\nme', "denied", 99.0)
    async with operating(hub) as operator:
        samples = await scraped(operator)
        assert samples["waypost_info", (("version", __version__),)] == 1
        assert samples["waypost_calls_total", (("capability", "add"), ("outcome", "ok"))] == 2
        assert samples["waypost_calls_total", (("capability", 'od"d\\na\nme'), ("outcome", "denied"))] == 1
        assert samples["waypost_denials_total", ()] == 1
        assert samples["waypost_tools_registered", ()] == 2
        assert samples["waypost_store_up", ()] == 1
        buckets = [value for (name, _), value in samples.items() if name == "waypost_call_duration_seconds_bucket"]
        assert buckets == sorted(buckets)
        assert samples["waypost_call_duration_seconds_bucket", (("le", "0.005"),)] == 1
        assert samples["waypost_call_duration_seconds_bucket", (("le", "+Inf"),)] == 3
        assert samples["waypost_call_duration_seconds_count", ()] == 3
        assert samples["waypost_call_duration_seconds_sum", ()] == pytest.approx(99.302)


@asynchronous
async def test_json_has_the_counts() -> None:
    hub = operated_hub(())
    counters = counting(hub)
    counters.count("add", "ok", 0.5)
    counters.count("add", "denied", 0.25)
    async with operating(hub) as operator:
        answer = await operator.fetch("GET", "/metrics")
        assert answer["system"]["uptime_seconds"] >= 0
        assert answer["system"]["memory_bytes"] > 1_000_000
        assert answer["workflows"] == {"total": 0, "completed": 0, "failed": 0, "running": 0}
        assert answer["skills"] == {"active": 1, "total_registered": 1, "circuit_breakers": {}}
        assert answer["mcp"]["status"] == "running"
        assert answer["calls"] == {"total": 2, "denied": 1, "seconds": 0.75, "outcomes": {"denied": 1, "ok": 1}}
        assert answer["store"] == {"status": "ok", "instances": 0, "tasks": 0, "sessions": 0}


@pytest.mark.parametrize("key", [None, AGENT], ids=["anonymous", "a key"])
@asynchronous
async def test_it_counts_as_many_tools_as_are_listed(key: str | None) -> None:
    async with operating() as operator:
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        listed = (await operator.modern("tools/list", headers=headers)).json["result"]["tools"]
        answer = await operator.fetch("GET", "/metrics", key=key, client="127.0.0.1")
        assert answer["mcp"]["tools_registered"] == len(listed) == (2 if key is None else 3)


@asynchronous
async def test_tools_that_all_callers_see_are_counted_without_a_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Hub("desk", version="1")
    for number in range(5):
        hub.tool(name=f"tool-{number}", hidden=number == 0)(lambda: 1)

    async def count() -> int:
        answer = await operator.fetch("GET", "/metrics", key=None, client="127.0.0.1")
        return int(answer["mcp"]["tools_registered"])

    async with operating(hub) as operator:
        monkeypatch.setattr(Table, "__iter__", None)
        assert await count() == 4
        hub.tool(name="tool-5", hidden=True)(lambda: 1)
        table = hub.runtime.core.registry.tools
        table.pop("tool-0")
        assert await count() == 4
        table.pop("tool-1")
        assert await count() == 3


@asynchronous
async def test_a_session_is_counted_while_it_is_open() -> None:
    async with operating() as operator:
        visitor = await operator.session()
        assert (await operator.fetch("GET", "/metrics"))["sessions"] == {"open": 1}
        await visitor.delete()
        assert (await operator.fetch("GET", "/metrics"))["sessions"] == {"open": 0}


@asynchronous
async def test_a_breaker_that_opened_is_shown() -> None:
    hub = operated_hub((), breakers=True)

    @hub.tool(name="skill:flaky")
    async def flaky() -> str:
        raise RuntimeError("out of order")

    async with operating(hub) as operator:
        for _ in range(3):
            await operator.use("skill:flaky")
        answer = (await operator.fetch("GET", "/metrics"))["skills"]
        assert (answer["active"], answer["total_registered"]) == (1, 2)
        breaker = answer["circuit_breakers"]["skill:flaky"]
        assert (breaker["state"], breaker["failure_count"]) == ("open", 3)
        assert "out of order" in breaker["last_error"]
        samples = await scraped(operator)
        assert samples["waypost_circuit_breaker_open", (("capability", "skill:flaky"),)] == 1


@pytest.mark.parametrize("client", ["127.0.0.1", "::1"])
@asynchronous
async def test_the_same_machine_needs_no_key(client: str) -> None:
    async with operating() as operator:
        assert (await operator.ask("GET", "/metrics", key=None, client=client)).status == 200
        assert (await operator.ask("GET", "/metrics", key=AGENT, client=client)).status == 200


@pytest.mark.parametrize("header", ["forwarded", "x-forwarded-for", "x-real-ip"])
@asynchronous
async def test_a_caller_behind_a_local_proxy_is_not_local(header: str) -> None:
    async with operating() as operator:
        call = await operator.ask("GET", "/metrics", key=None, client="127.0.0.1", more={header: "203.0.113.9"})
        assert (call.status, json.loads(call.body)) == (401, {"error": "Missing Authorization header"})


@asynchronous
async def test_others_need_the_role_admin() -> None:
    async with operating() as operator:
        assert await operator.refused("GET", "/metrics", key=None) == (401, "Missing Authorization header")
        assert (await operator.refused("GET", "/metrics", key=AGENT))[0] == 403
        assert (await operator.ask("GET", "/metrics")).status == 200


@asynchronous
async def test_one_replica_is_alone_and_its_bus_works() -> None:
    async with operating() as operator:
        replicas = (await operator.fetch("GET", "/metrics"))["replicas"]
        assert (replicas["bus"], replicas["count"], replicas["heartbeat_ages"]) == ("ok", 1, {})
        samples = await scraped(operator)
        labels = (("replica", replicas["replica"]), ("version", __version__), ("config", replicas["config"]))
        assert samples["waypost_replica_info", labels] == 1
        assert (samples["waypost_replicas", ()], samples["waypost_bus_up", ()]) == (1, 1)
