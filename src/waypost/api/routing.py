"""Routes: a method, a path and the handler that answers there, and what handlers receive."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple, Protocol, get_type_hints
from urllib.parse import unquote

import msgspec
from msgspec import UNSET, Meta, UnsetType

from waypost.capabilities.principals import ANONYMOUS, Principal
from waypost.errors import InvalidParams
from waypost.policy.audit import AdministrativeAction, Via
from waypost.wire.params import decode_cursor, encode_cursor

if TYPE_CHECKING:
    from waypost.api.events import Changes
    from waypost.config.loader import Loaded
    from waypost.documents.documents import Documents
    from waypost.gateway.gateway import Gateway
    from waypost.identity import Authentication
    from waypost.identity.key_ring import KeyRing
    from waypost.identity.vault import Vault
    from waypost.imports.imports import Imports
    from waypost.runtime.core import Core
    from waypost.runtime.replicas import Peers, Replicas
    from waypost.skills.skill_set import SkillSet
    from waypost.upstreams.pool import Upstreams
    from waypost.workers.workers import Workers
    from waypost.workflows.workflows import Workflows

Handler = Callable[..., Awaitable[Any]]
"""Takes the hub, the variables of the path by name, a `body` or `query` of the type it names, and `by`, the operator.

Its docstring is the summary of the operation in the OpenAPI document.
"""
Method = Literal["GET", "POST", "DELETE"]

Role = Literal["viewer", "operator", "admin"]

PREFIX: Final = "/api/v1/"
ADMIN: Final = "admin"
_GRANTED_BY: Final[dict[Role, frozenset[str]]] = {
    "viewer": frozenset({"viewer", "operator", ADMIN}),
    "operator": frozenset({"operator", ADMIN}),
    "admin": frozenset({ADMIN}),
}
"""The roles that may do what a role may: operators read what viewers read, and admins do everything."""


def may_act_as(role: Role, principal: Principal) -> bool:
    """Whether a principal may do what a role may."""
    return not _GRANTED_BY[role].isdisjoint(principal.roles)


class ConfigurationFiles(Protocol):
    """The configuration files of a hub."""

    @property
    def loaded(self) -> Loaded: ...


class AnswersPeers(Protocol):
    """The console, as far as other replicas ask it."""

    async def answer_peer(self, question: bytes) -> bool:
        """Open a session for a one-time link that was opened at another replica; false where it is not valid here."""


class ManagedHub(Protocol):
    """What the API needs of the runtime of a hub."""

    @property
    def authentication(self) -> Authentication: ...
    @property
    def changes(self) -> Changes: ...
    @property
    def core(self) -> Core: ...
    @property
    def configuration(self) -> ConfigurationFiles | None: ...
    @property
    def console(self) -> AnswersPeers: ...
    @property
    def replicas(self) -> Replicas: ...
    @property
    def peers(self) -> Peers: ...
    @property
    def documents(self) -> Documents: ...
    @property
    def keeps_documents(self) -> bool: ...
    @property
    def gateway(self) -> Gateway: ...
    @property
    def imports(self) -> Imports | None: ...
    @property
    def keys(self) -> KeyRing: ...
    @property
    def skill_set(self) -> SkillSet | None: ...
    @property
    def core_skills(self) -> Sequence[str] | None: ...
    @property
    def upstreams(self) -> Upstreams: ...
    @property
    def vault(self) -> Vault: ...
    @property
    def has_workflows(self) -> bool: ...
    @property
    def worker_address(self) -> str | None: ...
    @property
    def workers(self) -> Workers: ...
    @property
    def workflows(self) -> Workflows: ...


class Operator(msgspec.Struct, frozen=True):
    """The principal that sent a request, and the program it used."""

    principal: Principal
    via: Via = "api"


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of every answer that is an error."""

    error: str
    code: str = ""


class PageQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a list, in the order of its keys; without a limit and a cursor, the whole list in its own order."""

    before: Annotated[str, Meta(max_length=4096, description="The cursor `next` of the page before")] | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] | None = None


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """An answer with a list that can be read in parts."""

    next: str | UnsetType | None = UNSET
    """The cursor of the next part, where parts are asked for."""


class Paged(NamedTuple):
    """The list in an answer, and the members of its rows that no two rows have together."""

    rows: str
    key: tuple[str, ...]

    def cut(self, answer: Any, query: PageQuery) -> Any:
        """The part of an answer that is asked for, with the cursor of the next one."""
        if query.before is None and query.limit is None:
            return answer
        after = _read_key(query.before)
        found = sorted(((self._read(row), row) for row in getattr(answer, self.rows)), key=lambda one: one[0])
        rest = [one for one in found if one[0] > after]
        shown = rest[: query.limit]
        more = msgspec.json.encode(shown[-1][0]).decode() if len(rest) > len(shown) else None
        page = {self.rows: [row for _, row in shown], "next": None if more is None else encode_cursor(more)}
        return msgspec.structs.replace(answer, **page)

    def _read(self, row: Any) -> list[str]:
        return [str(row[name] if isinstance(row, dict) else getattr(row, name)) for name in self.key]


def _read_key(cursor: str | None) -> list[str]:
    text = decode_cursor(cursor)
    try:
        return [] if text is None else msgspec.json.decode(text, type=list[str])
    except msgspec.MsgspecError:
        raise InvalidParams("Invalid cursor.") from None


class Act(NamedTuple):
    """What the audit records of a request that was done."""

    action: AdministrativeAction
    subject: str
    """Where the answer names the object, such as `workflow.id`."""
    reason: str = ""


@dataclass(frozen=True)
class Route:
    """One operation of the API, at a path below `/api/v1/`."""

    method: Method
    name: str
    handler: Handler
    answer: Any
    """An example of the answer, for the OpenAPI document."""
    request: Any = None
    """An example of the body."""
    status: int = 200
    act: Act | None = None
    """What is recorded; None where a request changes nothing, or what it changes has records of its own."""
    needs: Role | None = None
    """The least role; left out, reading needs `viewer` and everything else `admin`."""
    any_key: bool = False
    """Whether no role is needed, because the handler itself decides who may use it."""
    paged: Paged | None = None
    """The list that can be read in parts, where the handler itself does not cut it."""
    streams: Literal["text/event-stream", "application/x-ndjson"] | None = None
    """The type of the stream that the handler returns, each event or line of which is like the example."""

    @property
    def role(self) -> Role:
        """The least role that a principal needs."""
        return self.needs or ("viewer" if self.method == "GET" else "admin")

    def is_open_to(self, principal: Principal) -> bool:
        """Whether a principal may use the route."""
        if self.any_key:
            return principal.id != ANONYMOUS.id
        return may_act_as(self.role, principal)

    @property
    def path(self) -> str:
        """The whole path."""
        return PREFIX + self.name

    @cached_property
    def segments(self) -> list[str]:
        """The segments of the path; variables are in braces."""
        return self.path.split("/")

    def match(self, segments: list[str]) -> dict[str, str] | None:
        """The variables in a path that is one of this route, else None; each is one segment and not empty."""
        return match_segments(self.segments, segments)

    @cached_property
    def hints(self) -> Mapping[str, Any]:
        """The types in the handler's signature: those of `body`, `query` and `by`, if it takes them, and `return`."""
        return get_type_hints(self.handler)


def match_segments(own: list[str], segments: list[str]) -> dict[str, str] | None:
    """The variables in a path, where it fits the segments of a route or page; those in braces are variables."""
    if len(segments) != len(own):
        return None
    variables = {}
    for part, segment in zip(own, segments, strict=True):
        if part.startswith("{") and segment:
            variables[part[1:-1]] = segment
        elif part != segment:
            return None
    return variables


class Match(NamedTuple):
    """A route, and the variables in the path that led to it."""

    route: Route
    variables: dict[str, str]


class Routes:
    """All routes of the API."""

    def __init__(self, *routes: Route) -> None:
        self.all = routes

    def find(self, method: str, path: str) -> Match | list[str]:
        """The route for a path as it is written in a URL, or the methods that have one."""
        # Split before it is decoded: an encoded slash is part of a name.
        segments = [unquote(segment) for segment in path.split("/")]
        allowed = set()
        for route in self.all:
            variables = route.match(segments)
            if variables is not None:
                if route.method == method:
                    return Match(route, variables)
                allowed.add(route.method)
        return sorted(allowed)


_BOUND: Final = re.compile(r"Expected `\w+` (<=|>=|<|>) (-?[\d.]+) - at `\$\.(.+)`")
_LENGTH: Final = re.compile(r"Expected `str` of length (<=|>=) (\d+) - at `\$\.(.+)`")
_CHOICE: Final = re.compile(r"Invalid enum value (.+) - at `\$\.(\w+)`", re.DOTALL)
_LIMITS: Final = {"<=": "at most", ">=": "at least", "<": "less than", ">": "more than"}


def explain_invalid(message: str, kind: Any) -> str:
    """What msgspec says of an invalid value of a type, with the field first and in words; else as it is."""
    if found := _BOUND.fullmatch(message):
        return f"`{found[3]}` must be {_LIMITS[found[1]]} {found[2]}"
    if found := _LENGTH.fullmatch(message):
        return f"`{found[3]}` must have {_LIMITS[found[1]]} {found[2]} characters"
    if found := _CHOICE.fullmatch(message):
        choices = _list_choices(kind, found[2])
        return f"`{found[2]}` cannot be {found[1]}" + (f"; use {' or '.join(choices)}" if choices else "")
    return message


def _list_choices(kind: Any, name: str) -> list[str]:
    """The values of a field of a struct that takes one of several texts."""
    hint = get_type_hints(kind).get(name) if isinstance(kind, type) else None
    if hint is None:
        return []
    schema = msgspec.json.schema(hint)
    return [str(one) for part in (schema, *schema.get("anyOf", ())) for one in part.get("enum", ())]
