"""Requests to the client (elicitation, sampling, roots): parameters, needed capabilities, answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from waypost.capabilities.results import as_block
from waypost.capabilities.schemas.forms import is_raw, parse
from waypost.capabilities.schemas.validators import Validator, check_limits
from waypost.errors import CapabilityNotSupported, DefinitionError, InvalidAnswer, SchemaNotAllowed, shorten
from waypost.wire.content import CONTENT_TYPES, Audio, Image, Text
from waypost.wire.versions import V2025_11_25, at_least

ANSWER_TIMEOUT_S: Final = 300.0
T = TypeVar("T")


class Question(msgspec.Struct, frozen=True):
    """One request to the client; `key` distinguishes it from others of the same call."""

    method: str
    params: dict[str, Any]
    needs: dict[str, Any]
    key: str | None = None
    within: float = ANSWER_TIMEOUT_S


class InputNeeded(BaseException):
    """Ends the run of a handler that asked a stateless client; the handler runs again when the answer has arrived.

    A `BaseException`, so that `except Exception` in a handler does not catch it.
    """


def is_input_needed(error: BaseException) -> bool:
    """Whether a run ended because it asked, also from several tasks at once (an exception group)."""
    if isinstance(error, BaseExceptionGroup):
        return any(is_input_needed(inner) for inner in error.exceptions)
    return isinstance(error, InputNeeded)


class SamplingAnswer(msgspec.Struct, frozen=True, rename="camel"):
    """The answer of the client's model."""

    role: str
    content: Any
    model: str = ""
    stop_reason: str | None = None

    @property
    def text(self) -> str:
        """The text of the answer."""
        blocks = self.content if isinstance(self.content, list) else [self.content]
        return "\n".join(block.text for block in blocks if isinstance(block, Text))


class Root(msgspec.Struct, frozen=True):
    """A root of the client: a place it works in."""

    uri: str
    name: str | None = None


def check_supported(capabilities: Mapping[str, Any], needs: Mapping[str, Any]) -> None:
    """Raise `CapabilityNotSupported` for a request that the client did not declare it can answer."""
    for name, inner in needs.items():
        if not is_declared(capabilities, name, *inner):
            raise CapabilityNotSupported({name: inner})


def is_declared(capabilities: Mapping[str, Any], name: str, *inner: str) -> bool:
    """Whether a client declared a capability and these parts of it; what is no object declares nothing."""
    offered = capabilities.get(name)
    if not isinstance(offered, Mapping):
        return False
    # Some clients write each field that they leave out as null.
    declared = {key for key, value in offered.items() if value is not None}
    if name == "elicitation" and not declared:
        declared = {"form"}  # a client that declares no mode supports forms: there were no others once
    return declared.issuperset(inner)


def form_question(message: str, schema: dict[str, Any], key: str | None, within: float) -> Question:
    """A request that the user fills in a form."""
    params = {"mode": "form", "message": message, "requestedSchema": schema}
    return Question("elicitation/create", params, {"elicitation": {"form": {}}}, key, within)


def url_question(message: str, url: str, key: str | None, within: float) -> Question:
    """A request that the user opens a page."""
    params = {"mode": "url", "message": message, "url": url}
    return Question("elicitation/create", params, {"elicitation": {"url": {}}}, key, within)


def sampling_question(
    messages: Any, options: Mapping[str, Any], max_tokens: int, key: str | None, within: float
) -> Question:
    """A request to the client's model."""
    params: dict[str, Any] = {"messages": as_sampling_messages(messages), "maxTokens": max_tokens}
    params |= {_SAMPLING[name]: value for name, value in options.items() if value is not None}
    needs: dict[str, Any] = {"sampling": {"tools": {}} if params.get("tools") else {}}
    return Question("sampling/createMessage", params, needs, key, within)


def roots_question(key: str | None, within: float) -> Question:
    """A request for the client's roots."""
    return Question("roots/list", {}, {"roots": {}}, key, within)


_SAMPLING: Final = {
    "system_prompt": "systemPrompt",
    "model_preferences": "modelPreferences",
    "temperature": "temperature",
    "stop_sequences": "stopSequences",
    "include_context": "includeContext",
    "metadata": "metadata",
    "tools": "tools",
    "tool_choice": "toolChoice",
}


