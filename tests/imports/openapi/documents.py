"""OpenAPI documents for tests."""

from __future__ import annotations

from typing import Any

PETS: dict[str, Any] = {
    "openapi": "3.0.3",
    "info": {"title": "Pets", "version": "1"},
    "servers": [{"url": "http://169.254.169.254/"}],
    "paths": {
        "/pets": {
            "get": {
                "operationId": "listPets",
                "summary": "List pets",
                "description": "All pets, page by page",
                "tags": ["pets"],
                "parameters": [
                    {"name": "limit", "in": "query", "schema": {"type": "integer", "maximum": 100}},
                    {"name": "kind", "in": "query", "schema": {"type": "array", "items": {"type": "string"}}},
                    {"name": "X-Trace", "in": "header", "schema": {"type": "string"}},
                    {"name": "X-Key", "in": "header", "required": True, "schema": {"type": "string"}},
                ],
            },
            "post": {
                "operationId": "addPet",
                "requestBody": {"$ref": "#/components/requestBodies/Pet"},
            },
        },
        "/pets/{petId}": {
            "parameters": [{"name": "petId", "in": "path", "required": True, "schema": {"type": "string"}}],
            "get": {"summary": "One pet"},
            "delete": {"operationId": "removePet"},
            "patch": {
                "operationId": "changePet",
                "requestBody": {"content": {"application/merge-patch+json": {"schema": {"type": "object"}}}},
            },
        },
    },
    "components": {
        "requestBodies": {
            "Pet": {
                "required": True,
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Pet"}}},
            }
        },
        "schemas": {
            "Pet": {
                "type": "object",
                "required": ["id", "name"],
                "properties": {
                    "id": {"type": "integer", "readOnly": True},
                    "name": {"type": "string", "nullable": True, "example": "Rex", "x-odd": 1},
                    "age": {"type": "number", "minimum": 0, "exclusiveMinimum": True},
                    "friends": {"type": "array", "items": {"$ref": "#/components/schemas/Pet"}},
                },
            }
        },
    },
}


def document(operation: Any, *, path: str = "/x", version: str = "3.1.0", **more: Any) -> dict[str, Any]:
    """A document with one operation."""
    return {"openapi": version, "paths": {path: {"post": operation}}, **more}
