"""`Resource`: something to read at a URI, or at every URI that fits a template; and resources from functions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, cast
from urllib.parse import quote, unquote_to_bytes

import msgspec
from msgspec import UNSET

from waypost.capabilities.capability import (
    Capability,
    Kind,
    McpFeatures,
    Options,
    ResourceOptions,
    check_name,
    name_in_errors,
)
from waypost.capabilities.components import Body, Component, TextArguments, inspect_shape, list_choices
from waypost.capabilities.results import encode_json, to_plain
from waypost.capabilities.schemas.forms import Arguments
from waypost.errors import DefinitionError
from waypost.suggestions import did_you_mean
from waypost.wire.content import Annotations, BlobContents, Contents, EmbeddedResource, TextContents, contents
from waypost.wire.definitions import ResourceDefinition, TemplateDefinition

_EXPRESSION: Final = re.compile(r"\{([^{}]*)\}")
_VARIABLE: Final = re.compile(r"([+#]?)([A-Za-z_][A-Za-z0-9_]*)")
_CHARACTER: Final = {"": "[^/?#]", "+": ".", "#": "."}
_RESERVED: Final = "-._~:/?#[]@!$&'()*+,;="
_UNQUOTED: Final = {"": "-._~", "+": _RESERVED, "#": _RESERVED}
MAX_URI_CHARACTERS: Final = 8192
"""A longer URI matches no template."""

_MAX_BACKTRACKED_CHARACTERS: Final = 1024
_SEPARATOR: Final = re.compile("[/?#]")
_ENCODED_TWICE: Final = re.compile(r"%25([0-9A-Fa-f]{2})")


class UriTemplate:
    """A template that can be filled in, and matched against a URI to get its variables back."""

    def __init__(self, template: str) -> None:
        self.template = template
        self._parts: list[tuple[str, str, str]] = []
        position = 0
        for expression in _EXPRESSION.finditer(template):
            literal = self._literal(template[position : expression.start()])
            if not literal and self._parts and not expression[1].startswith("#"):
                raise DefinitionError(
                    f"URI template {template!r} has two variables side by side; put something between."
                )
            self._parts.append((literal, *self._variable(expression[1])))
            position = expression.end()
        self._tail = self._literal(template[position:])
        self._pattern = re.compile(self._regex(), re.DOTALL)
        self._max_characters = MAX_URI_CHARACTERS if self._is_linear() else _MAX_BACKTRACKED_CHARACTERS
        self.variables = tuple(name for _, _, name in self._parts)
        if len(set(self.variables)) != len(self.variables):
            raise DefinitionError(f"URI template {template!r} uses a variable twice.")

    def _regex(self) -> str:
        """A pattern that hardly backtracks: only the last reserved variable may contain the literal that follows it."""
        greedy = max((index for index, (_, operator, _) in enumerate(self._parts) if operator), default=-1)
        following = [re.escape(literal) or operator for literal, operator, _ in self._parts[1:]]
        pattern = ""
        for index, (literal, operator, _) in enumerate(self._parts):
            character = _CHARACTER[operator]
            if index < len(following) and index != greedy:
                character = f"(?:(?!{following[index]}){character})"
            pattern += re.escape(literal) + (f"(?:#({character}+))?" if operator == "#" else f"({character}+)")
        return pattern + re.escape(self._tail)

    def _is_linear(self) -> bool:
        """Return whether matching takes time linear in the URI.

        The last reserved variable may end wherever the literal behind it stands, and from each of these places the
        next variable reads on to a separator: unless that literal has one itself, this is the square of the length.
        """
        reserved = [index for index, (_, operator, _) in enumerate(self._parts) if operator]
        behind = self._parts[reserved[-1] + 1 :] if reserved else []
        return not behind or _SEPARATOR.search(behind[0][0]) is not None

    def _literal(self, text: str) -> str:
        if "{" in text or "}" in text:
            raise DefinitionError(f"URI template {self.template!r} has an unbalanced brace.")
        return text

    def _variable(self, expression: str) -> tuple[str, str]:
        found = _VARIABLE.fullmatch(expression)
        if found is None:
            raise DefinitionError(
                f"URI template {self.template!r}: {{{expression}}} is unknown; use {{name}}, {{+name}} or {{#name}}."
            )
        return found[1], found[2]

    def match(self, uri: str) -> dict[str, str] | None:
        """The variables that give `uri`, percent-decoded; `None` if no values do."""
        # Both before the pattern, whose time grows with the length, for templates with several variables by its square.
        if len(uri) > self._max_characters or not uri.endswith(self._tail):
            return None
        found = self._pattern.fullmatch(uri)
        if found is None:
            return None
        try:
            return {
                name: unquote_to_bytes(value or "").decode()
                for name, value in zip(self.variables, found.groups(), strict=True)
            }
        except UnicodeError:  # not UTF-8, or half of a surrogate pair
            return None

    def expand(self, **variables: str) -> str:
        """The URI for these values."""
        filled = []
        for literal, operator, name in self._parts:
            value = quote(variables.get(name, ""), safe=_UNQUOTED[operator])
            # A reserved value may be encoded already, and `quote` has encoded its `%` once more.
            if operator:
                value = _ENCODED_TWICE.sub(r"%\1", value)
            filled.append(literal + ("#" if operator == "#" and value else "") + value)
        return "".join(filled) + self._tail


class Resource(Component):
    """A resource: `read` gives its contents; the variables of a template become attributes."""

    _entry: ClassVar[str] = "read"
    _options_type: ClassVar[type[Options]] = ResourceOptions

    def _capability(self) -> Capability:
        options = cast("ResourceOptions", self._options)
        choices = {name: offered for name, annotation, _ in self._fields if (offered := list_choices(annotation))}
        return _resource(self.component_name(), options, self._body(), choices)

    def _attributes(self, _arguments: Arguments) -> None:
        """All: a URI gives values to the variables of the template and to nothing else."""


def resource_from_function(function: Callable[..., Any], uri: str, options: ResourceOptions) -> Capability:
    """The resource that `function` reads; with variables in `uri` it is a template and they are its parameters."""
    name = function.__name__ if options.name is UNSET else options.name
    place = {"uri_template": uri} if "{" in uri else {"uri": uri}

    def build() -> Capability:
        shape = inspect_shape(function, declared=None, skip_self=False)
        placed = msgspec.structs.replace(options, **place)
        return _resource(check_name(name), placed, shape.body(function, options), {})

    made: Capability = name_in_errors(f"Resource {name!r}", build)
    return made


def _resource(name: str, options: ResourceOptions, body: Body, choices: dict[str, tuple[str, ...]]) -> Capability:
    if (options.uri is None) == (options.uri_template is None):
        raise DefinitionError("give it either a uri or a uri_template.")
    template = None if options.uri_template is None else UriTemplate(options.uri_template)
    if template is not None:
        missing = set(body.arguments.schema.get("required", ())) - set(template.variables)
        if missing:
            raise DefinitionError(f"{template.template} does not give {', '.join(sorted(missing))}.")
    common = options.definition(body.description) | {
        "mime_type": options.mime_type or UNSET,
        "annotations": UNSET if options.annotations is None else _annotations(options.annotations),
    }
    definition: ResourceDefinition | TemplateDefinition
    if template is None:
        size = UNSET if options.size is None else options.size
        definition = ResourceDefinition(options.uri or "", name, size=size, **common)
    else:
        definition = TemplateDefinition(template.template, name, **common)
    return Capability(
        kind=Kind.RESOURCE if template is None else Kind.TEMPLATE,
        id=options.uri or options.uri_template or "",
        definition=definition,
        handler=body.handler,
        is_async=body.is_async,
        arguments=TextArguments(body.arguments),
        owner=body.owner,
        mcp=McpFeatures(template=template, subscribable=options.subscribable, choices=choices),
        **options.traits(body.arity),
    )


def _annotations(given: Mapping[str, Any]) -> Annotations:
    """Annotations by their Python names or their wire names."""
    for key in given:
        if key not in _WIRE_NAMES and key not in _WIRE_NAMES.values():
            raise DefinitionError(f"unknown annotation {key!r}{did_you_mean(key, _WIRE_NAMES, ', ') or '.'}")
    try:
        made = msgspec.convert({_WIRE_NAMES.get(key, key): value for key, value in given.items()}, Annotations)
    except msgspec.ValidationError as error:
        raise DefinitionError(f"its annotations are wrong: {error}.") from None
    if not 0 <= (made.priority or 0) <= 1:
        raise DefinitionError(f"the annotation priority must be a number from 0 to 1, not {made.priority:g}.")
    if not {"user", "assistant"}.issuperset(made.audience or ()):
        raise DefinitionError("the annotation audience must be a list of 'user' and 'assistant'.")
    return made


_WIRE_NAMES: Final = dict(zip(Annotations.__struct_fields__, Annotations.__struct_encode_fields__, strict=True))


def to_contents(value: Any, uri: str, mime_type: str | None) -> list[Contents]:
    """The contents for the value that a resource returned; an `EmbeddedResource` is used unchanged."""
    parts = list(value) if isinstance(value, (list, tuple)) else [value]
    if parts and all(isinstance(part, (TextContents, BlobContents, EmbeddedResource)) for part in parts):
        return [part.block().resource if isinstance(part, EmbeddedResource) else part for part in parts]
    if isinstance(value, (str, bytes)):
        return [contents(uri, value, mime_type)]
    if value is None:
        return [contents(uri, "", mime_type)]
    return [contents(uri, encode_json(to_plain(value)).decode(), mime_type or "application/json")]
