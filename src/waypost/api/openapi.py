"""The OpenAPI document, written from the routes and the types their handlers name."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import msgspec

from waypost.api.metrics import Metrics
from waypost.api.routing import Failure, Route, Routes
from waypost.version import __version__

_REF: Final = "#/components/schemas/{name}"
_FAILURES: Final = {
    400: "The request is not understood.",
    401: "No key was sent, or not a good one.",
    403: "The key does not have the role that is needed.",
    404: "There is no such thing.",
    405: "The method is not for this path.",
    409: "It is refused; `code` says which refusal it is, where there are several.",
    503: "The store cannot be used right now.",
}


@cache
def document(routes: Routes) -> dict[str, Any]:
    """The whole document."""
    types = [Failure, Metrics, *(kind for route in routes.all for kind in (route.body, route.returns) if kind)]
    _, schemas = msgspec.json.schema_components(types, ref_template=_REF)
    paths: dict[str, dict[str, Any]] = {"/metrics": {"get": _metrics()}, "/api/openapi.json": {"get": _itself()}}
    for route in routes.all:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Waypost",
            "version": __version__,
            "description": "Looking after a running hub. Everything under /api/v1 needs a key with the role admin, but "
            "for approvals, which need the role that the approval asks for.",
        },
        "security": [{"key": []}],
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
    }


def _operation(route: Route) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": getattr(route.handler, "__name__", route.path),
        "summary": route.summary,
        "tags": [route.path.split("/")[3]],
        "parameters": [*_path_parameters(route), *_query_parameters(route)],
        "responses": {
            str(route.status): {"description": "Done.", "content": _content(_schema(route.returns), route.answer)},
            **_failures(),
        },
    }
    if route.body is not None:
        operation["requestBody"] = {"required": True, "content": _content(_schema(route.body), route.example)}
    return operation


def _content(schema: dict[str, Any], example: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schema, "example": msgspec.to_builtins(example)}}


def _schema(kind: Any) -> dict[str, Any]:
    (schema,), _ = msgspec.json.schema_components([kind], ref_template=_REF)
    return schema


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in route.variables]


def _query_parameters(route: Route) -> list[dict[str, Any]]:
    if route.query is None:
        return []
    _, found = msgspec.json.schema_components([route.query], ref_template=_REF)
    properties = found[route.query.__name__]["properties"]
    return [{"name": name, "in": "query", "required": False, "schema": schema} for name, schema in properties.items()]


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
        "summary": "How the hub is, for Prometheus or as JSON; open to callers on the same machine",
        "tags": ["metrics"],
        "security": [{}, {"key": []}],
        "responses": {"200": {"description": "Done.", "content": content}, **_failures(401, 403, 405)},
    }


def _itself() -> dict[str, Any]:
    schema = {"type": "object"}
    return {
        "operationId": "openapi",
        "summary": "This document",
        "tags": ["openapi"],
        "security": [{}],
        "responses": {"200": {"description": "Done.", "content": {"application/json": {"schema": schema}}}},
    }
