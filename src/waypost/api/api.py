"""The HTTP API of a running hub: the table of its routes, who may use them, and how requests become answers."""

from __future__ import annotations

import logging
from typing import Any, Final
from urllib.parse import parse_qsl, quote

import msgspec

from waypost.api import audit, breakers, catalog, keys, policies, upstreams, workflows
from waypost.api.metrics import CONTENT_TYPE, collect_metrics, format_metrics
from waypost.api.openapi import build_document
from waypost.api.routing import Failure, ManagedHub, Match, Operator, Route, Routes, Via
from waypost.capabilities.principals import ANONYMOUS
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
from waypost.identity.authentication import INVALID, MISSING
from waypost.runtime.component import Component
from waypost.transports.http.app import OperatorAnswer, OperatorRequest

ROUTES: Final = Routes(
    Route("GET", "keys", keys.list_keys, keys.LIST),
    Route("POST", "keys", keys.create_key, keys.CREATED, keys.NEW, status=201),
    Route("DELETE", "keys/{id}", keys.revoke_key, keys.REVOKED),
    Route("GET", "policies", policies.list_policies, policies.LIST),
    Route("POST", "policies/test", policies.explain_policy, policies.DENIED, policies.QUESTION),
    Route("GET", "breakers", breakers.list_breakers, breakers.LIST),
    Route("POST", "breakers/{name}/reset", breakers.reset_breaker, breakers.RESET),
    Route("GET", "audit", audit.list_entries, audit.PAGE),
    Route("GET", "audit/verify", audit.verify_audit, audit.VERDICT),
    Route("GET", "skills", catalog.list_skills, catalog.SKILLS),
    Route("POST", "skills", catalog.load_skill, catalog.SKILL, catalog.SKILL_FILE, status=201),
    Route("POST", "skills/{name}", catalog.create_skill, catalog.SKILL, status=201),
    Route("DELETE", "skills/{name}", catalog.unload_skill, catalog.SKILL),
    Route("POST", "skills/{name}/reload", catalog.reload_skill, catalog.SKILL),
    Route("POST", "skills/{name}/rollback", catalog.rollback_skill, catalog.SKILL),
    Route("GET", "documents", catalog.list_documents, catalog.DOCUMENTS),
    Route("POST", "documents", catalog.add_document, catalog.ADDED_DOCUMENT, catalog.DOCUMENT, status=201),
    Route("DELETE", "documents", catalog.remove_document, catalog.REMOVED_DOCUMENT),
    Route("GET", "document", catalog.show_document, catalog.DOCUMENT),
    Route("GET", "prompts", catalog.list_prompts, catalog.PROMPTS),
    Route("GET", "prompts/{name}", catalog.show_prompt, catalog.PROMPT),
    Route("DELETE", "prompts/{name}", catalog.remove_prompt, catalog.REMOVED_PROMPT),
    Route("GET", "tools", catalog.list_tools, catalog.TOOLS),
    Route("GET", "workers", catalog.list_workers, catalog.WORKERS),
    Route("GET", "upstreams", upstreams.list_upstreams, upstreams.LIST),
    Route("GET", "upstreams/{name}", upstreams.show_upstream, upstreams.ONE),
    Route("POST", "upstreams/{name}/approve", upstreams.approve_upstream, upstreams.APPROVED, upstreams.APPROVAL),
    Route("POST", "upstreams/{name}/restart", upstreams.restart_upstream, upstreams.ONE),
    Route("POST", "upstreams/{name}/login", upstreams.login_upstream, upstreams.STORED, upstreams.LOGIN),
    Route("POST", "upstreams/{name}/logout", upstreams.logout_upstream, upstreams.REMOVED, upstreams.LOGOUT),
    Route("GET", "workflows", workflows.list_workflows, workflows.LIST),
    Route("POST", "workflows", workflows.create_workflow, workflows.CHANGE, workflows.NEW, status=201),
    Route("POST", "workflows/import", workflows.import_workflow, workflows.CHANGE, workflows.DOCUMENT, status=201),
    Route("GET", "workflows/{id}", workflows.show_workflow, workflows.DEFINITION),
    Route("DELETE", "workflows/{id}", workflows.remove_workflow, workflows.REMOVED),
    Route("POST", "workflows/{id}/change", workflows.change_workflow, workflows.CHANGE, workflows.CHANGED),
    Route("POST", "workflows/{id}/enable", workflows.enable_workflow, workflows.CHANGE),
    Route("POST", "workflows/{id}/disable", workflows.disable_workflow, workflows.CHANGE),
    Route("POST", "workflows/{id}/duplicate", workflows.duplicate_workflow, workflows.CHANGE, status=201),
    Route("GET", "workflows/{id}/export", workflows.export_workflow, workflows.DOCUMENT),
    Route("GET", "workflows/{id}/graph", workflows.draw_workflow, workflows.DRAWING),
    Route("GET", "runs", workflows.list_runs, workflows.RUNS),
    Route("GET", "runs/{id}", workflows.show_run, workflows.RUN_WITH_HISTORY),
    Route("POST", "runs/{id}/cancel", workflows.cancel_run, workflows.CANCELLED, workflows.CANCELLATION),
    Route("POST", "runs/{id}/resolve", workflows.resolve_run, workflows.RUN, workflows.RESOLUTION),
    Route("GET", "approvals", workflows.list_approvals, workflows.APPROVALS, any_key=True),
    Route("POST", "approvals/{id}/approve", workflows.approve, workflows.APPROVED, workflows.APPROVAL, any_key=True),
    Route("POST", "approvals/{id}/reject", workflows.reject, workflows.REJECTED, workflows.REJECTION, any_key=True),
)
"""Every route: method, path, handler, and examples of the answer and the body."""

