"""The JSON Schema of the configuration file, for editors."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Struct

from waypost.config import checks, flowgate
from waypost.config.models import Connection
from waypost.kinds import BY_MARKER
from waypost.settings import Settings

_VARIABLE: Final = {
    "type": "string",
    "pattern": r"^\$\{",
    "description": "A variable: `${NAME}` or `${NAME:-default}`.",
}
_NOTES: Final = ("title", "description", "default", "examples")
_KIND: Final = "kind"
_REFERENCE: Final = "#/$defs/{name}"
_MARKER: Final = "marker"
"""Stands in the schema of a marker until the references of its models are known."""


def schema() -> dict[str, Any]:
    """The JSON Schema of a configuration file: editors offer the keys in camelCase and accept whatever else loads."""
    unions = [list(checks.members(union)) for union in (Connection, *BY_MARKER)]
    models = [model for union in unions for model in union]
    (reference, *references), definitions = msgspec.json.schema_components(
        [Settings, *models], schema_hook=lambda marker: {_MARKER: marker}, ref_template=_REFERENCE
    )
    names = {
        model: one["$ref"].removeprefix(_REFERENCE.format(name=""))
        for model, one in zip(models, references, strict=True)
    }
    _resolve_markers(definitions, names)
    told_apart = {names[model] for union in unions for model in _told_apart(union)}
    for name, definition in definitions.items():
        _close(name, definition, name in told_apart)
    for model, keys in flowgate.ALSO.items():
        for key, form in keys.items():
            _also(definitions[model.__name__], key, form)
    for model, idle in flowgate.IDLE.items():
        for key, why in idle.items():
            _also(definitions[model.__name__], key, {"deprecated": True, "description": f"It has no effect: {why}."})
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Waypost configuration",
        **reference,
        "$defs": {**definitions, "Variable": _VARIABLE},
    }


def _resolve_markers(part: Any, names: dict[type[Struct], str]) -> None:
    """Put the models of a marker where the schema has the marker."""
    if isinstance(part, dict) and _MARKER in part:
        tags = BY_MARKER[part.pop(_MARKER)].models
        places = {tag: _REFERENCE.format(name=names[model]) for tag, model in tags.items()}
        part["anyOf"] = [{"$ref": place} for place in places.values()]
        part["discriminator"] = {"propertyName": _KIND, "mapping": places}
    for inner in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        _resolve_markers(inner, names)


def _told_apart(union: list[type[Struct]]) -> set[type[Struct]]:
    """The models of a union that are meant by the keys they cannot do without, so that they need no kind."""
    required = {model: {one.name for one in msgspec.structs.fields(model) if one.required} for model in union}
    return {
        model
        for model, keys in required.items()
        if keys and not any(others and others <= keys for other, others in required.items() if other is not model)
    }


def _close(name: str, definition: dict[str, Any], told_apart: bool) -> None:
    """Let a mapping have its keys in both of their spellings, and no others."""
    properties, required = definition["properties"], definition["required"]
    if "enum" in properties.get(_KIND, ()):
        (tag,) = properties[_KIND]["enum"]
        properties[_KIND]["enum"] = list(dict.fromkeys((tag, checks.camel_case(tag))))
    spellings = {key: checks.camel_case(key) if "_" in key else checks.snake_case(key) for key in properties}
    others = {key: other for key, other in spellings.items() if other != key}
    definition["properties"] = {key: _or_variable(setting) for key, setting in properties.items()}
    definition["patternProperties"] = {
        f"^{other}$": {"$ref": f"#/$defs/{name}/properties/{key}"} for key, other in others.items()
    }
    definition["additionalProperties"] = False
    definition["required"] = [key for key in required if key not in others and not (told_apart and key == _KIND)]
    if either := [(key, others[key]) for key in required if key in others]:
        definition["allOf"] = [{"anyOf": [{"required": [key]}, {"required": [other]}]} for key, other in either]


def _also(definition: dict[str, Any], key: str, form: dict[str, object]) -> None:
    """Let a mapping have what files of mcp-flowgate say; editors do not offer it."""
    if key in definition["properties"]:
        definition["properties"][key]["anyOf"].append(form)
    else:
        definition["patternProperties"][f"^{key}$"] = form


def _or_variable(setting: dict[str, Any]) -> dict[str, Any]:
    """The setting's schema, widened so that a variable may stand where text could not."""
    forms = setting.get("anyOf", [{key: value for key, value in setting.items() if key not in _NOTES}])
    kinds = {form.get("type") for form in forms}
    if "string" in kinds or not kinds & {"integer", "number", "boolean", None} or "$ref" in forms[0]:
        return setting
    notes = {key: value for key, value in setting.items() if key in _NOTES}
    return {**notes, "anyOf": [*forms, {"$ref": "#/$defs/Variable"}]}
