"""A scripted model behind the HTTP APIs that the clients speak: OpenAI's two, Anthropic's and Gemini's.

It refuses names of tools that the real API would refuse, so that a client which sends them shows it.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Call:
    """The model calls a tool: the name that the client published, and the arguments."""

    name: str
    arguments: Json


@dataclass(frozen=True, slots=True)
class Turn:
    """What a client sent: the names of its tools, and the results of the calls that the model made so far."""

    tools: Sequence[str]
    results: Sequence[str]

    def find(self, canonical: str) -> str | None:
        """The published name of a tool, which clients prefix and spell in characters of their own choice."""
        wanted = _plain(canonical)
        return next((name for name in self.tools if _plain(name).endswith(wanted)), None)


Script = Callable[[Turn], Call | str]
"""The model: the next call, or the words that end the conversation."""


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower())


class Dialect:
    """One API: how a request is read and an answer is written."""

    pattern: str
    """The names of tools that the API takes."""

    def takes(self, name: str) -> bool:
        """Whether the API takes a tool of that name."""
        return re.fullmatch(self.pattern, name) is not None

    def read(self, body: Json) -> Turn:
        """The tools and results in a request."""
        raise NotImplementedError

    def write(self, reply: Call | str, number: int) -> Json:
        """An answer that is not streamed; `number` makes the ids of a conversation's calls unique."""
        raise NotImplementedError

    def stream(self, reply: Call | str, number: int) -> Iterator[tuple[str | None, Json | str]]:
        """The events of a streamed answer, each with its name."""
        raise NotImplementedError

    def refuse(self, message: str) -> Json:
        """The body of an error."""
        return {"error": {"type": "invalid_request_error", "code": None, "message": message}}


class Chat(Dialect):
    """OpenAI's Chat Completions."""

    pattern = r"[a-zA-Z0-9_-]{1,64}"

    def read(self, body: Json) -> Turn:
        tools = [tool["function"]["name"] for tool in body.get("tools", [])]
        return Turn(tools, [_text(one["content"]) for one in body["messages"] if one["role"] == "tool"])

    def write(self, reply: Call | str, number: int) -> Json:
        message, reason = self._message(reply, number)
        choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": reason}
        head = {"id": f"chat-{number}", "object": "chat.completion", "created": 1, "model": "scripted"}
        return {**head, "choices": [choice], "usage": _USAGE_CHAT}

    def stream(self, reply: Call | str, number: int) -> Iterator[tuple[str | None, Json | str]]:
        message, reason = self._message(reply, number)
        head = {"id": f"chat-{number}", "object": "chat.completion.chunk", "created": 1, "model": "scripted"}
        yield None, {**head, "choices": [{"index": 0, "delta": {"role": "assistant", **message}}]}
        yield None, {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}], "usage": _USAGE_CHAT}
        yield None, "[DONE]"

    def _message(self, reply: Call | str, number: int) -> tuple[Json, str]:
        if isinstance(reply, str):
            return {"content": reply}, "stop"
        function = {"name": reply.name, "arguments": json.dumps(reply.arguments)}
        call = {"index": 0, "id": f"call_{number}", "type": "function", "function": function}
        return {"content": None, "tool_calls": [call]}, "tool_calls"


class Responses(Dialect):
    """OpenAI's Responses; a tool of a namespace is called `namespace/tool` here."""

    pattern = r"[a-zA-Z0-9_-]{1,128}"

    def takes(self, name: str) -> bool:
        return all(super(Responses, self).takes(part) for part in name.split("/", 1))

    def read(self, body: Json) -> Turn:
        names: list[str] = []
        for tool in body.get("tools", []):
            if tool["type"] == "namespace":
                names += [f"{tool['name']}/{one['name']}" for one in tool["tools"]]
            elif "name" in tool:
                names.append(tool["name"])
        given = body["input"] if isinstance(body["input"], list) else []
        return Turn(names, [_text(one["output"]) for one in given if one.get("type") == "function_call_output"])

    def write(self, reply: Call | str, number: int) -> Json:
        head = {"id": f"response-{number}", "object": "response", "status": "completed", "model": "scripted"}
        return {**head, "output": [self._item(reply, number)], "usage": _USAGE_RESPONSES}

    def stream(self, reply: Call | str, number: int) -> Iterator[tuple[str | None, Json | str]]:
        item = self._item(reply, number)
        begun = {"id": f"response-{number}", "object": "response", "status": "in_progress", "output": []}
        yield "response.created", {"type": "response.created", "response": begun}
        yield "response.output_item.added", {"type": "response.output_item.added", "output_index": 0, "item": item}
        yield "response.output_item.done", {"type": "response.output_item.done", "output_index": 0, "item": item}
        yield "response.completed", {"type": "response.completed", "response": self.write(reply, number)}

    def _item(self, reply: Call | str, number: int) -> Json:
        if isinstance(reply, str):
            content = [{"type": "output_text", "text": reply, "annotations": []}]
            return {"type": "message", "id": f"message_{number}", "role": "assistant", "content": content}
        namespace, _, name = reply.name.rpartition("/")
        item = {"type": "function_call", "id": f"item_{number}", "call_id": f"call_{number}", "name": name}
        item |= {"namespace": namespace} if namespace else {}
        return {**item, "arguments": json.dumps(reply.arguments)}


