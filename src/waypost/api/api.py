"""The HTTP API of a running hub: the table of its routes, the roles they need, and how requests become answers.

The OpenAPI document is built from the routes and the types in the signatures of their handlers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import cache
from importlib import import_module
from typing import Any, Final
from urllib.parse import parse_qsl, quote

import msgspec

from waypost.api import (
    audit,
    breakers,
    catalog,
    connect,
    events,
    keys,
    overview,
    policies,
    requests,
    runs,
    sessions,
    settings,
    upstreams,
    workflows,
)
from waypost.api.metrics import CONTENT_TYPE, Metrics, collect_metrics, format_metrics
from waypost.api.routing import (
    Act,
    Failure,
    ManagedHub,
    Match,
    Operator,
    Paged,
    PageQuery,
    Role,
    Route,
    Routes,
    explain_invalid,
)
from waypost.capabilities.principals import ANONYMOUS
from waypost.errors import (
    Busy,
    DefinitionError,
    InsufficientScope,
    InvalidParams,
    PolicyDenied,
    ProtocolError,
    StoreDamaged,
    StoreError,
    StoreUnavailable,
    UnknownCapability,
    WaypostError,
    WorkflowRefused,
)
from waypost.identity.authentication import INVALID, MISSING
from waypost.policy.audit import Refusals, Via
from waypost.runtime.component import Component
from waypost.transports.http.app import OperatorAnswer, OperatorRequest
from waypost.version import __version__

_REF: Final = "#/components/schemas/{name}"
_FAILURES: Final = {
    400: "The request is invalid.",
    401: "The key is missing or invalid.",
    403: "The key lacks the required role, or the `Host` or `Origin` is not allowed.",
    404: "Not found.",
    405: "The path does not allow the method.",
    409: "The request conflicts with the state of the hub; `code` says how, where there are several ways.",
    413: "The body is over the limit, `server.maxBodyBytes`.",
    503: "The store is unavailable, or the hub is stopping.",
}
_WITHOUT_BODY: Final = tuple(status for status in _FAILURES if status != 413)


@cache
def build_document(routes: Routes) -> dict[str, Any]:
    """The whole document; it is built once."""
    types = [
        Failure,
        Metrics,
        *(kind for route in routes.all for kind in (route.hints.get("body"), _answer_type(route)) if kind),
    ]
    _, schemas = msgspec.json.schema_components(types, ref_template=_REF)
    paths: dict[str, dict[str, Any]] = {"/metrics": {"get": _metrics()}, "/api/openapi.json": {"get": _openapi()}}
    for route in routes.all:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Waypost",
            "version": __version__,
            "description": "Operate a running hub. Each operation under /api/v1 names the least role that a key needs "
            "(`x-role`: viewer, operator or admin); approvals need the role that the approval asks for.",
        },
        "security": [{"key": []}],
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
    }


def _operation(route: Route) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": getattr(route.handler, "__name__", route.path),
        "summary": (route.handler.__doc__ or "").partition("\n")[0].removesuffix("."),
        "tags": [route.path.split("/")[3]],
        "parameters": _parameters(route),
        "responses": {
            str(route.status): {
                "description": "Done.",
                "content": _content(
                    _schema(_answer_type(route)),
                    route.answer,
                    route.streams or "application/json",
                ),
            },
            **_failures(*(() if "body" in route.hints else _WITHOUT_BODY)),
        },
    }
    if not route.any_key:
        operation["x-role"] = route.role
    if body := route.hints.get("body"):
        operation["requestBody"] = {"required": True, "content": _content(_schema(body), route.request)}
    return operation


def _answer_type(route: Route) -> Any:
    """The type of the answer, or of the events of a stream."""
    return type(route.answer) if route.streams else route.hints["return"]


def _content(schema: dict[str, Any], example: Any, media_type: str = "application/json") -> dict[str, Any]:
    return {media_type: {"schema": schema, "example": msgspec.to_builtins(example)}}


def _schema(kind: Any) -> dict[str, Any]:
    (schema,), _ = msgspec.json.schema_components([kind], ref_template=_REF)
    return schema


def _parameters(route: Route) -> list[dict[str, Any]]:
    parameters = [
        {"name": part[1:-1], "in": "path", "required": True, "schema": {"type": "string"}}
        for part in route.segments
        if part.startswith("{")
    ]
    if kind := route.hints.get("query") or (PageQuery if route.paged else None):
        _, found = msgspec.json.schema_components([kind], ref_template=_REF)
        query = found[kind.__name__]
        required = query.get("required", ())
        parameters += [
            {"name": name, "in": "query", "required": name in required, "schema": schema}
            for name, schema in query["properties"].items()
        ]
    return parameters


def _failures(*statuses: int) -> dict[str, Any]:
    schema = _schema(Failure)
    return {
        str(status): {"description": text, "content": {"application/json": {"schema": schema}}}
        for status, text in _FAILURES.items()
        if not statuses or status in statuses
    }


def _metrics() -> dict[str, Any]:
    content = {"text/plain": {"schema": {"type": "string"}}, "application/json": {"schema": _schema(Metrics)}}
    return {
        "operationId": "metrics",
        "summary": "Metrics for Prometheus or as JSON; open to requests from the same machine",
        "tags": ["metrics"],
        "security": [{}, {"key": []}],
        "responses": {"200": {"description": "Done.", "content": content}, **_failures(401, 403, 405)},
    }


def _openapi() -> dict[str, Any]:
    schema = {"type": "object"}
    return {
        "operationId": "openapi",
        "summary": "This document",
        "tags": ["openapi"],
        "security": [{}],
        "responses": {"200": {"description": "Done.", "content": {"application/json": {"schema": schema}}}},
    }


_READER: Final = Route("GET", "overview", overview.show_overview, overview.OVERVIEW)
"""A route that every viewer may use: a principal without a role does not learn which paths exist."""

ROUTES: Final = Routes(
    Route("GET", "events", events.follow_changes, events.CHANGE, any_key=True, streams="text/event-stream"),
    Route("GET", "calls", overview.list_calls, overview.HISTORY),
    _READER,
    Route("GET", "keys", keys.list_keys, keys.LIST, paged=Paged("keys", ("id", "source"))),
    Route("POST", "keys", keys.create_key, keys.CREATED, keys.NEW, status=201, act=Act("key.created", "id")),
    Route("DELETE", "keys/{id}", keys.revoke_key, keys.REVOKED, act=Act("key.revoked", "id")),
    Route("GET", "policies", policies.list_policies, policies.LIST, paged=Paged("policies", ("name",))),
    Route("POST", "policies/test", policies.explain_policy, policies.DENIED, policies.QUESTION, needs="viewer"),
    Route("GET", "breakers", breakers.list_breakers, breakers.LIST, paged=Paged("breakers", ("capability",))),
    Route(
        "POST",
        "breakers/{name}/reset",
        breakers.reset_breaker,
        breakers.RESET,
        act=Act("breaker.reset", "capability"),
        needs="operator",
    ),
    Route("GET", "audit", audit.list_entries, audit.PAGE),
    Route("GET", "audit/export", audit.export_audit, audit.ENTRY, streams="application/x-ndjson"),
    Route("GET", "audit/verify", audit.verify_audit, audit.VERDICT),
    Route("GET", "skills", catalog.list_skills, catalog.SKILLS, paged=Paged("skills", ("name",))),
    Route(
        "POST",
        "skills",
        catalog.load_skill,
        catalog.SKILL,
        catalog.SKILL_FILE,
        status=201,
        act=Act("skill.loaded", "skill.name"),
    ),
    Route("GET", "skills/{name}", catalog.show_skill, catalog.SKILL_SOURCE),
    Route(
        "POST", "skills/{name}", catalog.create_skill, catalog.SKILL, status=201, act=Act("skill.created", "skill.name")
    ),
    Route("DELETE", "skills/{name}", catalog.unload_skill, catalog.SKILL, act=Act("skill.unloaded", "skill.name")),
    Route(
        "POST",
        "skills/{name}/reload",
        catalog.reload_skill,
        catalog.SKILL,
        act=Act("skill.loaded", "skill.name", "reload"),
        needs="operator",
    ),
    Route(
        "POST",
        "skills/{name}/rollback",
        catalog.rollback_skill,
        catalog.SKILL,
        act=Act("skill.loaded", "skill.name", "rollback"),
        needs="operator",
    ),
    Route("GET", "documents", catalog.list_documents, catalog.DOCUMENTS, paged=Paged("documents", ("id",))),
    Route(
        "POST",
        "documents",
        catalog.add_document,
        catalog.ADDED_DOCUMENT,
        catalog.DOCUMENT,
        status=201,
        act=Act("document.published", "document.id"),
    ),
    Route(
        "DELETE",
        "documents",
        catalog.remove_document,
        catalog.REMOVED_DOCUMENT,
        act=Act("document.removed", "document.id"),
    ),
    Route("GET", "document", catalog.show_document, catalog.DOCUMENT),
    Route("GET", "prompts", catalog.list_prompts, catalog.PROMPTS, paged=Paged("prompts", ("name", "owner"))),
    Route("GET", "prompts/{name}", catalog.show_prompt, catalog.PROMPT),
    Route(
        "DELETE",
        "prompts/{name}",
        catalog.remove_prompt,
        catalog.REMOVED_PROMPT,
        act=Act("document.removed", "prompt.name"),
    ),
    Route("GET", "tools", catalog.list_tools, catalog.TOOLS, paged=Paged("tools", ("name",))),
    Route("POST", "tools/{name}/call", catalog.call_tool, catalog.RESULT, catalog.CALL, needs="operator"),
    Route("GET", "catalog", catalog.list_items, catalog.PAGE),
    Route("POST", "catalog/hide", catalog.hide_items, catalog.HIDDEN, catalog.SELECTION, needs="operator"),
    Route("POST", "catalog/show", catalog.show_items, catalog.SHOWN, catalog.SELECTION, needs="operator"),
    Route("GET", "catalog/{id}", catalog.show_item, catalog.ITEM),
    Route("GET", "workers", catalog.list_workers, catalog.WORKERS, paged=Paged("workers", ("id",))),
    Route("GET", "replicas", catalog.list_replicas, catalog.REPLICAS, paged=Paged("replicas", ("started_at", "id"))),
    Route("GET", "sessions", sessions.list_sessions, sessions.SESSIONS),
    Route(
        "DELETE",
        "sessions/{id}",
        sessions.end_session,
        sessions.ENDED,
        act=Act("session.ended", "id"),
        needs="operator",
    ),
    Route("GET", "requests", requests.list_requests, requests.REQUESTS),
    Route("GET", "settings", settings.list_settings, settings.SETTINGS),
    Route("GET", "tasks", sessions.list_tasks, sessions.TASKS),
    Route(
        "POST",
        "tasks/{id}/cancel",
        sessions.cancel_task,
        sessions.CANCELLED,
        act=Act("task.cancelled", "task.id"),
        needs="operator",
    ),
    Route("GET", "connect", connect.list_clients, connect.ENTRIES),
    Route("GET", "upstreams", upstreams.list_upstreams, upstreams.LIST, paged=Paged("upstreams", ("connection",))),
    Route("GET", "upstreams/{name}", upstreams.show_upstream, upstreams.ONE),
    Route("POST", "upstreams/{name}/approve", upstreams.approve_upstream, upstreams.APPROVED, upstreams.APPROVAL),
    Route(
        "POST",
        "upstreams/{name}/restart",
        upstreams.restart_upstream,
        upstreams.ONE,
        act=Act("upstream.restarted", "upstream.connection"),
        needs="operator",
    ),
    Route("POST", "upstreams/{name}/login", upstreams.login_upstream, upstreams.STORED, upstreams.LOGIN),
    Route("POST", "upstreams/{name}/logout", upstreams.logout_upstream, upstreams.REMOVED, upstreams.LOGOUT),
    Route("GET", "workflows", workflows.list_workflows, workflows.LIST, paged=Paged("workflows", ("id",))),
    Route(
        "POST",
        "workflows",
        workflows.create_workflow,
        workflows.CHANGE,
        workflows.NEW,
        status=201,
        act=Act("workflow.defined", "workflow.id", "created"),
    ),
    Route(
        "POST",
        "workflows/import",
        workflows.import_workflow,
        workflows.CHANGE,
        workflows.DOCUMENT,
        status=201,
        act=Act("workflow.defined", "workflow.id", "imported"),
    ),
    Route("GET", "workflows/{id}", workflows.show_workflow, workflows.DEFINITION),
    Route("DELETE", "workflows/{id}", workflows.remove_workflow, workflows.REMOVED, act=Act("workflow.removed", "id")),
    Route(
        "POST",
        "workflows/{id}/change",
        workflows.change_workflow,
        workflows.CHANGE,
        workflows.CHANGED,
        act=Act("workflow.defined", "workflow.id", "changed"),
    ),
    Route(
        "POST",
        "workflows/{id}/enable",
        workflows.enable_workflow,
        workflows.CHANGE,
        act=Act("workflow.defined", "workflow.id", "enabled"),
        needs="operator",
    ),
    Route(
        "POST",
        "workflows/{id}/disable",
        workflows.disable_workflow,
        workflows.CHANGE,
        act=Act("workflow.defined", "workflow.id", "disabled"),
        needs="operator",
    ),
    Route(
        "POST",
        "workflows/{id}/duplicate",
        workflows.duplicate_workflow,
        workflows.CHANGE,
        status=201,
        act=Act("workflow.defined", "workflow.id", "duplicated"),
    ),
    Route("GET", "workflows/{id}/export", workflows.export_workflow, workflows.DOCUMENT),
    Route("GET", "workflows/{id}/states", workflows.count_states, workflows.COUNTS),
    Route("GET", "workflows/{id}/findings", workflows.check_workflow, workflows.PROBLEMS),
    Route(
        "POST",
        "workflows/{id}/simulate",
        workflows.simulate_workflow,
        workflows.SIMULATED,
        workflows.SIMULATION,
        needs="viewer",
    ),
    Route("GET", "workflows/{id}/graph", workflows.draw_workflow, workflows.DRAWING),
    Route("GET", "runs", runs.list_runs, runs.RUNS),
    Route("POST", "runs/batch", runs.change_runs, runs.BATCHED, runs.BATCH, needs="operator"),
    Route("GET", "runs/{id}", runs.show_run, runs.RUN_WITH_HISTORY),
    Route("GET", "runs/{id}/children", runs.list_children, runs.CHILDREN, paged=Paged("runs", ("workflowId",))),
    Route("GET", "runs/{id}/graph", runs.draw_run, runs.DRAWN),
    Route("POST", "runs/{id}/submit", runs.submit_run, runs.RUN, runs.SUBMISSION, needs="operator"),
    Route("POST", "runs/{id}/cancel", runs.cancel_run, runs.CANCELLED, runs.CANCELLATION, needs="operator"),
    Route("POST", "runs/{id}/resolve", runs.resolve_run, runs.RUN, runs.RESOLUTION, needs="operator"),
    Route(
        "GET",
        "approvals",
        workflows.list_approvals,
        workflows.APPROVALS,
        any_key=True,
        paged=Paged("approvals", ("requestedAt", "id")),
    ),
    Route("POST", "approvals/{id}/approve", workflows.approve, workflows.APPROVED, workflows.APPROVAL, any_key=True),
    Route("POST", "approvals/{id}/reject", workflows.reject, workflows.REJECTED, workflows.REJECTION, any_key=True),
)
"""Every route: method, path, handler, and examples of the answer and the body."""

METRICS: Final = "/metrics"
OPENAPI: Final = "/api/openapi.json"
VIA_HEADER: Final = b"waypost-via"
"""The header in which the hub's own programs say which of them sent a request."""

