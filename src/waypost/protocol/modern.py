"""Requests of 2026-07-28: each carries its version, its client and that client's capabilities, and stands alone.

Over HTTP, headers repeat the version, the method and the name of what a request is about, so that proxies can route
without reading bodies. A server has to refuse a request whose headers and body differ, or a proxy could be deceived.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from msgspec import UNSET

from waypost.capabilities.capability import Capability, HeaderParameter
from waypost.capabilities.principals import ANONYMOUS, Principal
from waypost.capabilities.questions import is_input_needed
from waypost.errors import HeaderMismatch, InvalidParams, MethodNotFound, ProtocolError, UnsupportedVersion, shorten
from waypost.protocol.engine import Engine
from waypost.protocol.exchange import CLOSED_OUTLET, SILENT, Exchange, parse_client_level
from waypost.protocol.methods import MODERN, Method, dispatch
from waypost.protocol.responses import Response, to_failure
from waypost.protocol.rounds import Rounds, bind_state
from waypost.wire import params
from waypost.wire.messages import Message, RequestId
from waypost.wire.params import CLIENT_CAPABILITIES, PROTOCOL_VERSION
from waypost.wire.versions import V2026_07_28

_MARK: Final = PROTOCOL_VERSION.encode()


def is_modern_request(message: Message) -> bool:
    """Whether a message is of 2026-07-28, by the version in its `_meta`."""
    given = b"" if message.params is UNSET else bytes(message.params)
    # A search in the bytes spares requests of sessions a second parse. Where JSON has escapes, which may stand for any
    # character, only a parse shows the name.
    if _MARK not in given and b"\\" not in given:
        return False
    try:
        meta = message.read(params.Params).meta
    except InvalidParams:
        # Its `_meta` is malformed; if it seems to be of 2026-07-28, it is refused in the form of that version.
        return _MARK in given
    return meta is not UNSET and meta.protocol_version is not UNSET


async def answer(
    engine: Engine, message: Message, exchange: Exchange, headers: Mapping[bytes, bytes] | None = None
) -> Response | None:
    """The response to a request, error or not; `None` if its client cancelled it."""
    request_id = exchange.request_id
    name: str = message.method  # type: ignore[assignment]  # requests have one
    rounds = None
    try:
        exchange.begin()
        method, given = admit(engine, message, headers, exchange.principal)
        exchange.meta = meta = given.meta
        exchange.version = meta.protocol_version
        if meta.log_level is not UNSET:
            level = parse_client_level(meta.log_level)
            exchange.log_level = level if engine.profile.offers("logging") else SILENT
        # A client without capabilities cannot be asked anything, so the usual call needs no rounds.
        if isinstance(given, params.Round) and (meta.client_capabilities or given.request_state is not None):
            exchange.asker = rounds = _make_rounds(engine, name, given, exchange)
        done = await dispatch(engine, name, method, message.params, given, exchange)
        if exchange.was_cancelled():
            return exchange.cancelled_response()
        if rounds is not None and rounds.is_asking:
            return _input_response(engine, rounds, request_id)
        cacheable = method is not None and method.cacheable
        return Response(engine.profile.modern_encoder.to_response(request_id, done, cacheable=cacheable))
    except asyncio.CancelledError:
        if not exchange.was_cancelled():
            raise
        return exchange.cancelled_response()
    except Exception as error:
        if exchange.was_cancelled():
            return exchange.cancelled_response()
        # The handler failed because its question has no answer yet: the question is the response, not the failure.
        if rounds is not None and rounds.is_asking and not isinstance(error, ProtocolError):
            return _input_response(engine, rounds, request_id)
        return to_failure(error, V2026_07_28).to_response(request_id)
    except BaseException as error:
        # `InputNeeded` is no `Exception`, and may come in a group of exceptions.
        if rounds is None or not is_input_needed(error):
            raise
        return (
            exchange.cancelled_response() if exchange.was_cancelled() else _input_response(engine, rounds, request_id)
        )
    finally:
        exchange.outlet = CLOSED_OUTLET  # the response goes out: nothing may be sent after it


def _input_response(engine: Engine, rounds: Rounds, request_id: RequestId) -> Response:
    """The response that asks the client for input."""
    try:
        payload = engine.profile.modern_encoder.to_response(request_id, rounds.answer(), cacheable=False)
    except Exception as error:
        return to_failure(error, V2026_07_28).to_response(request_id)
    return Response(payload)


def _make_rounds(engine: Engine, method: str, given: params.Round, exchange: Exchange) -> Rounds:
    """The questions and answers of this request so far."""
    about = given.uri if isinstance(given, params.ReadResource) else given.name  # type: ignore[attr-defined]  # a prompt's or a tool's
    bound_to = bind_state(exchange.principal.id, method, about, getattr(given, "arguments", None) or {})
    return Rounds(engine.seal, bound_to, given.input_responses, given.request_state)


def admit(
    engine: Engine, message: Message, headers: Mapping[bytes, bytes] | None, principal: Principal = ANONYMOUS
) -> tuple[Method | None, Any]:
    """The method and its parameters, after the checks of the envelope in the order of the specification."""
    name: str = message.method  # type: ignore[assignment]  # requests have one
    method = MODERN.get(name)
    given: Any
    problem = None
    try:
        given = message.read(params.Params if method is None else method.params)
    except InvalidParams as error:
        # The envelope is checked first, as the specification orders; wrong parameters are reported after it.
        given, problem = message.read(params.Params), error
    if given.meta is UNSET or given.meta.protocol_version is UNSET:
        named = decode_header((headers or {}).get(VERSION, b""), VERSION)
        if named and named not in engine.profile.versions:
            raise _unsupported_version(engine, named)
        raise InvalidParams(f"params._meta must carry {PROTOCOL_VERSION}.")
    if given.meta.client_capabilities is UNSET:
        raise InvalidParams(f"params._meta must carry {CLIENT_CAPABILITIES}.")
    version: str = given.meta.protocol_version
    if headers is not None:
        check_headers(headers, version, name, _find_subject(method, message, given))
    if version not in engine.profile.modern_versions:
        raise _unsupported_version(engine, version)
    if headers is not None and engine.registry.tools.headed and name == "tools/call" and problem is None:
        tool = engine.registry.find_tool(given.name)
        # An error about a header must not reveal a tool that is hidden from the caller.
        if tool is not None and tool.mcp.headers and engine.can_see(principal, tool):
            check_parameter_headers(headers, tool, given.arguments or {})
    if method is not None and not (method.capability is None or engine.profile.offers(method.capability)):
        method = None
    if method is None and engine.hooks["request"] is None:
        raise MethodNotFound(f"Method not found: {shorten(name)}")
    if problem is not None:
        raise problem
    return method, given


def _unsupported_version(engine: Engine, version: str) -> UnsupportedVersion:
    return UnsupportedVersion(
        f"Protocol version {shorten(version)} is not supported here.",
        {"supported": list(engine.profile.versions), "requested": shorten(version)},
    )


def _find_subject(method: Method | None, message: Message, given: Any) -> str | None:
    """The value that `Mcp-Name` must repeat; found even when other parameters are invalid."""
    if method is None or method.name_field is None:
        return None
    if type(given) is not method.params:
        given = message.read(params.Subject)
    about = getattr(given, method.name_field)
    return about if isinstance(about, str) else None


VERSION: Final = b"mcp-protocol-version"
METHOD: Final = b"mcp-method"
NAME: Final = b"mcp-name"
PARAMETER: Final = b"mcp-param-"

_NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_OPEN: Final = b"=?base64?"
_CLOSE: Final = b"?="

REPEATED_HEADER: Final = b"=?base64?given more than once?="
"""Stands for a header that is given more than once; no value of a body is equal to it."""


def check_headers(headers: Mapping[bytes, bytes], version: str, method: str, name: str | None) -> None:
    """Refuse a request whose version, method or name differ between headers and body."""
    if (
        # Most clients repeat the values as they are; only others need decoding.
        headers.get(VERSION) == version.encode()
        and headers.get(METHOD) == method.encode()
        and (name is None or headers.get(NAME) == name.encode())
    ):
        return
    _require_header(headers, VERSION, version)
    _require_header(headers, METHOD, method)
    if name is not None:
        _require_header(headers, NAME, name)


def check_parameter_headers(headers: Mapping[bytes, bytes], tool: Capability, arguments: Mapping[str, Any]) -> None:
    """Refuse a call whose `Mcp-Param-*` headers differ from its arguments."""
    for parameter in tool.mcp.headers:
        header = PARAMETER + parameter.header.encode()
        expected = _find_argument(arguments, parameter)
        given = headers.get(header)
        if expected is None and given is None:
            continue
        if expected is None or given is None:
            where = "arguments" if expected is None else "headers"
            raise HeaderMismatch(f"{header.decode()} is missing from the {where}.")
        if not _matches(decode_header(given, header), expected, parameter.type):
            raise HeaderMismatch(f"{header.decode()} does not match the argument {'.'.join(parameter.path)}.")


def _require_header(headers: Mapping[bytes, bytes], header: bytes, value: str) -> None:
    given = headers.get(header)
    if given is None:
        raise HeaderMismatch(f"The header {header.decode()} is missing.")
    if decode_header(given, header) != value:
        raise HeaderMismatch(f"The header {header.decode()} does not match the body.")


def decode_header(value: bytes, header: bytes) -> str:
    """The text of a header value, which may be wrapped in base64."""
    value = value.strip(b" \t")
    if value == REPEATED_HEADER:
        raise HeaderMismatch(f"The header {header.decode('latin-1')} is given more than once.")
    if not (value.startswith(_OPEN) and value.endswith(_CLOSE) and len(value) >= len(_OPEN) + len(_CLOSE)):
        return value.decode("latin-1")
    packed = value[len(_OPEN) : -len(_CLOSE)]
    try:
        raw = base64.b64decode(packed, validate=True)
        # Only the canonical form: two headers for one value would let a proxy and the hub disagree.
        if base64.b64encode(raw) == packed:
            return raw.decode()
    except (binascii.Error, ValueError):
        pass
    raise HeaderMismatch(f"The header {header.decode('latin-1')} is not valid base64 of UTF-8 text.")


def _find_argument(arguments: Mapping[str, Any], parameter: HeaderParameter) -> Any:
    value: Any = arguments
    for name in parameter.path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value


def _matches(text: str, expected: Any, kind: str) -> bool:
    if kind == "integer" and isinstance(expected, (int, float)) and not isinstance(expected, bool):
        # `1.0` is an integer in JSON Schema; Decimal compares integers exactly that a float cannot hold.
        return _NUMBER.fullmatch(text) is not None and Decimal(text) == expected
    if isinstance(expected, bool):
        return text == ("true" if expected else "false")
    return text == str(expected)
