"""The HTTP API of a running hub: authorises a request, finds its route and answers it."""

from __future__ import annotations

import logging
from typing import Any, Final
from urllib.parse import parse_qsl, quote

import msgspec

from waypost.api import audit, catalog, keys, policies, upstreams, workflows
from waypost.api.metrics import CONTENT_TYPE, exposition, measured
from waypost.api.openapi import document
from waypost.api.routing import VIAS, Failure, Found, Operated, Operator, Routes
from waypost.capabilities.principals import ANONYMOUS, Principal
from waypost.errors import (
    DefinitionError,
    InvalidParams,
    StoreDamaged,
    StoreError,
    StoreUnavailable,
    UnknownCapability,
    WaypostError,
    WorkflowRefused,
)
from waypost.policy.authentication import INVALID, MISSING
from waypost.transports.http.app import OperatorAnswer, OperatorRequest

JSON: Final = b"application/json"
Header = tuple[bytes, bytes]

_log: Final = logging.getLogger(__name__)
_STATUS: Final[tuple[tuple[type[WaypostError], int], ...]] = (
    (InvalidParams, 400),
    (UnknownCapability, 404),
    (StoreUnavailable, 503),
    (StoreDamaged, 503),
    (StoreError, 409),
    (DefinitionError, 409),
)
"""The status of each error; the first that fits."""
_REFUSED: Final = {
    "INVALID_DEFINITION": 400,
    "POLICY_DENIED": 403,
    "UNKNOWN_APPROVAL": 404,
    "UNKNOWN_ID": 404,
    "UNKNOWN_WORKFLOW": 404,
}
"""The status of each refusal of a workflow; 409 of the others."""


class Answer(msgspec.Struct, frozen=True):
    """A response."""

    status: int
    body: bytes
    content_type: bytes = JSON
    headers: tuple[Header, ...] = ()


def answered(value: Any, status: int = 200) -> Answer:
    """A value as JSON."""
    return Answer(status, msgspec.json.encode(value))


def refused(status: int, sentence: str, *headers: Header, code: str = "") -> Answer:
    """A refusal in one sentence."""
    return Answer(status, msgspec.json.encode(Failure(sentence, code)), headers=headers)


def failed(error: Exception) -> Answer:
    """The answer to whoever ran into an error."""
    if isinstance(error, WorkflowRefused):
        return refused(_REFUSED.get(error.code, 409), error.message, code=error.code)
    if isinstance(error, WaypostError):
        for kind, status in _STATUS:
            if isinstance(error, kind):
                return refused(status, error.message, code=str(getattr(error, "code", "") if status == 409 else ""))
    _log.error("the API failed", exc_info=error)
    return refused(500, "The hub failed to answer; its log says why.")


ADMIN: Final = "admin"
METRICS: Final = "/metrics"
OPENAPI: Final = "/api/openapi.json"
ROUTES: Final = Routes(
    route
    for routes in (
        *(keys.ROUTES, policies.ROUTES, audit.ROUTES),
        *(catalog.SKILL_ROUTES, catalog.CONTENT_ROUTES, catalog.TOOL_ROUTES),
        *(upstreams.ROUTES, workflows.WORKFLOW_ROUTES, workflows.RUN_ROUTES, workflows.APPROVAL_ROUTES),
    )
    for route in routes
)
VIA: Final = b"waypost-via"
"""The header in which a program of the hub's own says which it is."""

_LOOPBACK: Final = frozenset({"127.0.0.1", "::1"})
_FORWARDED: Final = (b"forwarded", b"x-forwarded-for", b"x-real-ip")