def as_sampling_messages(messages: Any) -> list[dict[str, Any]]:
    """Sampling messages from text, content blocks, or messages with a role."""
    parts = messages if isinstance(messages, Sequence) and not isinstance(messages, str) else [messages]
    return [_sampling_message(part) for part in parts]


def _sampling_message(part: Any) -> dict[str, Any]:
    if isinstance(part, (str, *CONTENT_TYPES)):
        return {"role": "user", "content": msgspec.to_builtins(as_block(part))}
    if isinstance(part, Mapping) and "role" in part and "content" in part:
        content = part["content"]
        plain = content if isinstance(content, (Mapping, list)) else msgspec.to_builtins(as_block(content))
        return {**part, "content": plain}
    raise TypeError("A message for sampling is text, a content block, or a mapping with role and content.")


def parse_sampling_answer(result: Any) -> SamplingAnswer:
    """The answer of a sampling request, its content as blocks where their type is known."""
    given = _convert(result, SamplingAnswer)
    content = [_block(part) for part in given.content] if isinstance(given.content, list) else _block(given.content)
    return msgspec.structs.replace(given, content=content)


def _convert(result: Any, kind: type[T]) -> T:
    try:
        return msgspec.convert(result, kind)
    except msgspec.ValidationError as error:
        raise InvalidAnswer(f"The client's answer is malformed: {error}.") from None


def _block(part: Any) -> Any:
    if isinstance(part, dict) and part.get("type") in ("text", "image", "audio"):
        return _convert(part, Text | Image | Audio)  # type: ignore[arg-type]  # a union is no class
    return part


def parse_roots(result: Any) -> list[Root]:
    """The answer of a roots request."""
    return _convert(result, _Roots).roots


class _Roots(msgspec.Struct):
    roots: list[Root]


_COMMON: Final = frozenset({"type", "title", "description", "default"})
_ALLOWED: Final = {
    "string": _COMMON | {"minLength", "maxLength", "format", "pattern", "enum", "enumNames", "oneOf"},
    "number": _COMMON | {"minimum", "maximum"},
    "integer": _COMMON | {"minimum", "maximum"},
    "boolean": _COMMON,
    "array": _COMMON | {"items", "minItems", "maxItems"},
}
_FORMATS: Final = ("email", "uri", "date", "date-time")
_ROOT: Final = frozenset({"type", "properties", "required", "title", "description", "$schema"})


class ElicitationAnswer(msgspec.Struct, frozen=True):
    """The user's answer: accept with the content of the form, decline, or cancel."""

    action: str
    content: dict[str, Any] | None = None

    @property
    def accepted(self) -> bool:
        """Whether the user accepted."""
        return self.action == "accept"


def to_form(schema: Any) -> dict[str, Any]:
    """The JSON Schema of a form, given raw or in the data form; `SchemaNotAllowed` for what MCP forms do not allow."""
    if not isinstance(schema, dict):
        raise SchemaNotAllowed("The schema of a form must be a mapping.")
    raw: dict[str, Any] = schema if is_raw(schema) or isinstance(schema.get("type"), str) else parse(schema).schema
    if raw.get("type") != "object" or not isinstance(raw.get("properties"), dict):
        raise SchemaNotAllowed('The schema of a form must be {"type": "object", "properties": {...}}.')
    _only(raw, _ROOT, "the form")
    try:
        check_limits(raw)
    except DefinitionError as error:
        raise SchemaNotAllowed(f"The schema of a form is too large: {error.message}.") from None
    for name, part in raw["properties"].items():
        _check_property(name, part)
    required = raw.get("required", [])
    if (required and not _are_texts(required)) or not isinstance(required, list):
        raise SchemaNotAllowed("What a form requires must be a list of its properties.")
    for name in required:
        if name not in raw["properties"]:
            raise SchemaNotAllowed(f"The form requires {name!r}, which is not among its properties.")
    return raw


