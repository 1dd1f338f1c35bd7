"""The OpenAPI document, built from the routes and the types in the signatures of their handlers."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import msgspec

from waypost.api.metrics import Metrics
from waypost.api.routing import Failure, PageQuery, Route, Routes
from waypost.version import __version__

_REF: Final = "#/components/schemas/{name}"
_FAILURES: Final = {
    400: "The request is invalid.",
    401: "The key is missing or invalid.",
    403: "The key lacks the required role.",
    404: "Not found.",
    405: "The path does not allow the method.",
    409: "The request conflicts with the state of the hub; `code` says how, where there are several ways.",
    503: "The store is unavailable.",
}


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
            **_failures(),
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
