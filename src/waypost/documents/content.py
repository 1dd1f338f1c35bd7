"""Markdown skills and prompts: registered, listed, read, and offered as resources and prompts of the hub."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET

from waypost.capabilities.capability import Capability, Kind, McpFeatures, Metadata, Unknown
from waypost.capabilities.context import Caller, Context, Handler
from waypost.capabilities.resources import MAX_URI_CHARACTERS, UriTemplate
from waypost.documents import uris
from waypost.documents.records import Argument, Asker, Data, Prompt, Skill, Trigger, now
from waypost.documents.stores import Collection, call_function
from waypost.documents.uris import INDEX, INDEX_URI, SCHEME, NotThere, refused, size, skill_uri
from waypost.errors import UnknownCapability, UnknownPrompt, UnknownResource, WaypostError, shorten
from waypost.loops import KeyLocks
from waypost.settings import Limits, Server
from waypost.wire.content import TextContents
from waypost.wire.definitions import PromptArgument, PromptDefinition, ResourceDefinition, TemplateDefinition
from waypost.workers.frames import function_not_found
from waypost.workers.functions import DEFAULT, Call, is_internal

MARKDOWN: Final = "text/markdown"
JSON: Final = "application/json"
MAX_SUMMARY_CHARACTERS: Final = 140
_HEAD: Final = "# Skills\n\n"
_INTRODUCTION: Final = (
    "Read each skill's resource for orientation on when and why to call its functions. "
    "Sub-skills are indented under their parent path so a top-level skill stays small and the LLM can drill in only "
    "when it needs more detail.\n\n"
)
_NONE: Final = "_No skills are currently registered._\n"
_LINE: Final = re.compile(r"[^\n]*\n?")


class Rendered(NamedTuple):
    """A text and its media type."""

    mime_type: str
    text: str


def find_title(body: str) -> str | None:
    """Return the first heading of the first level."""
    for line in _lines(body):
        if line.startswith("# ") and (found := line[2:].strip()):
            return found
    return None


def find_description(body: str) -> str | None:
    """Return the first paragraph, on one line."""
    paragraph: list[str] = []
    for line in _lines(body):
        if line and not line.startswith("#"):
            paragraph.append(line)
        elif paragraph:
            break
    return " ".join(paragraph) or None


def _lines(body: str) -> Iterator[str]:
    """Yield the trimmed lines of a text; lazily, because only the beginning of a long text is read."""
    return (found[0].strip() for found in _LINE.finditer(body))


def truncate(text: str, max_characters: int = MAX_SUMMARY_CHARACTERS) -> str:
    """Return the beginning of a text, with dots where it was cut."""
    return text if len(text) <= max_characters else f"{text[:max_characters]}..."


def render_index(skills: Iterable[tuple[str, str]]) -> str:
    """Return the index of skills given as id and body."""
    rows = [_row(skill_id, body) for skill_id, body in sorted(skills)]
    return f"{_HEAD}{_INTRODUCTION}{''.join(rows) or _NONE}"


def broken_index(problem: str) -> str:
    """Return the text in place of an index that cannot be read."""
    return f"{_HEAD}_Error reading skills index: {problem}_\n"


def _row(skill_id: str, body: str) -> str:
    found = find_description(body)
    about = "" if found is None else f" — {truncate(found)}"
    indent = "  " * skill_id.count("/")
    return f"{indent}- [`{skill_id}`]({skill_uri(skill_id)}) — {find_title(body) or skill_id}{about}\n"


def render_output(output: Any) -> Rendered:
    """Return a function's answer as text."""
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
_LINK_CHECK_TIMEOUT_S: Final = 1.0
"""How long a registration waits for the check of its links."""
_log: Final = logging.getLogger(__name__)


