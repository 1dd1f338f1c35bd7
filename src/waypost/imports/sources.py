"""An upstream server as a source of capabilities: what it offers, kept in the store as its manifest, and its pins.

A pin is a definition as it was approved: trust in a server ends where a definition differs from its pin. Operators see
the status of the connection (`UpstreamRow`), agents only that it cannot be used now (`Pending`).
"""

from __future__ import annotations

import asyncio
import difflib
import hashlib
import re
import time
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal

import msgspec

from waypost.capabilities.capability import Capability, Kind
from waypost.capabilities.registry import Offer
from waypost.config.models import Import, McpConnection
from waypost.errors import StaleVersion
from waypost.redaction import redacted, secrets_of
from waypost.stores.store import Store
from waypost.upstreams.client import Offers
from waypost.upstreams.upstream import ResourceSubscriptions, UpstreamStatus

TOOL: Final = "tool"
PINNED: Final = {
    TOOL: ("name", "title", "description", "inputSchema", "outputSchema", "annotations", "_meta"),
    "prompt": ("name", "title", "description", "arguments", "_meta"),
    "resource": ("uri", "name", "title", "description", "mimeType", "_meta"),
    "template": ("uriTemplate", "name", "title", "description", "mimeType", "_meta"),
}
"""The entries that a pin covers: all that a model reads, what is checked, and `_meta`, which names a page that clients
show for a tool. The first identifies a definition."""
RECIPE: Final = 2
"""How pins are made; those of recipe 1 do not cover `_meta`."""
NAMED_BY: Final = {noun: entries[0] for noun, entries in PINNED.items()}
"""The entry that identifies a definition among those of its kind."""
MARK: Final = "waypost/trust"
"""The entry of `_meta` that marks a definition which changed and is not approved."""

_MAX_LINES: Final = 400
_MAX_LINE_CHARACTERS: Final = 400
_encode: Final = msgspec.json.Encoder(order="sorted").encode

Data = dict[str, Any]
Why = Literal["new", "changed"]


class Pin(msgspec.Struct, frozen=True):
    """A definition as it was when it was first listed or approved."""

    sha256: str
    definition: Data
    recipe: int = 1


class Held(msgspec.Struct, frozen=True):
    """A definition that is not approved yet."""

    why: Why
    sha256: str
    """As it will be pinned when it is approved."""


def pin_key(noun: str, name: str) -> str:
    """The key that a definition is pinned under: the name of a tool, which has no blank, else its noun and its name."""
    return name if noun == TOOL else f"{noun} {name}"


def noun_of_key(key: str) -> str:
    """What the definition under a key defines."""
    noun, blank, _ = key.partition(" ")
    return noun if blank and noun in PINNED else TOOL


def pinned_part(definition: Mapping[str, Any], noun: str, recipe: int = RECIPE) -> Data:
    """The entries of a definition that its pin covers."""
    # `_meta`, which the first recipe does not cover, is the last entry.
    entries = PINNED[noun] if recipe > 1 else PINNED[noun][:-1]
    return {key: definition[key] for key in entries if definition.get(key) is not None}


def fingerprint(definition: Mapping[str, Any], noun: str = TOOL, recipe: int = RECIPE) -> str:
    """The SHA-256 of a definition's canonical JSON."""
    return hashlib.sha256(_encode(pinned_part(definition, noun, recipe))).hexdigest()


def make_pin(definition: Mapping[str, Any], noun: str = TOOL) -> Pin:
    """Pin a definition as it is."""
    return Pin(fingerprint(definition, noun), pinned_part(definition, noun), RECIPE)


def renew_pins(pins: Mapping[str, Pin], known: Mapping[str, Data]) -> dict[str, Pin]:
    """The pins by the current recipe, where an older one covers a definition as it is known.

    What an older recipe does not cover is taken as it is known: otherwise every definition would be held at once.
    """
    return {
        key: make_pin(known[key], noun_of_key(key))
        if pin.recipe < RECIPE and key in known and _fits(pin, known[key], noun_of_key(key))
        else pin
        for key, pin in pins.items()
    }


