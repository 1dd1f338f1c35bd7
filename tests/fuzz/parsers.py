"""The parsers of what comes from outside, as functions of bytes: only errors that callers expect may leave them.

Each also checks what must hold for any input: what was written reads the same again, and the pieces in which bytes
arrive make no difference. A property test and coverage-guided fuzzing run the same functions.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Final, NamedTuple

from waypost.capabilities.resources import UriTemplate
from waypost.config.nodes import Composer, Refused, events
from waypost.errors import DefinitionError, ProtocolError
from waypost.imports.openapi import list_operations, read_document
from waypost.outbound.http1 import Connection, EventStream, HttpError, Request, Response
from waypost.wire import messages, params
from waypost.workers.frames import decode_message
from waypost.workers.sockets import FrameSplitter
from waypost.workflows.expressions import compile_expression, parse, render
from waypost.workflows.scope import ALL_ROOTS, GUARD_ROOTS, LONGEST, Scope, compile_mapping, parse_path

MAX_FRAME_BYTES: Final = 1 << 20
_SCOPE: Final = Scope(
    {"a": 1, "list": [1, "x", None, {"b": 2.5}], "text": "word", "nan": float("nan"), "flag": True},
    {"service": "web", "": {"": 0}, "n": -1},
    {"a": {"a": {"a": [[[]]]}}},
    id="wf_1",
    state="draft",
    version=3,
    output={"json": {"ok": False}},
    steps=[{"status": "ok", "output": 1}],
)


def fuzz_wire(data: bytes) -> None:
    """JSON-RPC messages, batches and their parameters."""
    messages.find_id(data)
    try:
        for part in messages.parse_batch(data):
            messages.parse(part)
    except ProtocolError:
        pass
    try:
        message = messages.parse(data)
        for kind in (params.CallTool, params.Initialize, params.Complete, params.Listen, params.UpdateTask):
            try:
                message.read(kind)
            except ProtocolError:
                continue
        params.decode_cursor(message.method or None)
    except ProtocolError:
        return


def fuzz_frames_of_workers(data: bytes) -> None:
    """The JSON messages of workers."""
    try:
        decode_message(data)
    except ProtocolError:
        return


def fuzz_expressions(data: bytes) -> None:
    """Guard expressions: one that is written out again means the same."""
    text = data.decode("utf-8", "surrogateescape")
    try:
        expression = compile_expression(text)
    except DefinitionError:
        return
    assert isinstance(expression.holds(_SCOPE), bool)
    assert bool(expression.false_parts(_SCOPE)) is not expression.holds(_SCOPE)
    again = render(expression.tree)
    if len(again) > LONGEST:  # written out, it has blanks and parentheses that it had not
        return
    assert render(parse(again, GUARD_ROOTS)) == again


def fuzz_paths(data: bytes) -> None:
    """Paths into the values of an instance, and what a transition writes by them."""
    text = data.decode("utf-8", "surrogateescape")
    try:
        path = parse_path(text, ALL_ROOTS)
    except DefinitionError:
        path = None
    if path is not None:
        path.get(_SCOPE)
    for template in (text, {"add": [text, 1]}, {"concat": [text, "x"]}, {"$add": [text, text]}, [{"deep": text}]):
        try:
            compile_mapping({"key": template}).apply(_SCOPE)
        except DefinitionError:
            continue


def fuzz_uri_templates(data: bytes) -> None:
    """URI templates, and URIs that are matched against them: the first line is the template."""
    template, _, uri = data.decode("utf-8", "surrogateescape").partition("\n")
    try:
        made = UriTemplate(template)
    except DefinitionError:
        return
    made.match(uri)
    filled = made.expand(**dict.fromkeys(made.variables, "a b/c"))
    if "{" not in template:
        assert made.match(filled) == {} or len(filled) > 1000


def fuzz_openapi(data: bytes) -> None:
    """OpenAPI documents, as JSON and as YAML."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        try:
            document = read_document(file.name)
            for operation in list_operations(document, "api", ("authorization",)):
                repr(operation)
        except DefinitionError:
            return


