import json
import logging
from typing import Any

import pytest

from waypost.errors import (
    Busy,
    DeadlineExceeded,
    DefinitionError,
    HeaderMismatch,
    InvalidArguments,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    ParseError,
    ToolError,
    UnknownPrompt,
    UnknownResource,
    UnknownTool,
    UnsupportedVersion,
)
from waypost.protocol.responses import to_failure
from waypost.wire.versions import ALL, LEGACY, V2026_07_28


@pytest.mark.parametrize("version", ALL)
@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ParseError("no JSON"), -32700, "no JSON"),
        (InvalidRequest("no request"), -32600, "no request"),
        (MethodNotFound("no method"), -32601, "no method"),
        (InvalidParams("no params"), -32602, "no params"),
        (HeaderMismatch("no header"), -32020, "no header"),
        (UnsupportedVersion("no version"), -32022, "no version"),
        (UnknownTool("Unknown tool: x"), -32602, "Unknown tool: x"),
        (UnknownPrompt("Unknown prompt: x"), -32602, "Unknown prompt: x"),
        (InvalidArguments(["a: wrong", "b: missing"]), -32602, "Invalid arguments: a: wrong; b: missing"),
        (ToolError("it broke"), -32000, "it broke"),
        (Busy("64 calls run already"), -32000, "64 calls run already"),
        (DeadlineExceeded(), -32000, "Tool execution timed out"),
        (DefinitionError("written wrongly"), -32603, "written wrongly"),
    ],
)
def test_every_error_has_its_code_and_keeps_its_message(
    error: Exception, code: int, message: str, version: str
) -> None:
    answer = to_failure(error, version)
    assert (answer.code, answer.message) == (code, message)


@pytest.mark.parametrize(("version", "code"), [*((version, -32002) for version in LEGACY), (V2026_07_28, -32602)])
def test_an_unknown_resource_has_the_error_code_of_the_version_and_its_uri(version: str, code: int) -> None:
    answer = to_failure(UnknownResource("a://x"), version)
    assert (answer.code, answer.data) == (code, {"uri": "a://x"})


def test_an_unexpected_error_is_logged_and_answered_without_details(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        answer = to_failure(ValueError("password=hunter2"), V2026_07_28)
    assert (answer.code, answer.message, answer.data) == (-32603, "Internal error", None)
    assert "hunter2" in caplog.text


@pytest.mark.parametrize("request_id", [7, "7", None])
@pytest.mark.parametrize("data", [None, {"supported": ["a"], "requested": "b"}])
def test_a_failure_is_addressed_to_its_request(request_id: Any, data: Any) -> None:
    response = json.loads(to_failure(UnsupportedVersion("no", data), V2026_07_28).encode(request_id))
    expected: dict[str, Any] = {"code": -32022, "message": "no"}
    if data is not None:
        expected["data"] = data
    assert response == {"jsonrpc": "2.0", "id": request_id, "error": expected}
