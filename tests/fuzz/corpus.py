"""Messages that real clients and workers send, in every version of the protocol, and the requests of the HTTP API."""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec

from tests.protocol.conftest import cancelled, initialization, notification, request, stateless
from waypost.api.api import ROUTES
from waypost.wire.params import CLIENT_INFO, LOG_LEVEL
from waypost.wire.versions import LEGACY

Json = dict[str, Any]

WORKFLOW: Final = "wf_0199a1b2c3d4e5f60718293a"
CALLS: Final[tuple[tuple[str, Json], ...]] = (
    ("add", {"a": 1, "b": 2.5}),
    ("echo", {"text": "hello", "times": 2}),
    ("book", {"order": {"kind": "and", "parts": [{"kind": "leaf", "value": 3}, {"kind": "or", "parts": []}]}}),
    ("remember", {"key": "colour", "value": {"deep": [1, 2, {"x": None}]}}),
    ("blocking", {"text": "thread"}),
    ("gateway.home", {}),
    ("gateway.search", {"query": "add two numbers", "limit": 5}),
    ("gateway.describe", {"id": "add"}),
    ("workflow.start", {"definitionId": "release", "input": {"service": "web"}, "requestId": "r1"}),
    ("workflow.get", {"workflowId": WORKFLOW}),
    ("workflow.explain", {"definitionId": "release"}),
    ("workflow.submit", {"workflowId": WORKFLOW, "version": 1, "transition": "review", "arguments": {"note": "x"}}),
    ("workflow:release", {"input": {"service": "web"}}),
)
METHODS: Final[tuple[tuple[str, Json], ...]] = (
    *(("tools/call", {"name": name, "arguments": arguments}) for name, arguments in CALLS),
    ("tools/list", {"cursor": "YWRk"}),
    ("tools/list", {}),
    ("prompts/list", {}),
    ("prompts/get", {"name": "greet", "arguments": {"name": "Ada"}}),
    ("resources/list", {}),
    ("resources/templates/list", {}),
    ("resources/read", {"uri": "notes://today"}),
    ("resources/read", {"uri": "notes://by/ada/2026"}),
    (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "name", "value": "A"}},
    ),
    (
        "completion/complete",
        {"ref": {"type": "ref/resource", "uri": "notes://by/{who}/{+rest}"}, "argument": {"name": "who", "value": ""}},
    ),
    ("tasks/get", {"taskId": "task_1"}),
    ("tasks/cancel", {"taskId": "task_1"}),
)


def _encode(*messages: Any) -> list[bytes]:
    return [json.dumps(message).encode() for message in messages]


def sessions() -> list[bytes]:
    """Messages of clients with sessions, the versions up to 2025-11-25."""
    call = {"name": "add", "arguments": {"a": 1, "b": 2}, "_meta": {"progressToken": "p"}}
    return _encode(
        *(request(number, method, params) for number, (method, params) in enumerate(METHODS)),
        *(initialization(version) for version in LEGACY),
        request("a", "ping"),
        request(2**53, "logging/setLevel", {"level": "debug"}),
        request(3, "resources/subscribe", {"uri": "notes://today"}),
        request(4, "resources/unsubscribe", {"uri": "notes://today"}),
        request(5, "tools/call", call),
        request(6, "tools/call", {**call, "task": {"ttl": 60_000}}),
        request(7, "tasks/result", {"taskId": "task_1"}),
        request(8, "tasks/list", {}),
        notification("notifications/initialized"),
        notification("notifications/roots/list_changed"),
        notification("notifications/progress", {"progressToken": "p", "progress": 1, "total": 2}),
        cancelled(5),
        {"jsonrpc": "2.0", "id": 9, "result": {"action": "accept", "content": {"name": "Ada"}}},
        {"jsonrpc": "2.0", "id": 9, "error": {"code": -1, "message": "no", "data": {"x": 1}}},
        [request(1, "ping"), notification("notifications/initialized"), request(2, "tools/list")],
    )