def fuzz_yaml(data: bytes) -> None:
    """Configuration files: composed within bounds, or refused with a finding."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return
    try:
        root = Composer("waypost.yaml", []).document(events(text, "waypost.yaml"))
        root.at("server", "name")
    except Refused as refused:
        assert refused.found.line > 0


def fuzz_websocket_frames(data: bytes) -> None:
    """Frames of the worker socket: the same, in however many pieces they arrive."""
    whole = FrameSplitter(MAX_FRAME_BYTES)
    expected = list(whole.feed(data))
    pieces, found = FrameSplitter(MAX_FRAME_BYTES), []
    step = 1 + len(data) % 7
    for start in range(0, len(data), step):
        found += list(pieces.feed(data[start : start + step]))
    assert pieces.is_lost == whole.is_lost
    assert [part for is_text, part in found if is_text] == [part for is_text, part in expected if is_text]
    assert b"".join(part for is_text, part in found if not is_text) == b"".join(
        part for is_text, part in expected if not is_text
    )


class _Transport:
    """A transport that goes nowhere."""

    def __init__(self) -> None:
        self.is_aborted = False

    def write(self, data: bytes) -> None:
        """Send nothing."""

    def abort(self) -> None:
        """Note it."""
        self.is_aborted = True

    def is_closing(self) -> bool:
        """Whether it was aborted."""
        return self.is_aborted

    def get_write_buffer_size(self) -> int:
        """Nothing waits."""
        return 0


class _Noted(Request):
    """A request that notes how it ended."""

    __slots__ = ("ends", "events")

    def __init__(self) -> None:
        super().__init__(b"")
        self.ends: list[tuple[Response | None, Exception | None]] = []
        self.events: list[bytes] = []

    def on_head(self, response: Response) -> Callable[[bytes], None] | None:
        """Read events from an event stream."""
        return EventStream(self.events.append, 1 << 16).feed if response.content_type == "text/event-stream" else None

    def on_end(self, response: Response | None, problem: Exception | None) -> None:
        """Note the end."""
        self.ends.append((response, problem))


def fuzz_http_responses(data: bytes) -> None:
    """Responses of upstream servers: ended once, with a response or a problem, and the same in any pieces."""
    outcomes = []
    for step in (max(1, len(data)), 1 + len(data) % 5):
        request, connection = _Noted(), Connection(lambda _: None, lambda _: None, max_body=1 << 16)
        connection.connection_made(_Transport())  # type: ignore[arg-type]  # as much of a transport as it needs
        connection.send(request)
        for start in range(0, len(data), step):
            connection.data_received(data[start : start + step])
        connection.connection_lost(None)
        assert len(request.ends) == 1
        [(response, problem)] = request.ends
        assert problem is None or isinstance(problem, HttpError), problem
        outcomes.append((response and (response.status, response.body), type(problem), request.events))
    if outcomes[0][0] is not None and outcomes[1][0] is not None:
        assert outcomes[0] == outcomes[1]


class Parser(NamedTuple):
    """A function to fuzz, inputs to begin with, and words that inputs are made of."""

    fuzz: Callable[[bytes], None]
    seeds: tuple[bytes, ...]
    words: tuple[bytes, ...]


def _words(text: str) -> tuple[bytes, ...]:
    return tuple(word.encode() for word in text.split())


_JSON: Final = _words('{ } [ ] : , " \\ null true 1 -0 1e400 "a" "id" "method" "params" "jsonrpc":"2.0" \\ud800 é')
_OPENAPI: Final = b"""openapi: 3.1.0
info: {title: t, version: "1"}
servers: [{url: "https://example.org/{v}", variables: {v: {default: a}}}]
paths:
  /pets/{id}:
    parameters: [{name: id, in: path, required: true, schema: {$ref: "#/components/schemas/Id"}}]
    get:
      operationId: getPet
      responses: {"200": {description: ok, content: {application/json: {schema: {type: object}}}}}
    post:
      requestBody: {content: {application/json: {schema: {allOf: [{$ref: "#/components/schemas/Pet"}]}}}}
      parameters: [{name: q, in: query, style: form, explode: false, schema: {type: array, items: {type: string}}}]
components:
  schemas:
    Id: {type: integer, format: int64, nullable: true, exclusiveMinimum: true, minimum: 1}
    Pet: {type: object, properties: {name: {type: string, readOnly: true}, next: {$ref: "#/components/schemas/Pet"}}}
