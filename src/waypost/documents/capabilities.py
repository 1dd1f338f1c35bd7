"""Skills and prompts as clients of the hub see them: resources, resource templates and prompts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import msgspec
from msgspec import UNSET

from waypost.capabilities.capability import Capability, Kind, McpFeatures
from waypost.capabilities.context import Context
from waypost.capabilities.options import Metadata
from waypost.capabilities.resources import MAX_URI_CHARACTERS, UriTemplate
from waypost.documents import markdown
from waypost.documents.markdown import INDEX_ENTRY, TEMPLATES, Skills, to_resource_entry
from waypost.documents.ports import Data, NotThere
from waypost.documents.prompts import Prompts
from waypost.documents.records import Prompt, Skill
from waypost.documents.uris import SCHEME, SECTION, skill_uri
from waypost.errors import UnknownPrompt, UnknownResource
from waypost.wire.content import TextContents
from waypost.wire.definitions import PromptArgument, PromptDefinition, ResourceDefinition, TemplateDefinition

_SECTIONS: Final = f"{SCHEME}{SECTION}/"
_FOUND_BY: Final = 500
"""Characters of a skill's first paragraph that it is found by."""


class Whole(UriTemplate):
    """Matches URIs by how they begin and leaves them whole: these are neither encoded nor of one segment."""

    def __init__(self, template: str, fits: Callable[[str], bool]) -> None:
        super().__init__(template)
        self._fits = fits

    def match(self, uri: str) -> dict[str, str] | None:
        """The URI itself."""
        return {"uri": uri} if len(uri) <= MAX_URI_CHARACTERS and self._fits(uri) else None


def standing_rows(skills: Skills) -> list[Capability]:
    """What is there whatever is registered: the index and the two templates."""
    skill, section = TEMPLATES
    return [
        _resource(INDEX_ENTRY, skills),
        _template(skill, skills, lambda uri: uri.startswith(SCHEME) and not uri.startswith(_SECTIONS)),
        _template(section, skills, lambda uri: uri.startswith(_SECTIONS)),
    ]


def skill_row(skill: Skill, skills: Skills) -> Capability:
    """A skill as a resource."""
    row = _resource(to_resource_entry(skill), skills, skill.owner)
    about = markdown.truncate(markdown.find_description(skill.skill) or "", _FOUND_BY)
    return replace(row, metadata=Metadata(about=about))


def prompt_row(prompt: Prompt, prompts: Prompts) -> Capability:
    """A prompt as a prompt of the hub."""

    async def write(arguments: Data, context: Context) -> Any:
        try:
            return (await prompts.get(prompt.name, arguments, context))["messages"]
        except NotThere as error:
            raise UnknownPrompt(error.message) from None

    arguments = [
        PromptArgument(one.name, description=one.description or UNSET, required=one.required)
        for one in prompt.arguments
    ]
    return Capability(
        kind=Kind.PROMPT,
        id=prompt.name,
        definition=PromptDefinition(prompt.name, description=prompt.description, arguments=arguments),
        handler=write,
        is_async=True,
        owner=prompt.owner,
    )


def row_id(kind: str, name: str) -> tuple[Kind, str]:
    """Where the row of a skill or prompt stands in the registry."""
    return (Kind.RESOURCE, skill_uri(name)) if kind == "skills" else (Kind.PROMPT, name)


def _resource(told: Data, skills: Skills, owner: str | None = None) -> Capability:
    uri = told["uri"]

    async def read(_: Data, context: Context) -> list[TextContents]:
        return await _contents(skills, uri, context)

    return Capability(
        kind=Kind.RESOURCE,
        id=uri,
        definition=msgspec.convert(told, ResourceDefinition),
        handler=read,
        is_async=True,
        owner=owner,
        mcp=McpFeatures(subscribable=True),
    )


def _template(told: Data, skills: Skills, fits: Callable[[str], bool]) -> Capability:
    async def read(given: Data, context: Context) -> list[TextContents]:
        return await _contents(skills, given["uri"], context)

    return Capability(
        kind=Kind.TEMPLATE,
        id=told["uriTemplate"],
        definition=msgspec.convert(told, TemplateDefinition),
        handler=read,
        is_async=True,
        mcp=McpFeatures(template=Whole(told["uriTemplate"], fits), subscribable=True),
    )


async def _contents(skills: Skills, uri: str, context: Context) -> list[TextContents]:
    try:
        mime_type, text = await skills.rendered(uri, context)
    except NotThere as error:
        raise UnknownResource(uri, error.message) from None
    return [TextContents(uri, text, mime_type)]