_VIAS: Final[dict[bytes, Via]] = {b"cli": "cli", b"console": "console"}
MAX_SUBJECT_CHARACTERS: Final = 200
_JSON: Final = b"application/json"
# A proxy must neither change nor collect the events of a stream; the second header says so to nginx.
_UNCACHED: Final = ((b"cache-control", b"no-cache, no-transform"), (b"x-accel-buffering", b"no"))
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1"})
_FORWARDED: Final = (b"forwarded", b"x-forwarded-for", b"x-real-ip")
_STATUSES: Final[tuple[tuple[type[WaypostError], int], ...]] = (
    (InvalidParams, 400),
    (UnknownCapability, 404),
    (PolicyDenied, 403),
    (InsufficientScope, 403),
    (ProtocolError, 400),
    (StoreUnavailable, 503),
    (StoreDamaged, 503),
    (StoreError, 409),
    (Busy, 503),
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


async def _answer_sign_in(hub: ManagedHub, question: bytes) -> bool:
    # A hub whose console was not opened yet imports it now; that takes a while, and clients must not wait for it.
    await asyncio.to_thread(import_module, "waypost.console")
    return await hub.console.answer_peer(question)


_PEER_ANSWERS: Final[dict[str, Callable[[ManagedHub, bytes], Awaitable[Any]]]] = {
    "sessions": sessions.answer_list,
    "requests": requests.answer_list,
    "end": sessions.answer_end,
    "sign_in": _answer_sign_in,
}


class Api(Component):
    """Everything under `/api/`, and `/metrics`."""

    name = "api"

    def __init__(self, hub: ManagedHub) -> None:
        self._hub = hub
        self._counters = hub.core.pipeline.counters
        self._refusals = None if hub.core.guard.audit is None else Refusals(hub.core.guard.audit)

    async def stop(self) -> None:
        """Record the refused requests that were only counted."""
        if self._refusals is not None:
            self._refusals.flush()

    async def answer_peer(self, subject: str, question: bytes) -> Any:
        """What another replica asks of this one, for a person who asked it."""
        return await _PEER_ANSWERS[subject](self._hub, question)

    def record_refusal(self, request: OperatorRequest) -> None:
        """Record a request that was refused for its key or its principal; floods are counted."""
        if self._refusals is not None:
            address = (request.scope.get("client") or ("",))[0]
            found = ROUTES.find(request.scope["method"], _raw_path(request))
            # An unknown path is the client's text, and as long as it likes.
            subject = found.route.path if isinstance(found, Match) else request.path[:MAX_SUBJECT_CHARACTERS]
            self._refusals.add("api.refused", request.principal.id, _way_in(request), address, subject)

    async def answer(self, request: OperatorRequest) -> OperatorAnswer:
        """Answer a request; no exception leaves this method."""
        try:
            answer = await self._answer(request)
        except Exception as error:  # an operator gets an answer in any case, and the log the traceback
            answer = _to_failure(error)
        if answer.status in (401, 403):
            self.record_refusal(request)
        return answer

    async def _answer(self, request: OperatorRequest) -> OperatorAnswer:
        method, path = request.scope["method"], request.path
        if path in (METRICS, OPENAPI):
            if method != "GET":
                return _refuse_method(method, path, ["GET"])
            # The document is the same for every hub, so that it needs no role.
            return await self._metrics(request) if path == METRICS else _to_json(build_document(ROUTES))
        found = ROUTES.find(method, _raw_path(request))
        if isinstance(found, Match):
            if not found.route.is_open_to(request.principal):
                return _refuse_principal(request, found.route.role)
            answer = await self._run(found, request)
            if found.route.streams:
                return OperatorAnswer(200, b"", found.route.streams.encode(), _UNCACHED, answer)
            return _to_json(answer, found.route.status)
        if not _READER.is_open_to(request.principal):
            return _refuse_principal(request, _READER.role)
        if found:
            return _refuse_method(method, path, found)
        return _refuse(404, f"There is nothing at {path}; see {OPENAPI} for all paths.")

    async def _run(self, match: Match, request: OperatorRequest) -> Any:
        route, hints = match.route, match.route.hints
        arguments: dict[str, Any] = dict(match.variables)
        if "query" in hints:
            arguments["query"] = _decode_query(request.scope.get("query_string", b""), hints["query"])
        if "body" in hints:
            arguments["body"] = _decode_body(request.body, hints["body"])
        if "by" in hints:
            arguments["by"] = Operator(request.principal, _way_in(request))
        query = request.scope.get("query_string", b"") if route.paged else b""
        page = _decode_query(query, PageQuery)
        answer = await route.handler(self._hub, **arguments)
        if route.paged is not None:
            answer = route.paged.cut(answer, page)
        if route.act is not None:
            subject = msgspec.to_builtins(answer)
            for name in route.act.subject.split("."):
                subject = subject[name]
            self._hub.core.guard.record_act(
                route.act.action, request.principal.id, _way_in(request), subject, route.act.reason
            )
        return answer

    async def _metrics(self, request: OperatorRequest) -> OperatorAnswer:
        client = request.scope.get("client") or ("",)
        # Behind a proxy on this machine every request comes from loopback.
        is_local = client[0] in _LOOPBACK and not any(name in request.headers for name in _FORWARDED)
        if not is_local and not _READER.is_open_to(request.principal):
            return _refuse_principal(request, _READER.role)
        metrics = await collect_metrics(self._hub, self._counters, request.principal)
        if _JSON in request.headers.get(b"accept", b""):
            return _to_json(metrics)
        return OperatorAnswer(200, format_metrics(metrics, self._counters).encode(), CONTENT_TYPE)


def _way_in(request: OperatorRequest) -> Via:
    return _VIAS.get(request.headers.get(VIA_HEADER, b""), "api")


def _raw_path(request: OperatorRequest) -> str:
    """The path as it was sent, in which an encoded slash is part of a name, without the prefix of a mounted app."""
    raw: bytes | None = request.scope.get("raw_path")
    if raw is None:
        return quote(request.path)
    mounted = request.scope["path"].removesuffix(request.path)
    return "/".join(["", *raw.partition(b"?")[0].decode("latin-1").split("/")[mounted.count("/") + 1 :]])


def _refuse_principal(request: OperatorRequest, role: Role) -> OperatorAnswer:
    """The refusal for a principal without a role, or for a request without a key."""
    if request.principal.id == ANONYMOUS.id:
        message = INVALID if b"authorization" in request.headers else MISSING
        return _refuse(401, message, (b"www-authenticate", b"Bearer"))
    return _refuse(403, f"{request.principal.id} does not have the role {role}.")


def _decode_query(text: bytes, kind: Any) -> Any:
    try:
        # Strict parsing refuses an empty text, too.
        pairs = parse_qsl(text.decode("ascii"), keep_blank_values=True, strict_parsing=bool(text), errors="strict")
        if len(dict(pairs)) < len(pairs):
            raise InvalidParams("A parameter is given more than once.")
        return msgspec.convert(dict(pairs), kind, strict=False)
    except (msgspec.ValidationError, ValueError) as error:
        raise InvalidParams(f"Invalid query: {explain_invalid(str(error), kind)}.") from None


def _decode_body(body: bytes, kind: Any) -> Any:
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidParams(f"Invalid body: {explain_invalid(str(error), kind)}.") from None


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