class Messages(Dialect):
    """Anthropic's Messages."""

    pattern = r"[a-zA-Z0-9_-]{1,128}"

    def read(self, body: Json) -> Turn:
        tools = [tool["name"] for tool in body.get("tools", [])]
        blocks = [block for one in body["messages"] if isinstance(one["content"], list) for block in one["content"]]
        return Turn(tools, [_text(one.get("content")) for one in blocks if one["type"] == "tool_result"])

    def write(self, reply: Call | str, number: int) -> Json:
        reason = "end_turn" if isinstance(reply, str) else "tool_use"
        return {**self._head(number), "content": [self._block(reply, number)], "stop_reason": reason}

    def stream(self, reply: Call | str, number: int) -> Iterator[tuple[str | None, Json | str]]:
        block = self._block(reply, number)
        if isinstance(reply, str):
            empty, delta = {**block, "text": ""}, {"type": "text_delta", "text": reply}
        else:
            partial = json.dumps(reply.arguments)
            empty, delta = {**block, "input": {}}, {"type": "input_json_delta", "partial_json": partial}
        reason = "end_turn" if isinstance(reply, str) else "tool_use"
        for event in (
            {"type": "message_start", "message": {**self._head(number), "content": [], "stop_reason": None}},
            {"type": "content_block_start", "index": 0, "content_block": empty},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 1}},
            {"type": "message_stop"},
        ):
            yield str(event["type"]), event

    def _head(self, number: int) -> Json:
        usage = {"input_tokens": 1, "output_tokens": 1}
        return {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "scripted", "usage": usage}

    def _block(self, reply: Call | str, number: int) -> Json:
        if isinstance(reply, str):
            return {"type": "text", "text": reply}
        return {"type": "tool_use", "id": f"toolu_{number}", "name": reply.name, "input": reply.arguments}

    def refuse(self, message: str) -> Json:
        return {"type": "error", "error": {"type": "invalid_request_error", "message": message}}


class Gemini(Dialect):
    """Gemini's generateContent."""

    pattern = r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}"

    def read(self, body: Json) -> Turn:
        tools = [one["name"] for tool in body.get("tools", []) for one in tool.get("functionDeclarations", [])]
        parts = [part for content in body["contents"] for part in content.get("parts", [])]
        return Turn(tools, [_text(one["functionResponse"]["response"]) for one in parts if "functionResponse" in one])

    def write(self, reply: Call | str, number: int) -> Json:
        if isinstance(reply, str):
            part: Json = {"text": reply}
        else:
            part = {"functionCall": {"id": f"call_{number}", "name": reply.name, "args": reply.arguments}}
        candidate = {"index": 0, "content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}
        usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
        return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "scripted"}

    def stream(self, reply: Call | str, number: int) -> Iterator[tuple[str | None, Json | str]]:
        yield None, self.write(reply, number)

    def refuse(self, message: str) -> Json:
        return {"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}}


_USAGE_CHAT: Final = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
_USAGE_RESPONSES: Final = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
DIALECTS: Final[dict[str, Dialect]] = {
    r"/chat/completions": Chat(),
    r"/responses": Responses(),
    r"/messages": Messages(),
    r":(?:stream)?[gG]enerateContent": Gemini(),
}
"""The APIs, by the end of the paths of their requests."""


def _text(content: Any) -> str:
    """The text of a tool's result, however the API wraps it."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(_text(one) for one in content)
    if isinstance(content, dict):
        return _text(content["text"]) if "text" in content else "\n".join(map(_text, content.values()))
    return ""


@dataclass
class Model:
    """A model that plays a script, and keeps what clients sent."""

    script: Script
    turns: list[Turn] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    """Names of tools that the API does not take."""

    def answer(self, path: str, body: Json) -> tuple[int, str, bytes]:
        """The status, the content type and the body of an answer."""
        dialect = next((one for end, one in DIALECTS.items() if re.search(f"{end}$", path)), None)
        if dialect is None:
            return 404, "application/json", b'{"error":{"message":"There is no such path."}}'
        turn = dialect.read(body)
        self.turns.append(turn)
        wrong = [name for name in turn.tools if not dialect.takes(name)]
        if wrong:
            self.refused.extend(name for name in wrong if name not in self.refused)
            message = f"tools: the name {wrong[0]!r} does not match ^{dialect.pattern}$."
            return 400, "application/json", json.dumps(dialect.refuse(message)).encode()
        # Clients also want titles and summaries, without tools; the script is not about those.
        reply = self.script(turn) if turn.tools else "A title"
        number = len(self.turns)
        if not (body.get("stream") or "streamGenerateContent" in path):
            return 200, "application/json", json.dumps(dialect.write(reply, number)).encode()
        lines = []
        for name, data in dialect.stream(reply, number):
            lines += [f"event: {name}"] if name else []
            lines += [f"data: {data if isinstance(data, str) else json.dumps(data)}", ""]
        return 200, "text/event-stream", ("\n".join(lines) + "\n").encode()


@contextmanager
def serve(model: Model) -> Iterator[str]:
    """Serve a model on a free port of the loopback interface; yields its address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            path = self.path.partition("?")[0]
            status, kind, body = model.answer(path, json.loads(self.rfile.read(length) or b"{}"))
            self._send(status, kind, body)

        def do_GET(self) -> None:
            self._send(404, "application/json", b'{"error":{"message":"There is no such path."}}')

        do_HEAD = do_GET

        def _send(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: the model keeps what it got."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