class Skills:
    """Registers, lists and reads Markdown skills."""

    def __init__(self, collection: Collection[Skill], trigger: Trigger, within: float) -> None:
        self.collection = collection
        self.large_fetches = KeyLocks()
        """One at a time for each worker and principal."""
        self._trigger = trigger
        self._within = within

    async def register(self, skill_id: str, body: str, owner: str = "") -> Data:
        """Publish a skill over any earlier one; dead links, and another owner of that, are returned as warnings."""
        uris.check_new_id(skill_id)
        uris.check_body(body)
        skill = Skill(skill_id, body, now(), owner or None)
        replaced = await self.collection.put(skill, owner)
        answer: Data = {"id": skill_id, "registered_at": skill.registered_at}
        warnings = await self._check_links(skill)
        if warnings:
            _log.info("the skill %s has dead links: %s", skill_id, "; ".join(warnings))
        if replaced:
            warnings.append(f"it replaces the skill of {replaced}")
        if warnings:
            answer["warnings"] = warnings
        return answer

    async def _check_links(self, skill: Skill) -> list[str]:
        try:
            async with asyncio.timeout(_LINK_CHECK_TIMEOUT_S):
                return await uris.find_dead_links(skill.id, skill.skill, self.collection.exists)
        except (WaypostError, TimeoutError):
            return []  # the registration succeeded without the check

    async def unregister(self, skill_id: str, owner: str = "") -> Data:
        """Remove a skill."""
        uris.check_id(skill_id)
        return {"id": skill_id, "removed": await self.collection.remove(skill_id, owner)}

    async def list(self, by: Asker = None) -> Data:
        """Return all skills without their bodies."""
        return {"skills": [self._row(skill) for skill in await self.collection.list_visible(by)]}

    def _row(self, skill: Skill) -> Data:
        row = {"id": skill.id, "bytes": size(skill.skill), "registered_at": skill.registered_at}
        return {**row, **self.collection.owners.describe(skill)}

    async def resources(self, by: Asker = None) -> Data:
        """Return the envelope of `resources/list`; only the index where the store cannot be read."""
        try:
            skills = await self.collection.list_visible(by)
        except WaypostError as error:
            _log.warning("skills cannot be listed: %s", error.message)
            skills = []
        index = [INDEX_ENTRY] if self.collection.access.shows_all([INDEX_URI], by) else []
        visible = (skill for skill in skills if skill.id != INDEX and self.collection.is_visible(skill.id))
        return {"resources": [*index, *map(to_resource_entry, visible)]}

    def templates(self, by: Asker = None) -> Data:
        """Return the envelope of `resources/templates/list`."""
        shows = self.collection.access.shows_all
        return {"resourceTemplates": [one for one in TEMPLATES if shows([one["uriTemplate"]], by)]}

    async def read(self, uri: str, by: Asker = None) -> Data:
        """Return the envelope of `resources/read`."""
        mime_type, text = await self.render(uri, by)
        return {"contents": [{"uri": uri, "mimeType": mime_type, "text": text}]}

    async def render(self, uri: str, by: Asker = None) -> Rendered:
        """Return the text at a URI."""
        target = uris.parse(uri)
        if isinstance(target, uris.Index):
            return Rendered(MARKDOWN, await self.index(by))
        if isinstance(target, uris.Section):
            if is_internal(target.function_id):
                name = target.function_id
                raise refused(f"Function '{name}' is in an internal namespace and cannot back a skill resource")
            return render_output(await call_function(self._trigger, target.function_id, {}, self._within, by))
        uris.check_readable(target.id)
        skill = await self.collection.find(target.id)
        if skill is None:
            raise await self.not_found(uri, by)
        # A skill of a folder also has a URI there. A rule about that one must not be evaded by asking for this one.
        if skill.source_uri:
            await self.admit(skill.source_uri, by, uri)
        return Rendered(MARKDOWN, skill.skill)

    async def admit(self, uri: str, by: Asker, asked: str = "") -> None:
        """Refuse a caller that may not read a URI; what a rule hides is not found, under the URI that was asked for."""
        try:
            self.collection.access.admit("skills", uri, by)
        except UnknownCapability:
            raise await self.not_found(asked or uri, by) from None

    async def not_found(self, uri: str, by: Asker) -> NotThere:
        """Return the error for a URI at which there is nothing that the caller may see."""
        target = uris.parse(uri)
        if isinstance(target, uris.Section):
            return NotThere(
                f"trigger {shorten(target.function_id)}: {function_not_found(target.function_id, DEFAULT).message}"
            )
        name = "skills" if isinstance(target, uris.Index) else target.id
        return NotThere(f"Skill not found: {name}{await self.collection.hint(name, by)}")

    async def index(self, by: Asker = None) -> str:
        """Return the index of all skills that the caller may see."""
        try:
            return render_index((skill.id, skill.skill) for skill in await self.collection.list_visible(by))
        except WaypostError as error:
            return broken_index(error.message)


def to_resource_entry(skill: Skill) -> Data:
    """Return a skill as an entry of `resources/list`."""
    return {"uri": skill_uri(skill.id), "name": find_title(skill.skill) or skill.id, "mimeType": MARKDOWN}


_SEPARATOR: Final = "\n\n---\n\n"
_LARGE_FETCH_BYTES: Final = 256 * 1024