"""

PARSERS: Final[dict[str, Parser]] = {
    "wire": Parser(
        fuzz_wire,
        (
            b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"b":[1]},"_meta":{}}}',
            b'[{"jsonrpc":"2.0","id":"x","result":{}},{"jsonrpc":"2.0","method":"n"}]',
        ),
        (*_JSON, *_words('"tools/call" "name" "arguments" "_meta" "result" "error" "task"')),
    ),
    "worker_messages": Parser(
        fuzz_frames_of_workers,
        (b'{"type":"invokefunction","function_id":"f","invocation_id":"i","data":{"a":NaN},"action":{"type":"void"}}',),
        (*_JSON, *_words('"type" "invokefunction" "registerfunction" "function_id" "data" NaN Infinity "observe"')),
    ),
    "expressions": Parser(
        fuzz_expressions,
        (
            b"$.context.a == 1 && !($.input.a.b in ['x', 2]) || $.principal.id matches \"^a\"",
            b"$.context.list[3].b >= 2",
        ),
        _words("$.context.a $.input $.arguments.n $.principal.id == != < >= && || ! ( ) [ ] , in contains matches")
        + _words("'x' \"y\" 1 -2.5 1e9 true null ['a'] $ . [0] \\u0041 exists"),
    ),
    "paths": Parser(
        fuzz_paths,
        (b"$.context.list[3].b", b"$.input['a'][\"b\"]", b"$.workflow.id"),
        _words("$ . [ ] ' \" context input arguments output workflow steps previous branch evidence [0] ['a'] list"),
    ),
    "uri_templates": Parser(
        fuzz_uri_templates,
        (b"notes://{who}/{+rest}\nnotes://ada/2026/x", b"a://{x}.{y}{#z}\na://1.2#3", b"a://b\na://b"),
        (*_words("notes:// { } {a} {b} {+c} {#d} / ? # . - %41 %ff %25 a b aaaaaaaa {+a}{+b}"), b"\n"),
    ),
    "openapi": Parser(
        fuzz_openapi,
        (_OPENAPI,),
        (
            *_words(
                "openapi: 3.1.0 paths: /a: get: {} [] $ref: '#/components' parameters: schema: type: object & * ! - |"
            ),
            b"\n",
            b"\n  ",
            b"\n    ",
            b"{",
            b"}",
            b"[",
            b"]",
            b": ",
            b", ",
        ),
    ),
    "yaml": Parser(
        fuzz_yaml,
        (
            b"server: {name: a}\nlist: &x [1, 2.5, 0x10, ~, 2026-01-01]\nother: *x\n? key\n: |\n  text\n",
            b"a: &a [*a]\n",
        ),
        (
            *_words(
                "a: - ? : & * ! !! !!int !!binary | > ~ null true 0x1 0o7 1_0 .inf << &a *a --- ... # \" ' { } [ ] ,"
            ),
            b"\n",
            b"\n  ",
            b"\t",
            b"%YAML 1.2\n",
        ),
    ),
    "websocket_frames": Parser(
        fuzz_websocket_frames,
        (
            b"\x81\x85\x01\x02\x03\x04abcde\x89\x80\0\0\0\0",
            b"\x01\x83aaaabcd\x80\x81aaaab",
            b"\x81\xfe\0\x7e" + b"m" * 130,
        ),
        (
            b"\x81",
            b"\x82",
            b"\x01",
            b"\x80",
            b"\x88",
            b"\x89",
            b"\x85",
            b"\xfe\0\x05",
            b"\xff\0\0\0\0\0\0\0\x03",
            b"mask",
            b"abc",
        ),
    ),
    "http_responses": Parser(
        fuzz_http_responses,
        (
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX: y\r\n\r\n",
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 200 A\r\nContent-Type: text/event-stream\r\n\r\ndata:1\n\ndata\r\r",
        ),
        (
            *_words(
                "HTTP/1.1 HTTP/1.0 200 204 304 100 101 OK Content-Length: Transfer-Encoding: chunked Connection: close"
            ),
            b" ",
            b"\r\n",
            b"\r\n\r\n",
            b"0\r\n\r\n",
            b"5\r\nhello\r\n",
            b"data: x\n\n",
            b"Content-Type: text/event-stream\r\n",
        ),
    ),
}