def _fits(pin: Pin, definition: Mapping[str, Any], noun: str) -> bool:
    return pin.sha256 == fingerprint(definition, noun, pin.recipe)


def hash_pins(pins: Mapping[str, Pin]) -> str:
    """One SHA-256 for a whole set of definitions."""
    return hashlib.sha256(_encode({name: pin.sha256 for name, pin in pins.items()})).hexdigest()


def find_held(offered: Mapping[str, Data], pins: Mapping[str, Pin]) -> dict[str, Held]:
    """The definitions that differ from their pins or have none, by key."""
    held: dict[str, Held] = {}
    for key, definition in offered.items():
        noun, pin = noun_of_key(key), pins.get(key)
        if pin is None or not _fits(pin, definition, noun):
            held[key] = Held("new" if pin is None else "changed", fingerprint(definition, noun))
    return held


def diff_definitions(old: Mapping[str, Any] | None, new: Mapping[str, Any], noun: str = TOOL) -> list[str]:
    """How a definition changed, as lines that begin with `-`, `+` or a blank."""
    lines = difflib.unified_diff(_to_lines(old or {}, noun), _to_lines(new, noun), n=1, lineterm="")
    return [line for line in lines if not line.startswith(("--- ", "+++ ", "@@"))]


def _to_lines(definition: Mapping[str, Any], noun: str) -> list[str]:
    lines: list[str] = []
    for key in PINNED[noun][1:]:
        value = definition.get(key)
        if value is None:
            continue
        text = value if isinstance(value, str) else msgspec.json.format(_encode(value), indent=2).decode()
        lines += [f"{key}: {escape_hidden(line)[:_MAX_LINE_CHARACTERS]}" for line in text.splitlines()]
    more = len(lines) - _MAX_LINES
    return lines if more <= 0 else [*lines[:_MAX_LINES], f"and {more} more lines"]


_PLAIN: Final = frozenset("\n\r\t")
_HIDDEN_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
_BLANK: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
"""Letters and marks that are drawn as nothing."""
_JOINER: Final = "\u200d"
_EMOJI: Final = frozenset({"So", "Sk"})
_MAX_DEPTH: Final = 64
_ESCAPES: Final = re.compile(rb"\\[ubf]|\x7f")
PROSE: Final = ("description", "title")
"""The entries of a definition, and of its schemas, that are prose for a model."""


def is_hidden(letter: str) -> bool:
    """Whether a character is drawn as nothing, or changes how others are drawn."""
    if letter in _PLAIN:
        return False
    # Variation selectors and tag characters can carry a whole text that a model reads and a person does not see.
    if letter in _BLANK or "\ufe00" <= letter <= "\ufe0e" or "\U000e0000" <= letter <= "\U000e0fff":
        return True
    return not letter.isprintable() and unicodedata.category(letter) in _HIDDEN_CATEGORIES


def find_hidden(text: str) -> list[int]:
    """The positions of hidden characters; a joiner between emoji is visible."""
    if text.isascii() and text.isprintable():
        return []
    return [place for place, letter in enumerate(text) if is_hidden(letter) and not _joins_emoji(text, place)]


def _joins_emoji(text: str, place: int) -> bool:
    """Whether the character joins two emoji into one."""
    if text[place] != _JOINER or not 0 < place < len(text) - 1:
        return False
    before, after = text[place - 1], text[place + 1]
    return (before == "\ufe0f" or unicodedata.category(before) in _EMOJI) and unicodedata.category(after) in _EMOJI


def escape_hidden(text: str) -> str:
    """A text with its hidden characters spelled out, such as `<U+200B>`."""
    places = set(find_hidden(text))
    if not places:
        return text
    return "".join(f"<U+{ord(letter):04X}>" if place in places else letter for place, letter in enumerate(text))


def escape_prose(definition: dict[str, Any]) -> Any:
    """A definition without hidden characters in its prose; what a call depends on stays as it is."""
    written = msgspec.json.encode(definition)
    # Most are plain: as JSON they have neither letters of other scripts nor escapes but those of quotes and lines.
    return definition if written.isascii() and _ESCAPES.search(written) is None else _escape_prose(definition)


