"""One HTTP/1.1 connection to a server: a request out, its response in."""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from typing import Any, Final, Protocol, cast

import httptools

from waypost.loops import running_loop

MOST_BODY: Final = 64 * 1024 * 1024
"""Bytes that a response, or one event of a stream, may have."""
MOST_OVERHEAD: Final = 64 * 1024
"""Bytes that may come without any of them being part of a body."""
_FRESH: Final = 1.0
"""Seconds for which a connection that nobody used is surely still open as far as the loop knows."""
_BODILESS: Final = frozenset({204, 304})

Take = Callable[[bytes], None]


class HttpError(Exception):
    """No response that can be used; `sent` when the server may have got the request."""

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent


class TooLarge(HttpError):
    """A response that has more bytes than anybody wants to keep."""

    def __init__(self, most: int) -> None:
        super().__init__(f"more than {most // (1024 * 1024)} MiB" if most >= 1024 * 1024 else f"more than {most} bytes")


class Response:
    """What a server answered; names of headers are in lower case."""

    __slots__ = ("body", "headers", "reason", "status")

    def __init__(self) -> None:
        self.status = 0
        self.reason = ""
        self.headers: dict[bytes, bytes] = {}
        self.body: bytes = b""

    @property
    def kind(self) -> str:
        """The type of the content, without its parameters."""
        return self.headers.get(b"content-type", b"").partition(b";")[0].strip().lower().decode("latin-1")

    @property
    def has_no_length(self) -> bool:
        """Whether only the end of the connection ends it."""
        headers = self.headers
        return not (b"content-length" in headers or b"transfer-encoding" in headers or self.status in _BODILESS)


class Reader(Protocol):
    """Whoever waits for a response; both are called from the loop and at most once."""

    def begun(self, response: Response) -> Take | None:
        """The head is there; the body goes to the function returned, or else as a whole into the response."""

    def ended(self, response: Response | None, problem: Exception | None) -> None:
        """The response is complete, or will never be."""


class Connection(asyncio.Protocol):
    """Carries one exchange after the other; `freed` hears when it can carry the next, `lost` when it is gone."""

    _response: Response
    _take: Take | None
    _first: bytes
    _more: bytearray
    _overhead: int
    _is_begun: bool
    _is_complete: bool
    _is_surplus: bool
    _is_reusable: bool

    def __init__(
        self, freed: Callable[[Connection], None], lost: Callable[[Connection], None], most: int = MOST_BODY
    ) -> None:
        self.idle_since = 0.0
        self._freed = freed
        self._lost = lost
        self._most = most
        self._parser: Any = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._reader: Reader | None = None
        self._begin_response()

    def send(self, data: bytes, reader: Reader) -> None:
        """Send a request; `reader` hears what comes back."""
        assert self._transport is not None
        self._reader = reader
        self._begin_response()
        self._transport.write(data)

    def is_open(self) -> bool:
        """Whether nothing has come, not even an end, on a connection that nobody uses."""
        if self._transport is None or self._transport.is_closing():
            return False
        return running_loop().time() - self.idle_since < _FRESH or self._is_silent(self._transport)

    def is_busy_with(self, reader: Reader) -> bool:
        """Whether the response that comes next is for `reader`."""
        return self._reader is reader

    def abort(self) -> None:
        """Close at once; a reader hears nothing more."""
        self._reader = None
        if self._transport is not None:
            self._transport.abort()

    def fail(self, problem: Exception) -> None:
        """Close at once, and tell whoever reads why."""
        reader = self._reader
        self.abort()
        if reader is not None:
            reader.ended(None, problem)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is there."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Read what came; a server that speaks without being asked has lost its connection."""
        if self._reader is None:
            self.abort()
            return
        self._overhead += len(data)
        problem: Exception | None = None
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserCallbackError as error:
            problem = error.__context__ if isinstance(error.__context__, Exception) else error
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            problem = HttpError("what it answers is not HTTP")
        if self._is_complete:
            self._finish(is_clean=problem is None)
        elif problem is not None:
            self.fail(problem)
        elif self._overhead > MOST_OVERHEAD:
            self.fail(HttpError(f"the head of its response is longer than {MOST_OVERHEAD // 1024} KiB"))

    def connection_lost(self, error: Exception | None) -> None:
        """The end of the connection; of a response too, where it has no other."""
        reader, self._reader, self._transport = self._reader, None, None
        self._lost(self)
        if reader is None:
            return
        if error is None and self._is_begun and self._response.has_no_length:
            reader.ended(self._whole(), None)
        elif self._is_begun:
            reader.ended(None, HttpError("the connection was closed in the middle of the response"))
        else:
            reader.ended(None, HttpError("the connection was closed without a response"))

    # What the parser finds

    def on_message_begin(self) -> None:
        """A response begins; a second one was not asked for."""
        self._is_surplus = self._is_complete

    def on_status(self, reason: bytes) -> None:
        """The words of the status line, maybe in parts."""
        if not self._is_complete:
            self._response.reason += reason.decode("latin-1")

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header, or one line after the body, which nobody needs."""
        if not self._is_begun:
            self._response.headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        """The head is there."""
        status = self._parser.get_status_code()
        if self._is_complete or status < 200:
            return
        response, self._is_begun, self._overhead = self._response, True, 0
        response.status = status
        encoding = response.headers.get(b"content-encoding", b"identity")
        if encoding.strip().lower() != b"identity":
            raise HttpError("it compressed its response, which was not asked for")
        length = response.headers.get(b"content-length", b"")
        assert self._reader is not None
        self._take = self._reader.begun(response)
        if self._take is None and length.isdigit() and int(length) > self._most:
            raise TooLarge(self._most)

    def on_body(self, piece: bytes) -> None:
        """Part of the body."""
        if self._is_complete:
            return
        self._overhead = 0
        if self._take is not None:
            self._take(piece)
            return
        if not self._first:
            self._first = piece
        else:
            self._more += piece
        if len(self._first) + len(self._more) > self._most:
            raise TooLarge(self._most)

    def on_message_complete(self) -> None:
        """The response is complete; one that only announces another leaves no trace."""
        if self._is_begun:
            self._is_complete = True
            self._is_reusable = self._parser.should_keep_alive()
        else:
            self._response = Response()

    def _begin_response(self) -> None:
        self._response = Response()
        self._take = None
        self._first = b""
        self._more = bytearray()
        self._overhead = 0
        self._is_begun = self._is_complete = self._is_surplus = self._is_reusable = False

    def _whole(self) -> Response:
        self._response.body = self._first + self._more if self._more else self._first
        return self._response

    def _finish(self, is_clean: bool) -> None:
        reader, self._reader = self._reader, None
        transport = self._transport
        if reader is None or transport is None:
            return
        response = self._whole()
        can_go_on = is_clean and self._is_reusable and not self._is_surplus and not transport.is_closing()
        if can_go_on and not transport.get_write_buffer_size():
            self._freed(self)
        else:
            transport.abort()
        reader.ended(response, None)

    def _is_silent(self, transport: asyncio.Transport) -> bool:
        """Whether there is nothing to read; the loop may not have got round to the end of a connection."""
        poll = select.poll()
        poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
        return not poll.poll(0)