class FetchLimits(NamedTuple):
    """How much one call may fetch: a short list of URIs can name any number of long texts."""

    max_uris: int = Limits().max_fetch_uris
    max_bytes: int = Server().max_result_bytes


async def fetch(skills: Skills, uris: list[str], by: Call, max_bytes: int) -> str:
    """Return all texts, each under its URI; one that cannot be read, or too much together, fails the whole.

    Of the large ones of a worker or principal, one at a time is read and put together: a caller may ask for hundreds at
    once, and would have all of them in memory.
    """
    asker = by.sender or ("" if by.caller is None else by.caller.principal.id)
    texts: list[str] = []
    left = max_bytes
    async with AsyncExitStack() as held:
        for uri in uris:
            texts.append(f"# {uri}\n\n{(await skills.render(uri, by)).text.rstrip()}")
            was_large = max_bytes - left > _LARGE_FETCH_BYTES
            # Counted as they are read, before all of them are in memory.
            left -= size(texts[-1]) + len(_SEPARATOR)
            if left < 0:
                message = f"The texts are larger than {max_bytes} bytes (server.maxResultBytes); fetch fewer at a time"
                raise refused(message)
            if max_bytes - left > _LARGE_FETCH_BYTES and not was_large:
                await held.enter_async_context(skills.large_fetches[asker])
        return _SEPARATOR.join(texts)


def list_wanted_uris(uri: str | None, uris: list[str] | None, most: int) -> list[str]:
    """Return the requested URIs: `uris`, or else `uri`."""
    given = uris or ([] if uri is None else [uri])
    if len(given) > most:
        raise refused(f"Too many uris ({len(given)}; max {most}, limits.maxFetchUris)")
    wanted = [one for one in map(str.strip, given) if one]
    if not wanted:
        raise refused("Provide uri or a non-empty uris array")
    for one in wanted:
        if not one.startswith(SCHEME):
            raise refused(f"Invalid URI (must start with iii://): {shorten(one)}")
    return wanted


class Prompts:
    """Registers, lists and renders prompts."""

    def __init__(self, collection: Collection[Prompt], trigger: Trigger, within: float) -> None:
        self.collection = collection
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
        """Publish a prompt over any earlier one; whether its function exists shows only when it is used."""
        uris.check_name(name)
        if not description.strip():
            raise refused("description must be non-empty")
        if not function_id.strip():
            raise refused("function_id must be non-empty")
        uris.check_arguments(argument.name for argument in arguments)
        size = len(msgspec.json.encode((description, function_id, arguments)))
        if size > uris.MAX_BODY_BYTES:  # every client that lists prompts gets it
            raise refused(f"prompt too large ({size} bytes; max {uris.MAX_BODY_BYTES})")
        prompt = Prompt(name, description, list(arguments), function_id, now(), owner or None, namespace=namespace)
        await self.collection.put(prompt, owner)
        return {"name": name, "registered_at": prompt.registered_at}

    async def unregister(self, name: str, owner: str = "") -> Data:
        """Remove a prompt."""
        uris.check_name(name)
        return {"name": name, "removed": await self.collection.remove(name, owner)}

    async def list(self, by: Asker = None) -> Data:
        """Return all prompts in short form."""
        return {"prompts": [self._row(prompt) for prompt in await self.collection.list_visible(by)]}

    def _row(self, prompt: Prompt) -> Data:
        return {
            "name": prompt.name,
            "function_id": prompt.function_id,
            "arguments": len(prompt.arguments),
            "registered_at": prompt.registered_at,
            **self.collection.owners.describe(prompt),
        }

    async def list_entries(self, by: Asker = None) -> Data:
        """Return the envelope of `prompts/list`."""
        shown = await self.collection.list_visible(by)
        return {"prompts": [_entry(prompt) for prompt in shown if self.collection.is_visible(prompt.name)]}

    async def list_left_out(self) -> Sequence[Data]:
        """Return the prompts that clients do not see, because the hub has others of the same names."""
        hidden = [prompt for prompt in await self.collection.all() if not self.collection.is_visible(prompt.name)]
        return [{**_entry(prompt), **self.collection.owners.describe(prompt)} for prompt in hidden]

    async def admit(self, name: str, by: Asker) -> None:
        """Refuse a caller that may not get a prompt; one that a rule hides is not found."""
        try:
            self.collection.access.admit("prompts", name, by)
        except UnknownCapability:
            raise await self.not_found(name, by) from None

    async def not_found(self, name: str, by: Asker) -> NotThere:
        """Return the error for a prompt that does not exist, or that the caller may not see."""
        return NotThere(f"Prompt not found: {shorten(name)}{await self.collection.hint(name, by)}")

    async def get(self, name: str, arguments: Any = None, by: Asker = None) -> Data:
        """Return the answer of `prompts/get`; only the prompt's function checks the arguments."""
        prompt = await self.collection.find(name)
        if prompt is None:
            raise await self.not_found(name, by)
        if not self.collection.is_visible(name):
            raise NotThere(f"Prompt not found: {name}; the hub itself has another of this name")
        function_id = prompt.function_id
        if is_internal(function_id):
            raise refused(f"Prompt handler '{function_id}' is in an internal namespace and cannot back a prompt")
        given = {} if arguments is None else arguments
        output = await call_function(self._trigger, function_id, given, self._within, by, prompt.namespace)
        return {"description": prompt.description, "messages": to_messages(output)}