def _escape_prose(value: Any, depth: int = 0) -> Any:
    if isinstance(value, list):
        return [_escape_prose(item, depth + 1) for item in value] if depth < _MAX_DEPTH else value
    if not isinstance(value, dict) or depth >= _MAX_DEPTH:
        return value
    return {
        key: escape_hidden(member) if key in PROSE and isinstance(member, str) else _escape_prose(member, depth + 1)
        for key, member in value.items()
    }


def name_hidden(value: Any) -> list[str]:
    """The names of the hidden characters in a definition, each once."""
    found = {text[place] for text in _iterate_texts(value) for place in find_hidden(text)}
    return [f"U+{ord(letter):04X} {unicodedata.name(letter, 'control character')}" for letter in sorted(found)]


def _iterate_texts(value: Any, depth: int = 0) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list) and depth < _MAX_DEPTH:
        for item in value:
            yield from _iterate_texts(item, depth + 1)
    elif isinstance(value, dict) and depth < _MAX_DEPTH:
        for key, member in value.items():
            yield key
            yield from _iterate_texts(member, depth + 1)


_MANIFEST: Final = "manifest"
PINS: Final = "pins"
_MAX_ATTEMPTS: Final = 5


class Manifest(msgspec.Struct, frozen=True):
    """What a server offers, as it listed it."""

    digest: str
    """Of the connection that it was listed over."""
    tools: list[Data]
    at: float
    prompts: list[Data] = []
    resources: list[Data] = []
    templates: list[Data] = []
    is_subscribable: bool = False
    """Whether it notifies of changed resources."""
    has_tasks: bool = False
    """Whether its tools may run as tasks."""

    @property
    def lists(self) -> dict[str, list[Data]]:
        """All definitions, by what they define."""
        return {TOOL: self.tools, "prompt": self.prompts, "resource": self.resources, "template": self.templates}

    @property
    def by_key(self) -> dict[str, Data]:
        """All definitions, by their pin keys."""
        return {pin_key(noun, one[NAMED_BY[noun]]): one for noun, listed in self.lists.items() for one in listed}


def digest_connection(connection: McpConnection) -> str:
    """Identifies a server by its connection; without the values of variables and headers, which are secrets."""
    plain = msgspec.to_builtins(connection)
    plain["env"], plain["headers"] = sorted(connection.env), sorted(connection.headers)
    if connection.version is None:
        del plain["version"]
    return hashlib.sha256(msgspec.json.encode(plain, order="sorted")).hexdigest()


class Manifests:
    """Manifests and pins by connection."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def get(self, name: str, digest: str) -> Manifest | None:
        """The stored manifest of a connection, if it is still configured the same."""
        found = await self._read(_MANIFEST, name, Manifest)
        return found if found is not None and found.digest == digest else None

    async def put(self, name: str, manifest: Manifest) -> None:
        """Store a manifest."""
        await self._write(_MANIFEST, name, manifest)

    async def pins(self, name: str) -> dict[str, Pin] | None:
        """The pins of a server's definitions; `None` if it was never listed."""
        found: dict[str, Pin] | None = await self._read(PINS, name, dict[str, Pin])
        return found

    async def revision(self) -> int:
        """How often pins were changed, by any replica."""
        return (await self._store.revisions()).get(PINS, 0)

    async def put_pins(self, name: str, pins: Mapping[str, Pin]) -> None:
        """Store pins."""
        await self._write(PINS, name, pins)

    async def _read(self, scope: str, name: str, kind: Any) -> Any:
        entry = await self._store.state.get(scope, name)
        if entry is None:
            return None
        try:
            return msgspec.convert(entry.value, kind)
        except msgspec.ValidationError:
            if scope == PINS:
                raise  # damaged pins must not lead to everything being pinned anew, which would approve it
            return None

    async def _write(self, scope: str, name: str, value: Any) -> None:
        state, plain = self._store.state, msgspec.to_builtins(value)
        for attempt in range(_MAX_ATTEMPTS):  # replicas list the same server at the same time
            entry = await state.get(scope, name)
            if entry is not None and entry.value == plain:
                return
            try:
                # Only pins have a revision, by which replicas notice approvals.
                await state.put(scope, name, plain, 0 if entry is None else entry.version, counted=scope == PINS)
            except StaleVersion:
                if attempt == _MAX_ATTEMPTS - 1:
                    raise
            else:
                return