ADMIN: Final = "admin"
METRICS: Final = "/metrics"
OPENAPI: Final = "/api/openapi.json"
VIA_HEADER: Final = b"waypost-via"
"""The header in which the hub's own programs say which of them sent a request."""

_VIAS: Final[dict[bytes, Via]] = {b"cli": "cli", b"console": "console"}
_JSON: Final = b"application/json"
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1"})
_FORWARDED: Final = (b"forwarded", b"x-forwarded-for", b"x-real-ip")
_STATUSES: Final[tuple[tuple[type[WaypostError], int], ...]] = (
    (InvalidParams, 400),
    (UnknownCapability, 404),
    (StoreUnavailable, 503),
    (StoreDamaged, 503),
    (StoreError, 409),
    (DefinitionError, 409),
)
"""The status of each error; the first class that fits."""
_REFUSAL_STATUSES: Final = {
    "INVALID_DEFINITION": 400,
    "POLICY_DENIED": 403,
    "UNKNOWN_APPROVAL": 404,
    "UNKNOWN_ID": 404,
    "UNKNOWN_WORKFLOW": 404,
}
"""The status of each refusal of a workflow; 409 for all others."""
_log: Final = logging.getLogger(__name__)


class Api(Component):
    """Everything under `/api/`, and `/metrics`."""

    name = "api"

    def __init__(self, hub: ManagedHub) -> None:
        self._hub = hub
        self._counters = hub.core.pipeline.counters

    async def answer(self, request: OperatorRequest) -> OperatorAnswer:
        """Answer a request; no exception leaves this method."""
        try:
            return await self._answer(request)
        except Exception as error:  # an operator gets an answer in any case, and the log the traceback
            return _to_failure(error)

    async def _answer(self, request: OperatorRequest) -> OperatorAnswer:
        method, path = request.scope["method"], request.path
        if path in (METRICS, OPENAPI):
            if method != "GET":
                return _refuse_method(method, path, ["GET"])
            return await self._metrics(request) if path == METRICS else _to_json(build_document(ROUTES))
        found = ROUTES.find(method, _raw_path(request))
        refusal = _check_operator(request, any_key=isinstance(found, Match) and found.route.any_key)
        if refusal is not None:
            return refusal
        if isinstance(found, Match):
            return _to_json(await self._run(found, request), found.route.status)
        if found:
            return _refuse_method(method, path, found)
        return _refuse(404, f"There is nothing at {path}; see {OPENAPI} for all paths.")

    async def _run(self, match: Match, request: OperatorRequest) -> Any:
        route = match.route
        arguments: dict[str, Any] = dict(match.variables)
        if route.query is not None:
            arguments["query"] = _decode_query(request.scope.get("query_string", b""), route.query)
        if route.body is not None:
            arguments["body"] = _decode_body(request.body, route.body)
        if "by" in route.hints:
            arguments["by"] = Operator(request.principal, _VIAS.get(request.headers.get(VIA_HEADER, b""), "http"))
        return await route.handler(self._hub, **arguments)

    async def _metrics(self, request: OperatorRequest) -> OperatorAnswer:
        client = request.scope.get("client") or ("",)
        # Behind a proxy on this machine every request comes from loopback.
        is_local = client[0] in _LOOPBACK and not any(name in request.headers for name in _FORWARDED)
        refusal = None if is_local else _check_operator(request)
        if refusal is not None:
            return refusal
        metrics = await collect_metrics(self._hub, self._counters, request.principal)
        if _JSON in request.headers.get(b"accept", b""):
            return _to_json(metrics)
        return OperatorAnswer(200, format_metrics(metrics, self._counters).encode(), CONTENT_TYPE)


