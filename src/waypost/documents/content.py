"""Markdown skills and prompts: registered, listed, read, and offered as resources and prompts of the hub."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET

from waypost.capabilities.capability import Capability, Kind, McpFeatures
from waypost.capabilities.context import Context
from waypost.capabilities.options import Metadata
from waypost.capabilities.resources import MAX_URI_CHARACTERS, UriTemplate
from waypost.documents.ports import Asker, Data, NotThere, Trigger, refused, size
from waypost.documents.records import Argument, Prompt, Skill, now
from waypost.documents.stores import Collection, ask
from waypost.documents.uris import (
    INDEX,
    INDEX_URI,
    SCHEME,
    SECTION,
    Index,
    Section,
    check_arguments,
    check_body,
    check_id,
    check_name,
    check_new_id,
    check_readable,
    dead_links,
    parse,
    skill_uri,
)
from waypost.errors import UnknownPrompt, UnknownResource, WaypostError, shorten
from waypost.wire.content import TextContents
from waypost.wire.definitions import PromptArgument, PromptDefinition, ResourceDefinition, TemplateDefinition
from waypost.workers.functions import is_internal

MARKDOWN: Final = "text/markdown"
JSON: Final = "application/json"
SHORT: Final = 140
_HEAD: Final = "# Skills\n\n"
_INTRODUCTION: Final = (
    "Read each skill's resource for orientation on when and why to call its functions. "
    "Sub-skills are indented under their parent path so a top-level skill stays small and the LLM can drill in only "
    "when it needs more detail.\n\n"
)
_NONE: Final = "_No skills are currently registered._\n"
_LINE: Final = re.compile(r"[^\n]*\n?")


class Rendered(NamedTuple):
    """A text and what it is written in."""

    mime_type: str
    text: str


def find_title(body: str) -> str | None:
    """The first heading of the first level."""
    for line in _lines(body):
        if line.startswith("# ") and (found := line[2:].strip()):
            return found
    return None


def find_description(body: str) -> str | None:
    """The first paragraph, on one line."""
    paragraph: list[str] = []
    for line in _lines(body):
        if line and not line.startswith("#"):
            paragraph.append(line)
        elif paragraph:
            break
    return " ".join(paragraph) or None


def _lines(body: str) -> Iterator[str]:
    """The lines of a text, trimmed; a long text is not taken apart further than it is read."""
    return (found[0].strip() for found in _LINE.finditer(body))


def truncate(text: str, most: int = SHORT) -> str:
    """A text of so many characters at most, and dots where there was more."""
    return text if len(text) <= most else f"{text[:most]}..."


def render_index(skills: Iterable[tuple[str, str]]) -> str:
    """The index of skills given as id and body."""
    rows = [_row(skill_id, body) for skill_id, body in sorted(skills)]
    return f"{_HEAD}{_INTRODUCTION}{''.join(rows) or _NONE}"


def broken_index(problem: str) -> str:
    """What stands in for the index where it cannot be made."""
    return f"{_HEAD}_Error reading skills index: {problem}_\n"


def _row(skill_id: str, body: str) -> str:
    told = find_description(body)
    about = "" if told is None else f" — {truncate(told)}"
    indent = "  " * skill_id.count("/")
    return f"{indent}- [`{skill_id}`]({skill_uri(skill_id)}) — {find_title(body) or skill_id}{about}\n"


def render_output(output: Any) -> Rendered:
    """What a function answered, to be read."""
    if isinstance(output, str):
        return Rendered(MARKDOWN, output)
    if isinstance(output, dict) and isinstance(output.get("content"), str):
        return Rendered(MARKDOWN, output["content"])
    return Rendered(JSON, msgspec.json.format(msgspec.json.encode(output), indent=2).decode())


INDEX_ENTRY: Final[Data] = {
    "uri": INDEX_URI,
    "name": INDEX,
    "description": "Index of every registered skill",
    "mimeType": MARKDOWN,
}
TEMPLATES: Final[tuple[Data, ...]] = (
    {
        "uriTemplate": "iii://{skill_id}",
        "name": "Skill",
        "description": "The markdown of a registered skill; the id may have several segments, as in a/b/c.",
        "mimeType": MARKDOWN,
    },
    {
        "uriTemplate": "iii://fn/{function_path}",
        "name": "Skill section",
        "description": "What a function answers when it is run without arguments; a/b/c runs a::b::c.",
        "mimeType": MARKDOWN,
    },
)
_LOOKING: Final = 1.0
"""Seconds to look for links that lead nowhere; whoever registers waits for it."""
_log: Final = logging.getLogger(__name__)


class Skills:
    """Every skill, and what reading a URI comes to."""

    def __init__(self, kept: Collection[Skill], trigger: Trigger, within: float) -> None:
        self._kept = kept
        self._trigger = trigger
        self._within = within

    async def register(self, skill_id: str, body: str, owner: str = "") -> Data:
        """Publish a text, in the place of what was there; links in it that lead nowhere are told."""
        check_new_id(skill_id)
        check_body(body)
        skill = Skill(skill_id, body, now(), owner or None)
        await self._kept.put(skill, owner)
        answer: Data = {"id": skill_id, "registered_at": skill.registered_at}
        if warnings := await self._warnings(skill):
            _log.info("links of the skill %s that lead nowhere: %s", skill_id, "; ".join(warnings))
            answer["warnings"] = warnings
        return answer

    async def _warnings(self, skill: Skill) -> list[str]:
        try:
            async with asyncio.timeout(_LOOKING):
                return await dead_links(skill.id, skill.skill, self._is_known)
        except (WaypostError, TimeoutError):
            return []  # it is registered all the same

    async def _is_known(self, skill_id: str) -> bool:
        return await self._kept.find(skill_id) is not None

    async def unregister(self, skill_id: str, owner: str = "") -> Data:
        """Publish a skill no more."""
        check_id(skill_id)
        return {"id": skill_id, "removed": await self._kept.remove(skill_id, owner)}

    async def list(self, by: Asker = None) -> Data:
        """What there is, without the texts."""
        return {"skills": [self._row(skill) for skill in await self._kept.shown(by)]}

    def _row(self, skill: Skill) -> Data:
        row = {"id": skill.id, "bytes": size(skill.skill), "registered_at": skill.registered_at}
        return {**row, **self._kept.owners.told(skill)}

    async def resources(self, by: Asker = None) -> Data:
        """What `resources/list` shows; only the index where the shelf cannot be read."""
        try:
            skills = await self._kept.shown(by)
        except WaypostError as error:
            _log.warning("skills cannot be listed: %s", error.message)
            skills = []
        index = [INDEX_ENTRY] if self._kept.access.shows_all([INDEX_URI], by) else []
        standing = (skill for skill in skills if skill.id != INDEX and self._kept.stands(skill.id))
        return {"resources": [*index, *map(to_resource_entry, standing)]}

    def templates(self, by: Asker = None) -> Data:
        """What `resources/templates/list` shows."""
        shows = self._kept.access.shows_all
        return {"resourceTemplates": [one for one in TEMPLATES if shows([one["uriTemplate"]], by)]}

    async def read(self, uri: str, by: Asker = None) -> Data:
        """What `resources/read` answers for a URI."""
        mime_type, text = await self.rendered(uri, by)
        return {"contents": [{"uri": uri, "mimeType": mime_type, "text": text}]}

    async def rendered(self, uri: str, by: Asker = None) -> Rendered:
        """What is read at a URI."""
        target = parse(uri)
        if isinstance(target, Index):
            return Rendered(MARKDOWN, await self.index(by))
        if isinstance(target, Section):
            return render_output(await self._section(target.function_id, by))
        check_readable(target.id)
        skill = await self._kept.find(target.id)
        if skill is None:
            raise NotThere(f"Skill not found: {target.id}{await self._kept.hint(target.id, by)}")
        if skill.home:
            self._kept.access.admit("skills", skill.home, by)
        return Rendered(MARKDOWN, skill.skill)

    async def index(self, by: Asker = None) -> str:
        """The list of all skills that somebody finds, as a page."""
        try:
            return render_index((skill.id, skill.skill) for skill in await self._kept.shown(by))
        except WaypostError as error:
            return broken_index(error.message)

    async def _section(self, function_id: str, by: Asker) -> Any:
        if is_internal(function_id):
            raise refused(f"Function '{function_id}' is in an internal namespace and cannot back a skill resource")
        return await ask(self._trigger, function_id, {}, self._within, by)


def to_resource_entry(skill: Skill) -> Data:
    """A skill as `resources/list` shows it."""
    return {"uri": skill_uri(skill.id), "name": find_title(skill.skill) or skill.id, "mimeType": MARKDOWN}


_BETWEEN: Final = "\n\n---\n\n"


async def fetch(skills: Skills, uris: list[str], by: Asker = None) -> str:
    """All texts under headings that say where they are from; one that cannot be read fails the whole."""
    return _BETWEEN.join([f"# {uri}\n\n{(await skills.rendered(uri, by)).text.rstrip()}" for uri in uris])


def wanted_uris(uri: str | None, uris: list[str] | None) -> list[str]:
    """Which URIs are asked for: several, or else one."""
    given = uris or ([] if uri is None else [uri])
    wanted = [one for one in map(str.strip, given) if one]
    if not wanted:
        raise refused("Provide uri or a non-empty uris array")
    for one in wanted:
        if not one.startswith(SCHEME):
            raise refused(f"Invalid URI (must start with iii://): {shorten(one)}")
    return wanted


class Prompts:
    """Every prompt, and what writing one comes to."""

    def __init__(self, kept: Collection[Prompt], trigger: Trigger, within: float) -> None:
        self._kept = kept
        self._trigger = trigger
        self._within = within

    async def register(
        self,
        name: str,
        description: str,
        function_id: str,
        arguments: Sequence[Argument] = (),
        owner: str = "",
        namespace: str | None = None,
    ) -> Data:
        """Offer a prompt, in the place of what was there; whether its function exists is seen when it is used."""
        check_name(name)
        if not description.strip():
            raise refused("description must be non-empty")
        if not function_id.strip():
            raise refused("function_id must be non-empty")
        check_arguments(argument.name for argument in arguments)
        prompt = Prompt(name, description, list(arguments), function_id, now(), owner or None, namespace=namespace)
        await self._kept.put(prompt, owner)
        return {"name": name, "registered_at": prompt.registered_at}

    async def unregister(self, name: str, owner: str = "") -> Data:
        """Offer a prompt no more."""
        check_name(name)
        return {"name": name, "removed": await self._kept.remove(name, owner)}

    async def list(self, by: Asker = None) -> Data:
        """What there is, in short."""
        return {"prompts": [self._row(prompt) for prompt in await self._kept.shown(by)]}

    def _row(self, prompt: Prompt) -> Data:
        return {
            "name": prompt.name,
            "function_id": prompt.function_id,
            "arguments": len(prompt.arguments),
            "registered_at": prompt.registered_at,
            **self._kept.owners.told(prompt),
        }

    async def offered(self, by: Asker = None) -> Data:
        """What `prompts/list` shows."""
        shown = await self._kept.shown(by)
        return {"prompts": [_entry(prompt) for prompt in shown if self._kept.stands(prompt.name)]}

    async def left_out(self) -> Sequence[Data]:
        """What clients do not find, because the hub itself has others of the same names."""
        kept = [prompt for prompt in await self._kept.all() if not self._kept.stands(prompt.name)]
        return [{**_entry(prompt), **self._kept.owners.told(prompt)} for prompt in kept]

    async def get(self, name: str, arguments: Any = None, by: Asker = None) -> Data:
        """What `prompts/get` answers: the prompt, written with arguments that only its function checks."""
        prompt = await self._kept.find(name)
        if prompt is None:
            raise NotThere(f"Prompt not found: {shorten(name)}{await self._kept.hint(name, by)}")
        if not self._kept.stands(name):
            raise NotThere(f"Prompt not found: {name}; the hub itself has another of this name")
        function_id = prompt.function_id
        if is_internal(function_id):
            raise refused(f"Prompt handler '{function_id}' is in an internal namespace and cannot back a prompt")
        given = {} if arguments is None else arguments
        output = await ask(self._trigger, function_id, given, self._within, by, prompt.namespace)
        return {"description": prompt.description, "messages": messages(output)}


def messages(output: Any) -> list[Any]:
    """The messages of what a function answered."""
    if isinstance(output, str):
        return [_message(output)]
    if isinstance(output, dict):
        if isinstance(output.get("messages"), list):
            return list(output["messages"])
        if isinstance(output.get("content"), str):
            return [_message(output["content"])]
    raise refused("prompt handler returned unsupported shape; expected string, { content }, or { messages: [...] }")


def _message(text: str) -> Data:
    return {"role": "user", "content": {"type": "text", "text": text}}


def _entry(prompt: Prompt) -> Data:
    arguments = [_argument(argument) for argument in prompt.arguments]
    return {"name": prompt.name, "description": prompt.description, "arguments": arguments}


def _argument(argument: Argument) -> Data:
    told: Data = {"name": argument.name, "required": argument.required}
    return told if argument.description is None else {**told, "description": argument.description}


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
    about = truncate(find_description(skill.skill) or "", _FOUND_BY)
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
