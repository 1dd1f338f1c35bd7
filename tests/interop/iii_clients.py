"""A client of the hub with unprocessed answers, in the version of the bridge of the iii project."""

from __future__ import annotations

import itertools
import json
from http.client import HTTPConnection
from typing import Any, NamedTuple
from urllib.parse import urlsplit

VERSION = "2025-06-18"
ACCEPT = "application/json, text/event-stream"
HELLO = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "tests", "version": "1"}}


class Answer(NamedTuple):
    """The status of an answer, and what is in it."""

    status: int
    body: Any


class Client:
    """A client with a session."""

    def __init__(self, url: str) -> None:
        self._place = urlsplit(url)
        self._numbers = itertools.count(1)
        self._session = ""
        self.welcome = self.ask("initialize", HELLO)
        assert self.notify("notifications/initialized").status == 202

    def post(self, body: Any) -> Answer:
        """Send anything at all."""
        headers = {"Accept": ACCEPT, "Content-Type": "application/json"}
        if self._session:
            headers |= {"Mcp-Session-Id": self._session, "MCP-Protocol-Version": VERSION}
        connection = HTTPConnection(self._place.hostname or "", self._place.port, timeout=60)
        try:
            connection.request("POST", self._place.path, json.dumps(body), headers)
            response = connection.getresponse()
            self._session = response.headers.get("Mcp-Session-Id") or self._session
            text = response.read().decode()
        finally:
            connection.close()
        if response.headers.get_content_type() == "text/event-stream":
            text = text.rpartition("data: ")[2]
        return Answer(response.status, json.loads(text) if text.strip() else None)

    def notify(self, method: str) -> Answer:
        """Send a notification."""
        return self.post({"jsonrpc": "2.0", "method": method})

    def request(self, method: str, params: Any = None) -> Any:
        """The answer to a request: a result or an error."""
        message = {"jsonrpc": "2.0", "id": next(self._numbers), "method": method}
        return self.post(message if params is None else {**message, "params": params}).body

    def ask(self, method: str, params: Any = None) -> Any:
        """The result of a request."""
        answer = self.request(method, params)
        assert "result" in answer, answer
        return answer["result"]

    def error(self, method: str, params: Any = None) -> Any:
        """The error of a request."""
        answer = self.request(method, params)
        assert "error" in answer, answer
        return answer["error"]

    def use(self, tool: str, **arguments: Any) -> Any:
        """The answer of a tool."""
        return self.ask("tools/call", {"name": tool, "arguments": arguments})
