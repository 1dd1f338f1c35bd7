"""The JSON Schema of the configuration file, for editors."""

from __future__ import annotations

from typing import Any

import msgspec

from waypost.config.models import Config

_VARIABLE = {"type": "string", "pattern": r"^\$\{", "description": "A variable: `${NAME}` or `${NAME:-default}`."}
_NOTES = ("title", "description", "default", "examples")


def schema() -> dict[str, Any]:
    """The JSON Schema of a configuration file, with the keys in camelCase."""
    (reference,), definitions = msgspec.json.schema_components([Config], ref_template="#/$defs/{name}")
    for definition in definitions.values():
        definition["additionalProperties"] = False
        definition["properties"] = {
            name: _or_variable(setting) for name, setting in definition.get("properties", {}).items()
        }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Waypost configuration",
        **reference,
        "$defs": {**definitions, "Variable": _VARIABLE},
    }


def _or_variable(setting: dict[str, Any]) -> dict[str, Any]:
    """The setting's schema, widened so that a variable may stand where text could not."""
    forms = setting.get("anyOf", [{key: value for key, value in setting.items() if key not in _NOTES}])
    kinds = {form.get("type") for form in forms}
    if "string" in kinds or not kinds & {"integer", "number", "boolean", None} or "$ref" in forms[0]:
        return setting
    notes = {key: value for key, value in setting.items() if key in _NOTES}
    return {**notes, "anyOf": [*forms, {"$ref": "#/$defs/Variable"}]}