_MAX_DEFINITION_BYTES: Final = 262_144
_TAKEN: Final = {
    Kind.PROMPT: "Another prompt has the name {}, or one like it.",
    Kind.RESOURCE: "Something else is read at {}.",
    Kind.TEMPLATE: "Another template gives URIs like those of {}.",
}
"""Why a row is left out whose name or URI is taken; tools are published under another name instead."""


@dataclass(eq=False, slots=True)
class Selection:
    """What one entry of `proxy.import` takes of a server."""

    source: str
    index: int
    """Its position among the imports of the server."""
    settings: Import
    has_resources: bool
    """Whether resources come with it."""
    offers: dict[str, Offer] = field(default_factory=dict)
    """The rows that it offers, by their pin keys; the registry decides under which names they are published."""
    problems: dict[str, str] = field(default_factory=dict)
    """Why definitions are left out, by their pin keys."""

    @property
    def id(self) -> str:
        """The source of its offers in the registry, which has to stay the same over restarts."""
        return f"upstream/{self.source}" + (f"/{self.index}" if self.index else "")

    @property
    def rows(self) -> dict[str, Capability]:
        """Its rows under their own names, by their pin keys."""
        return {key: offer.own for key, offer in self.offers.items()}

    @property
    def left_out(self) -> dict[str, str]:
        """Why definitions are not published, by their pin keys."""
        waiting = {key: offer.own for key, offer in self.offers.items() if offer.row is None}
        return self.problems | {key: _TAKEN[row.kind].format(row.id) for key, row in waiting.items()}


@dataclass(slots=True)
class Refresh:
    """When a server is asked what it offers."""

    session: int = 0
    """How many sessions with it have started."""
    listed_session: int = -1
    """The session in which it was last asked."""
    task: asyncio.Task[None] | None = None
    timer: asyncio.TimerHandle | None = None
    started_at: float = 0.0
    was_tried: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the server has answered or failed once, or its manifest was in the store."""

    def cancel(self) -> None:
        """Stop asking, now and later."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if self.task is not None:
            self.task.cancel()