def _raw_path(request: OperatorRequest) -> str:
    """The path as it was sent, in which an encoded slash is part of a name, without the prefix of a mounted app."""
    raw: bytes | None = request.scope.get("raw_path")
    if raw is None:
        return quote(request.path)
    mounted = request.scope["path"].removesuffix(request.path)
    return "/".join(["", *raw.partition(b"?")[0].decode("latin-1").split("/")[mounted.count("/") + 1 :]])


def _check_operator(request: OperatorRequest, *, any_key: bool = False) -> OperatorAnswer | None:
    """The refusal for a principal without the role admin; with `any_key` only for one without a key."""
    principal = request.principal
    if ADMIN in principal.roles or (any_key and principal.id != ANONYMOUS.id):
        return None
    if principal.id == ANONYMOUS.id:
        message = INVALID if b"authorization" in request.headers else MISSING
        return _refuse(401, message, (b"www-authenticate", b"Bearer"))
    return _refuse(403, f"{principal.id} does not have the role {ADMIN}.")


def _decode_query(text: bytes, kind: Any) -> Any:
    try:
        pairs = parse_qsl(text.decode("ascii"), keep_blank_values=True, strict_parsing=bool(text), errors="strict")
        if len(dict(pairs)) < len(pairs):
            raise InvalidParams("A parameter is given more than once.")
        return msgspec.convert(dict(pairs), kind, strict=False)
    except (msgspec.ValidationError, ValueError) as error:
        raise InvalidParams(f"Invalid query: {error}.") from None


def _decode_body(body: bytes, kind: Any) -> Any:
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidParams(f"Invalid body: {error}.") from None


def _to_json(value: Any, status: int = 200) -> OperatorAnswer:
    return OperatorAnswer(status, msgspec.json.encode(value), _JSON)


def _refuse(status: int, message: str, *headers: tuple[bytes, bytes], code: str = "") -> OperatorAnswer:
    return OperatorAnswer(status, msgspec.json.encode(Failure(message, code)), _JSON, headers)


def _refuse_method(method: str, path: str, allowed: list[str]) -> OperatorAnswer:
    methods = ", ".join(allowed)
    return _refuse(405, f"{path} does not allow {method}; use {methods}.", (b"allow", methods.encode()))


def _to_failure(error: Exception) -> OperatorAnswer:
    """The answer for an error, by its class or its code."""
    if isinstance(error, WorkflowRefused):
        return _refuse(_REFUSAL_STATUSES.get(error.code, 409), error.message, code=error.code)
    if isinstance(error, WaypostError):
        for kind, status in _STATUSES:
            if isinstance(error, kind):
                return _refuse(status, error.message, code=str(getattr(error, "code", "") if status == 409 else ""))
    _log.error("the API failed", exc_info=error)
    return _refuse(500, "The hub failed to answer; see its log.")