def stateless_messages() -> list[bytes]:
    """Messages of stateless clients, the version 2026-07-28."""
    about = {CLIENT_INFO: {"name": "fuzz", "version": "1"}, LOG_LEVEL: "debug"}
    return _encode(
        *(stateless(number, method, params, **about) for number, (method, params) in enumerate(METHODS)),
        stateless("a", "server/discover"),
        stateless("b", "tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}, "task": {}}, progressToken="p"),
        notification("notifications/cancelled", {"requestId": "a"}),
    )


def worker_messages() -> list[bytes]:
    """Messages of workers."""
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    return _encode(
        {"type": "ping"},
        {"type": "registerfunction", "id": "mail::send", "description": "Send mail", "request_format": schema},
        {"type": "registerfunction", "id": "mail::copy", "metadata": {"x": 1}, "observe": {"allow": True}},
        {"type": "unregisterfunction", "id": "mail::copy"},
        invoke("engine::workers::register", {"name": "fuzz", "runtime": "python", "pid": 1}),
        invoke("engine::functions::list", {}),
        invoke("engine::workers::list", None),
        invoke("state::set", {"scope": "s", "key": "k", "data": {"v": [1, 2]}}),
        invoke("state::get", {"scope": "s", "key": "k"}),
        invoke("state::update", {"scope": "s", "key": "k", "ops": [{"type": "set", "path": "v", "value": 1}]}),
        invoke("state::delete", {"scope": "s", "key": "k"}),
        invoke("skills::register", {"id": "fuzz/skill", "skill": "# Skill\n\nHow to."}),
        invoke("skills::list", {}),
        invoke("prompts::register", {"name": "p", "description": "d", "function_id": "mail::send", "arguments": []}),
        invoke("skill::fetch", {"uris": ["iii://fuzz/skill"]}),
        invoke("mail::send", {"a": 1}, action={"type": "void"}),
        invoke("add", {"a": 1, "b": 2}, traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        {"type": "invocationresult", "invocation_id": "i1", "function_id": "mail::send", "result": {"ok": True}},
        {"type": "invocationresult", "invocation_id": "i2", "error": {"code": "X", "message": "m", "stacktrace": "s"}},
        {"type": "registertriggertype", "id": "cron", "description": "d", "trigger_request_format": schema},
        {"type": "unregistertriggertype", "id": "cron"},
        {
            "type": "registertrigger",
            "id": "t1",
            "trigger_type": "cron",
            "function_id": "mail::send",
            "config": {"a": 1},
        },
        {"type": "unregistertrigger", "id": "t1"},
        {"type": "triggerregistrationresult", "id": "t1", "trigger_type": "cron", "error": {"code": "a"}},
        {"type": "reattach", "previous_worker_id": "w", "reattach_token": "t"},
        {"type": "registerservice", "id": "s"},
        {
            "type": "observe",
            "id": "o1",
            "source": {"function_id": "mail::send", "args": {"a": 1}, "capture": ["input"], "on": "success"},
            "target": {"function_id": "mail::copy"},
            "max_fires": 3,
        },
        {"type": "unobserve", "id": "o1"},
        {"type": "observerack", "function_id": "mail::send", "id": "o1", "revision": 1},
        {"type": "invocationsobserved", "items": [{"function_id": "mail::send", "matched": ["o1"], "input": {}}]},
        {"type": "localinvocationstats"},
    )


def invoke(function: str, data: Any, **more: Any) -> Json:
    """A worker's call of a function."""
    return {"type": "invokefunction", "function_id": function, "invocation_id": "i1", "data": data, **more}


def api_requests() -> list[tuple[str, str, bytes]]:
    """Method, path and body of every operation of the HTTP API, with the example of its documentation.

    Not of those that answer with a stream: it does not end, so that nothing behind it on the connection is answered.
    """
    found = []
    for route in ROUTES.all:
        if route.streams:
            continue
        path = route.path.replace("{id}", "release").replace("{name}", "greet")
        body = b"" if route.request is None else msgspec.json.encode(route.request)
        found.append((route.method, path, body))
    queries = (
        "limit=5&before=abc",
        "id=fuzz/skill&principal=ada",
        "since=2026-01-01T00:00:00Z&action=call",
        "status=failed",
    )
    found += [(method, f"{path}?{query}", body) for method, path, body in found if method == "GET" for query in queries]
    return [*found, ("GET", "/metrics", b""), ("GET", "/api/openapi.json", b""), ("GET", "/health", b"")]