class Api:
    """Everything under `/api/`, and `/metrics`."""

    def __init__(self, hub: Operated) -> None:
        self._hub = hub
        self._counters = hub.core.pipeline.counters

    async def answer(self, request: OperatorRequest) -> OperatorAnswer:
        """Answer a request."""
        try:
            answer = await self._answer(request)
        except Exception as error:  # whatever happens, an operator gets an answer and the log the rest
            answer = failed(error)
        return OperatorAnswer(answer.status, answer.body, answer.content_type, answer.headers)

    async def _answer(self, request: OperatorRequest) -> Answer:
        method, path = request.scope["method"], request.path
        if path in (METRICS, OPENAPI):
            if method != "GET":
                return _not_allowed(method, path, ["GET"])
            return await self._metrics(request) if path == METRICS else answered(document(ROUTES))
        found = ROUTES.find(method, _written(request))
        refusal = _refusal(request, isinstance(found, Found) and found.route.open)
        if refusal is not None:
            return refusal
        if isinstance(found, Found):
            return answered(await self._run(found, request), found.route.status)
        if found:
            return _not_allowed(method, path, found)
        return refused(404, f"There is nothing at {path}; {OPENAPI} says what there is.")

    async def _run(self, found: Found, request: OperatorRequest) -> Any:
        given: dict[str, Any] = dict(found.variables)
        if found.route.query is not None:
            given["query"] = _query(request.scope.get("query_string", b""), found.route.query)
        if found.route.body is not None:
            given["body"] = _body(request.body, found.route.body)
        if "by" in found.route.hints:
            given["by"] = Operator(request.principal, VIAS.get(request.headers.get(VIA, b"").decode("latin-1"), "http"))
        return await found.route.handler(self._hub, **given)

    async def _metrics(self, request: OperatorRequest) -> Answer:
        if not _is_local(request):
            refusal = _refusal(request)
            if refusal is not None:
                return refusal
        metrics = await measured(self._hub, self._counters, request.principal)
        if b"application/json" in request.headers.get(b"accept", b""):
            return answered(metrics)
        return Answer(200, exposition(metrics, self._counters).encode(), CONTENT_TYPE)


def _written(request: OperatorRequest) -> str:
    """The path as it was sent, in which a slash that belongs to a name is not one of the path."""
    raw: bytes | None = request.scope.get("raw_path")
    if raw is None:
        return quote(request.path)
    mounted = request.scope["path"].removesuffix(request.path)
    return "/".join(["", *raw.partition(b"?")[0].decode("latin-1").split("/")[mounted.count("/") + 1 :]])


def _refusal(request: OperatorRequest, is_open: bool = False) -> Answer | None:
    """Why somebody may not look after the hub; where it is open, a key is enough."""
    if _is_admin(request.principal) or (is_open and request.principal.id != ANONYMOUS.id):
        return None
    if request.principal.id == ANONYMOUS.id:
        sentence = INVALID if b"authorization" in request.headers else MISSING
        return refused(401, sentence, (b"www-authenticate", b"Bearer"))
    return refused(403, f"{request.principal.id} does not have the role {ADMIN}.")


def _is_admin(principal: Principal) -> bool:
    return ADMIN in principal.roles


def _is_local(request: OperatorRequest) -> bool:
    """Whether a request comes from this machine; behind a proxy on it everybody seems to."""
    client = request.scope.get("client") or ("",)
    return client[0] in _LOOPBACK and not any(name in request.headers for name in _FORWARDED)


def _not_allowed(method: str, path: str, allowed: list[str]) -> Answer:
    methods = ", ".join(allowed)
    return refused(405, f"{path} does not take {method}; it takes {methods}.", (b"allow", methods.encode()))


def _query(text: bytes, kind: Any) -> Any:
    try:
        pairs = parse_qsl(text.decode("ascii"), keep_blank_values=True, strict_parsing=bool(text), errors="strict")
        if len(dict(pairs)) < len(pairs):
            raise InvalidParams("A parameter is given more than once.")
        return msgspec.convert(dict(pairs), kind, strict=False)
    except (msgspec.ValidationError, ValueError) as error:
        raise InvalidParams(f"The query is not understood: {error}.") from None


def _body(body: bytes, kind: Any) -> Any:
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidParams(f"The body is not what is expected: {error}.") from None