def to_messages(output: Any) -> list[Any]:
    """Return the messages in a function's answer."""
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
    arguments = [
        {"name": one.name, "required": one.required}
        | ({} if one.description is None else {"description": one.description})
        for one in prompt.arguments
    ]
    return {"name": prompt.name, "description": prompt.description, "arguments": arguments}


_MAX_SEARCHED_CHARACTERS: Final = 500
"""How much of a skill's first paragraph is searched."""


class PrefixTemplate(UriTemplate):
    """Matches whole URIs, because those of documents are neither encoded nor of one segment."""

    def __init__(self, template: str, matches: Callable[[str], bool]) -> None:
        super().__init__(template)
        self._matches = matches

    def match(self, uri: str) -> dict[str, str] | None:
        """Return the URI itself."""
        return {"uri": uri} if len(uri) <= MAX_URI_CHARACTERS and self._matches(uri) else None


def build_fixed_rows(skills: Skills) -> list[Capability]:
    """Return the index and the two templates, which always exist."""
    skill, section = (msgspec.convert(one, TemplateDefinition) for one in TEMPLATES)
    read = _make_reader(skills, INDEX_URI)

    async def unknown(uri: str, caller: Caller) -> UnknownResource:
        return UnknownResource(uri, (await skills.not_found(uri, Call("", caller=caller))).message)

    return [
        build_resource(msgspec.convert(INDEX_ENTRY, ResourceDefinition), read),
        build_template(skill, read, lambda uri: uri.startswith(SCHEME) and not uri.startswith(uris.SECTIONS), unknown),
        build_template(section, read, lambda uri: uri.startswith(uris.SECTIONS), unknown),
    ]


def build_skill_row(skill: Skill, skills: Skills) -> Capability:
    """Return a skill as a resource."""
    definition = msgspec.convert(to_resource_entry(skill), ResourceDefinition)
    about = truncate(find_description(skill.skill) or "", _MAX_SEARCHED_CHARACTERS)
    read = _make_reader(skills, definition.uri)
    return build_resource(definition, read, owner=skill.owner, metadata=Metadata(about=about))


def build_prompt_row(prompt: Prompt, prompts: Prompts) -> Capability:
    """Return a prompt as a prompt of the hub."""

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
    """Return the key of a skill or prompt in the registry."""
    return (Kind.RESOURCE, skill_uri(name)) if kind == "skills" else (Kind.PROMPT, name)


def build_resource(definition: ResourceDefinition, read: Handler, **rest: Any) -> Capability:
    """Return a resource that clients can subscribe to."""
    return Capability(
        kind=Kind.RESOURCE,
        id=definition.uri,
        definition=definition,
        handler=read,
        is_async=True,
        mcp=McpFeatures(subscribable=True),
        **rest,
    )


def build_template(
    definition: TemplateDefinition, read: Handler, matches: Callable[[str], bool], unknown: Unknown | None = None
) -> Capability:
    """Return a template of resources that clients can subscribe to; `read` gets the whole URI."""
    template = definition.uri_template
    return Capability(
        kind=Kind.TEMPLATE,
        id=template,
        definition=definition,
        handler=read,
        is_async=True,
        mcp=McpFeatures(template=PrefixTemplate(template, matches), subscribable=True, unknown=unknown),
    )


def _make_reader(skills: Skills, own: str) -> Handler:
    async def read(given: Data, context: Context) -> list[TextContents]:
        uri = given.get("uri", own)
        try:
            mime_type, text = await skills.render(uri, context)
        except NotThere as error:
            raise UnknownResource(uri, error.message) from None
        return [TextContents(uri, text, mime_type)]

    return read
