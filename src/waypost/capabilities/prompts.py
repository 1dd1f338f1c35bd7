"""`Prompt`: a template of messages that a person can pick; and prompts from functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

import msgspec
from msgspec import UNSET

from waypost.capabilities.capability import Capability, Kind, McpFeatures, Options, check_name, name_in_errors
from waypost.capabilities.components import Body, Component, TextArguments, inspect_shape, list_choices, resolve_hints
from waypost.capabilities.results import as_block
from waypost.capabilities.schemas import forms, signatures
from waypost.capabilities.schemas.forms import OPEN, Arguments
from waypost.errors import CallError, DefinitionError
from waypost.wire.content import CONTENT_TYPES, Block
from waypost.wire.definitions import PromptArgument, PromptDefinition


class PromptMessage(msgspec.Struct):
    """One message of a prompt."""

    role: str
    content: Block | dict[str, Any]


class Prompt(Component):
    """A prompt: its fields are the arguments, `messages` writes it."""

    _entry: ClassVar[str] = "messages"

    def _capability(self) -> Capability:
        return _prompt(self.component_name(), self._options, self._body(), self._fields)


def prompt_from_function(function: Callable[..., Any], options: Options) -> Capability:
    """The prompt of a function; its parameters are the arguments."""
    name = function.__name__ if options.name is UNSET else options.name

    def build() -> Capability:
        shape = inspect_shape(function, declared=None, skip_self=False)
        return _prompt(check_name(name), options, shape.body(function, options), _fields_of(function, shape.arguments))

    made: Capability = name_in_errors(f"Prompt {name!r}", build)
    return made


def _fields_of(function: Callable[..., Any], arguments: Arguments) -> list[tuple[str, Any, Any]]:
    known = resolve_hints(function)
    parameters = inspect.signature(function).parameters.values()
    defaults = {one.name: signatures.MISSING if one.default is one.empty else one.default for one in parameters}
    named = [name for name in arguments.schema.get("properties", {}) if name in defaults]
    return [(name, known.get(name, str), defaults[name]) for name in named]


def _prompt(name: str, options: Options, body: Body, fields: Sequence[tuple[str, Any, Any]]) -> Capability:
    properties: Mapping[str, Any] = body.arguments.schema.get("properties", {})
    listed = [
        PromptArgument(
            field,
            description=properties.get(field, {}).get("description", UNSET),
            required=True if default is signatures.MISSING else UNSET,
        )
        for field, _, default in fields
    ]
    return Capability(
        kind=Kind.PROMPT,
        id=name,
        definition=PromptDefinition(name, arguments=listed or UNSET, **options.definition(body.description)),
        handler=body.handler,
        is_async=body.is_async,
        arguments=OPEN if not fields else TextArguments(body.arguments),
        owner=body.owner,
        mcp=McpFeatures(
            choices={field: offered for field, annotation, _ in fields if (offered := list_choices(annotation))}
        ),
        **options.traits(body.arity),
    )


def to_messages(value: Any) -> list[PromptMessage]:
    """The messages for the value that a prompt returned; text without a role is the user's."""
    parts = list(value) if isinstance(value, (list, tuple)) else [value]
    return [_message(part) for part in parts]


def _message(part: Any) -> PromptMessage:
    if isinstance(part, PromptMessage):
        return part
    if isinstance(part, (str, *CONTENT_TYPES)):
        return PromptMessage("user", as_block(part))
    if isinstance(part, Mapping) and part.get("role") in ("user", "assistant") and "content" in part:
        return PromptMessage(part["role"], _content(part["content"]))
    raise DefinitionError(
        "A prompt returns text, content blocks, or messages with a role (user or assistant) and content."
    )


def _content(content: Any) -> Block | dict[str, Any]:
    if isinstance(content, (str, *CONTENT_TYPES)):
        return as_block(content)
    members = _MEMBERS.get(str(content.get("type"))) if isinstance(content, Mapping) else None
    if members is None or not members <= content.keys():
        raise DefinitionError("A prompt returns messages whose content is text or one content block.")
    return dict(content)


_MEMBERS: Final = {
    "text": {"text"},
    "image": {"data", "mimeType"},
    "audio": {"data", "mimeType"},
    "resource_link": {"uri", "name"},
    "resource": {"resource"},
}
"""What a content block that is written as a mapping must have, by its type."""


def prompt_from_template(
    name: str,
    template: str,
    *,
    title: str | None = None,
    description: str | None,
    arguments: Sequence[tuple[str, str | None, bool]] = (),
) -> Capability:
    """A prompt from a Jinja2 template; each argument has a name, a description and whether it is required."""
    fields = {
        argument: {"type": "string", "required": required, **({"description": text} if text else {})}
        for argument, text, required in arguments
    }
    body = Body(
        forms.declared(fields, raw=False) if fields else OPEN,
        lambda values, _: _render(name, template, values),
        arity=2,
        is_async=False,
        description=description,
    )
    typed = [(argument, str, signatures.MISSING if required else None) for argument, _, required in arguments]
    return _prompt(check_name(name), Options(title=title), body, typed)


def _render(name: str, template: str, values: Mapping[str, Any]) -> str:
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    # Values are untrusted data: they are inserted as they are and never rendered as templates themselves.
    environment = ImmutableSandboxedEnvironment(optimized=False, keep_trailing_newline=True)
    try:
        return environment.from_string(template).render(values)
    except Exception as error:  # a template can go wrong in every way that an expression can
        reason = str(error).rstrip(".") or type(error).__name__
        raise CallError(f"The prompt {name} cannot be rendered: {reason}.") from None