@dataclass(eq=False)
class Source:
    """A connection to an MCP server that something is imported from."""

    name: str
    connection: McpConnection
    imports: tuple[Import, ...]
    digest: str
    manifest: Manifest | None = None
    """What it offers, once that is known."""
    subscriptions: ResourceSubscriptions = field(default_factory=ResourceSubscriptions)
    pins: dict[str, Pin] = field(default_factory=dict)
    held: dict[str, Held] = field(default_factory=dict)
    error: str = ""
    problems: list[str] = field(default_factory=list)
    refresh: Refresh = field(default_factory=Refresh)
    pins_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while pins are read, compared and written: an approval must not be lost to a refresh at the same time."""

    @cached_property
    def selections(self) -> list[Selection]:
        """What each import takes, in the order of the file; resources come with the first that takes everything."""
        whole = next((one for one in self.imports if not one.include), None)
        return [Selection(self.name, index, one, one is whole) for index, one in enumerate(self.imports)]

    @property
    def rows(self) -> list[Capability]:
        """Everything of it that is published."""
        offers = (offer for selection in self.selections for offer in selection.offers.values())
        return [offer.row for offer in offers if offer.row is not None]

    @property
    def left_out(self) -> dict[str, str]:
        """Why the rest is not."""
        return {key: why for selection in self.selections for key, why in selection.left_out.items()}

    @property
    def is_trusted(self) -> bool:
        """Whether changed definitions need no approval."""
        return all(one.trust == "off" for one in self.imports)

    @cached_property
    def secrets(self) -> tuple[str, ...]:
        """Values of the configuration that must not appear in texts."""
        return secrets_of(self.connection.env, self.connection.headers)

    @property
    def definitions(self) -> dict[str, Data]:
        """All definitions, by their pin keys."""
        return {} if self.manifest is None else self.manifest.by_key

    def update(self, manifest: Manifest, pins: dict[str, Pin]) -> dict[str, Held]:
        """Replace manifest and pins; returns the definitions that are newly held."""
        self.manifest, self.pins = manifest, pins
        return self.compare_pins()

    def compare_pins(self) -> dict[str, Held]:
        """Find the definitions that differ from their pins; returns those that were not held before."""
        before = self.held
        self.held = {} if self.is_trusted else find_held(self.definitions, self.pins)
        return {name: one for name, one in self.held.items() if before.get(name) != one}

    def explain_hold(self, tool: str, name: str) -> str:
        """Why a call of a held definition is refused, and how to approve it."""
        why = self.held[tool].why if tool in self.held else "new"
        shown = f'"{tool}"' if " " in tool else tool
        return (
            f"{name} is held back because its definition is {why} and is not approved; "
            f"`waypost upstreams approve {self.name} {shown}` releases it."
        )

    def explain_refusal(self, tool: str) -> str:
        """Why a tool must not be called by the server's own name for it; empty when it may be."""
        if all(one.trust != "quarantine" for one in self.imports):
            return ""
        # Fail closed: of a server that was never listed nothing is approved.
        if self.manifest is None:
            return f"What {self.name} offers is not known, so {tool} cannot be trusted: {self.error}"
        if tool in self.held:
            return self.explain_hold(tool, f"{tool} of {self.name}")
        return "" if tool in self.definitions else f"{self.name} does not offer {tool!r}."


def build_manifest(source: Source, offered: Offers) -> tuple[Manifest, list[str]]:
    """What a server offers now, and its problems; a list that could not be read stays as it was."""
    problems, before = list(offered.problems), source.manifest

    def pick(noun: str, given: list[Any] | None) -> list[Data]:
        if given is not None:
            return check_definitions(given, noun, problems)
        return [] if before is None else before.lists[noun]

    found = Manifest(
        source.digest,
        pick("tool", offered.tools),
        # The time of the last change, so that an unchanged manifest is equal to the one before.
        0.0 if before is None else before.at,
        pick("prompt", offered.prompts),
        pick("resource", offered.resources),
        pick("template", offered.templates),
        offered.is_subscribable,
        offered.has_tasks,
    )
    return (found if found == before else msgspec.structs.replace(found, at=time.time())), problems


def check_definitions(definitions: list[Any], noun: str, problems: list[str]) -> list[Data]:
    """The usable definitions, each name once; adds to `problems` what is wrong with the others."""
    found: dict[str, Data] = {}
    by = NAMED_BY[noun]
    for one in definitions:
        name = one.get(by) if isinstance(one, dict) else None
        if not isinstance(name, str) or not name:
            problems.append(f"A {noun} without a {'name' if by == 'name' else 'URI'} is left out.")
        elif name in found:
            problems.append(f"There are two {noun}s {name!r}; the second is left out.")
        elif len(msgspec.json.encode(one)) > _MAX_DEFINITION_BYTES:
            problems.append(f"The definition of {name!r} is larger than {_MAX_DEFINITION_BYTES} bytes; it is left out.")
        else:
            found[name] = one
    return list(found.values())


class HeldTool(msgspec.Struct, frozen=True, rename="camel"):
    """A definition that is not approved yet."""

    tool: str
    why: Why
    sha256: str
    is_callable: bool
    """Whether it is only marked, not quarantined."""
    difference: list[str]


class LeftOut(msgspec.Struct, frozen=True):
    """A definition that is not published, and why."""

    tool: str
    why: str


class Unseen(msgspec.Struct, frozen=True):
    """Hidden characters of a definition."""

    tool: str
    characters: list[str]