def _check_property(name: str, part: Any) -> None:
    kind = part.get("type", "string" if "enum" in part else None) if isinstance(part, dict) else None
    if not isinstance(kind, str) or kind not in _ALLOWED:
        raise SchemaNotAllowed(f"{name}: a form field is a string, number, integer, boolean or a choice of strings.")
    _only(part, _ALLOWED[kind], name)
    if part.get("format", "email") not in _FORMATS:
        raise SchemaNotAllowed(f"{name}: the format must be one of {', '.join(_FORMATS)}, not {part['format']!r}.")
    if kind == "string":
        _check_choices(name, part)
    elif kind == "array":
        _check_multiple_choice(name, part.get("items"))


def _check_choices(name: str, part: Mapping[str, Any]) -> None:
    if "enum" in part and not _are_texts(part["enum"]):
        raise SchemaNotAllowed(f"{name}: the choices must be a list of strings.")
    if "enumNames" in part and not (
        _are_texts(part["enumNames"]) and len(part["enumNames"]) == len(part.get("enum", ()))
    ):
        raise SchemaNotAllowed(f"{name}: enumNames must name each of the choices.")
    if "oneOf" in part:
        _check_titled(name, part["oneOf"])


def _check_multiple_choice(name: str, items: Any) -> None:
    if isinstance(items, dict) and "anyOf" in items:
        _only(items, frozenset({"anyOf"}), name)
        _check_titled(name, items["anyOf"])
    elif not isinstance(items, dict) or items.get("type") != "string" or not _are_texts(items.get("enum")):
        raise SchemaNotAllowed(f"{name}: a list must be a choice of strings: items with enum or anyOf.")
    else:
        _only(items, frozenset({"type", "enum"}), name)


def _check_titled(name: str, options: Any) -> None:
    fine = isinstance(options, list) and bool(options)
    if not fine or any(not isinstance(option, dict) or set(option) != {"const", "title"} for option in options):
        raise SchemaNotAllowed(f"{name}: each titled choice needs exactly a const and a title.")
    if not all(_are_texts(list(option.values())) for option in options):
        raise SchemaNotAllowed(f"{name}: the const and title of a choice must be strings.")


def _are_texts(values: Any) -> bool:
    return isinstance(values, list) and bool(values) and all(isinstance(value, str) for value in values)


def _only(part: Mapping[str, Any], allowed: frozenset[str], name: str) -> None:
    for key in part:
        if key not in allowed:
            raise SchemaNotAllowed(f"{name}: {key!r} is not allowed in a form.")


def to_older_form(schema: dict[str, Any], version: str) -> dict[str, Any]:
    """The form for a client of `version`: those before 2025-11-25 know no multiple choice, titles or most defaults."""
    if at_least(version, V2025_11_25):
        return schema
    return schema | {"properties": {name: _older(name, part) for name, part in schema["properties"].items()}}


def _older(name: str, part: dict[str, Any]) -> dict[str, Any]:
    if part.get("type") == "array":
        raise SchemaNotAllowed(f"{name}: this client cannot show a choice of several; ask for one.")
    known = {key: value for key, value in part.items() if key != "oneOf"}
    if "oneOf" in part:
        known["enum"] = [option["const"] for option in part["oneOf"]]
        known["enumNames"] = [option["title"] for option in part["oneOf"]]
    if known.get("type") != "boolean":
        known.pop("default", None)
    return known


def parse_elicitation_answer(result: Any, schema: dict[str, Any] | None) -> ElicitationAnswer:
    """The answer of an elicitation; `InvalidAnswer` when it is malformed or its content does not match the form."""
    given = _convert(result, ElicitationAnswer)
    if given.action not in ("accept", "decline", "cancel"):
        raise InvalidAnswer(f"The client's answer has an unknown action: {shorten(given.action)!r}.")
    if not given.accepted or schema is None:
        return ElicitationAnswer(given.action)
    # Clients are not trusted to check their forms, nor to send only what was asked for.
    problems = Validator.deferred(_closed(schema)).problems(given.content or {})
    if problems:
        raise InvalidAnswer(f"The answer does not fit the form: {'; '.join(problems)}.")
    return given


def _closed(schema: dict[str, Any]) -> dict[str, Any]:
    properties = {
        name: {key: value for key, value in part.items() if key != "enumNames"}
        for name, part in schema["properties"].items()
    }
    return schema | {"properties": properties, "additionalProperties": False}
