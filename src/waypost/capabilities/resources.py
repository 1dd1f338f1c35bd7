"""`Resource`: something to read at a URI, or at every URI that fits a template; and resources from functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, cast

import msgspec
from msgspec import UNSET

from waypost.capabilities.capability import Capability, Kind
from waypost.capabilities.components import Component, choices
from waypost.capabilities.context import Handler
from waypost.capabilities.functions import description_of, inspect_shape, is_async
from waypost.capabilities.naming import check_name
from waypost.capabilities.options import Options, ResourceOptions, named
from waypost.capabilities.results import encode_json, plain
from waypost.capabilities.schemas.forms import Arguments
from waypost.capabilities.text_arguments import TextArguments
from waypost.capabilities.uri_templates import UriTemplate
from waypost.errors import DefinitionError
from waypost.suggestions import did_you_mean
from waypost.wire.content import Annotations, BlobContents, Contents, EmbeddedResource, TextContents, contents
from waypost.wire.definitions import ResourceDefinition, TemplateDefinition


class Resource(Component):
    """A resource: `read` gives its contents; the variables of a template become attributes."""

    _entry: ClassVar[str] = "read"
    _options_type: ClassVar[type[Options]] = ResourceOptions

    def _capability(self) -> Capability:
        cls = type(self)
        handler, arity = self._handler()
        return _resource(
            self.component_name(),
            cast("ResourceOptions", cls._options),
            arguments=self._arguments(),
            handler=handler,
            arity=arity,
            asynchronous=is_async(getattr(cls, self._entry)),
            description=description_of(cls, cls._options),
            owner=cls.__name__,
            offered={name: offered for name, annotation, _ in cls._fields if (offered := choices(annotation))},
        )


def resource_from_function(function: Callable[..., Any], uri: str, options: ResourceOptions) -> Capability:
    """The resource that `function` reads; with variables in `uri` it is a template and they are its parameters."""
    name = function.__name__ if options.name is UNSET else options.name
    place = {"uri_template": uri} if "{" in uri else {"uri": uri}

    def build() -> Capability:
        shape = inspect_shape(function, declared=None, skip_self=False)
        return _resource(
            check_name(name),
            msgspec.structs.replace(options, **place),
            arguments=shape.arguments,
            handler=shape.handler(function),
            arity=shape.arity,
            asynchronous=is_async(function),
            description=description_of(function, options),
        )

    made: Capability = named(f"Resource {name!r}", build)
    return made


def _resource(
    name: str,
    options: ResourceOptions,
    *,
    arguments: Arguments,
    handler: Handler,
    arity: int,
    asynchronous: bool,
    description: str | None,
    owner: str | None = None,
    offered: dict[str, tuple[str, ...]] | None = None,
) -> Capability:
    if (options.uri is None) == (options.uri_template is None):
        raise DefinitionError("give it either a uri or a uri_template.")
    template = None if options.uri_template is None else UriTemplate(options.uri_template)
    if template is not None:
        _check_variables(template, arguments.schema)
    common = options.definition(description) | {
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
        handler=handler,
        is_async=asynchronous,
        arity=arity,
        arguments=TextArguments(arguments),
        owner=owner,
        template=template,
        subscribable=options.subscribable,
        choices=offered or {},
        **options.traits(),
    )


def _annotations(given: Mapping[str, Any]) -> Annotations:
    """Annotations from their names here or on the wire."""
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


def _check_variables(template: UriTemplate, schema: Mapping[str, Any]) -> None:
    missing = set(schema.get("required", ())) - set(template.variables)
    if missing:
        raise DefinitionError(f"{template.template} does not give {', '.join(sorted(missing))}.")


def as_contents(value: Any, uri: str, mime_type: str | None) -> list[Contents]:
    """The contents for whatever a resource returned; an `EmbeddedResource` is ready-made contents."""
    parts = list(value) if isinstance(value, (list, tuple)) else [value]
    if parts and all(isinstance(part, (TextContents, BlobContents, EmbeddedResource)) for part in parts):
        return [part.block().resource if isinstance(part, EmbeddedResource) else part for part in parts]
    if isinstance(value, (str, bytes)):
        return [contents(uri, value, mime_type)]
    if value is None:
        return [contents(uri, "", mime_type)]
    return [contents(uri, encode_json(plain(value)).decode(), mime_type or "application/json")]