class UpstreamRow(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The status of a connection to an MCP server."""

    connection: str
    transport: Literal["stdio", "http"]
    state: Literal["not started", "starting", "running", "failed"]
    reason: str = ""
    retry_in: float = 0.0
    """Seconds until it is tried again."""
    protocol: str = ""
    calls: int = 0
    """How many are in flight."""
    tools: list[str] = []
    """The names under which its tools are published."""
    prompts: list[str] = []
    """The names under which its prompts are published."""
    resources: list[str] = []
    """The URIs, and templates of URIs, at which its resources are read."""
    pin: str = ""
    """The SHA-256 of all pins."""
    pins: dict[str, str] = {}
    """The SHA-256 of each approved definition, by the name of the tool or by noun and name."""
    held: list[HeldTool] = []
    left_out: list[LeftOut] = []
    unseen: list[Unseen] = []


class Pending(msgspec.Struct, frozen=True):
    """A server whose tools cannot be used now, as agents see it: no text of the server, no path, no address."""

    connection: str
    status: Literal["connecting", "down"]
    reason: str
    rows: list[Capability]
    """What it is known to offer."""
    prefixes: list[str]
    """The beginnings of the names that its tools will have."""


def find_pending(source: Source, status: UpstreamStatus) -> Pending | None:
    """Why the tools of a server cannot be used now; `None` where they can."""
    reason = ""
    if status.state == "failed":
        wait = f" It is tried again in {status.retry_in:.0f} s." if status.retry_in >= 1 else ""
        reason = f"The server failed or cannot be reached.{wait}"
    elif source.error:
        reason = "The server did not say what it offers."
    elif status.state != "starting" and source.manifest is not None:
        return None
    prefixes = [one.prefix or source.name for one in source.imports]
    return Pending(source.name, "down" if reason else "connecting", reason, source.rows, prefixes)


def build_row(name: str, connection: McpConnection, status: UpstreamStatus, source: Source | None) -> UpstreamRow:
    """The status of one connection, with its tools if they are imported."""
    secrets = secrets_of(connection.env, connection.headers)
    row = UpstreamRow(
        connection=name,
        transport=connection.transport or "stdio",
        state=status.state,
        reason=redacted(status.reason, secrets),
        retry_in=round(status.retry_in, 1),
        protocol=status.version,
        calls=status.calls,
    )
    if source is None:
        return row
    definitions = source.definitions
    characters = {tool: name_hidden(definition) for tool, definition in definitions.items()}
    return msgspec.structs.replace(
        row,
        reason=row.reason or source.error or " ".join(source.problems),
        tools=_list_ids(source, Kind.TOOL),
        prompts=_list_ids(source, Kind.PROMPT),
        resources=_list_ids(source, Kind.RESOURCE, Kind.TEMPLATE),
        pin=hash_pins(source.pins) if source.pins else "",
        pins={tool: pin.sha256 for tool, pin in sorted(source.pins.items())},
        held=_list_held(source),
        left_out=[LeftOut(tool, why) for tool, why in source.left_out.items()],
        unseen=[Unseen(tool, found) for tool, found in characters.items() if found],
    )


def _list_ids(source: Source, *kinds: Kind) -> list[str]:
    return sorted(one.id for one in source.rows if one.kind in kinds and not one.metadata.hidden)


def count_definitions(manifest: Manifest) -> str:
    """How many definitions of each kind a server has, in words."""
    counts = {noun: len(definitions) for noun, definitions in manifest.lists.items()}
    return ", ".join(f"{count} {noun}s" for noun, count in counts.items() if count or noun == TOOL)


def _list_held(source: Source) -> list[HeldTool]:
    definitions = source.definitions
    is_marked = all(one.trust == "flag" for one in source.imports if one.trust != "off")
    return [
        HeldTool(
            tool,
            held.why,
            held.sha256,
            is_marked,
            diff_definitions(
                source.pins[tool].definition if tool in source.pins else None, definitions[tool], noun_of_key(tool)
            ),
        )
        for tool, held in source.held.items()
    ]
