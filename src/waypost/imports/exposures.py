"""Exposures of the section `proxy`: one model of what is exposed, and the tools built from it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any, Final
from uuid import uuid4

import msgspec
from msgspec import Struct

from waypost.capabilities.capability import Capability, ToolOptions
from waypost.capabilities.context import Caller, Context
from waypost.capabilities.results import Result
from waypost.capabilities.schemas.forms import require
from waypost.capabilities.schemas.validators import Validator
from waypost.capabilities.tools import make_tool
from waypost.config import models as models
from waypost.config.models import Expose, Reliability, Retry
from waypost.errors import ExecutorFailed
from waypost.kinds import ExecutorModel, GuardModel
from waypost.wire.content import Audio, Block, EmbeddedResource, Image, ResourceLink, Text
from waypost.wire.versions import is_modern
from waypost.workflows.definitions import Capabilities, resolve_capability, with_defaults
from waypost.workflows.executors import is_idempotent, supervise
from waypost.workflows.executors.kind import ExecutorContext, Run
from waypost.workflows.executors.mcp import Mcp
from waypost.workflows.executors.noop import Noop
from waypost.workflows.executors.reliability import Supervised
from waypost.workflows.executors.rest import Rest
from waypost.workflows.guards import compile_guards
from waypost.workflows.instance import NonInteractiveCaller
from waypost.workflows.scope import Scope

Data = dict[str, Any]
NO_ARGUMENTS: Final[Data] = {"type": "object", "properties": {}, "additionalProperties": False}
"""The schema of a tool without arguments."""
_UNNAMED: Final = "\0"
"""Stands for the entry itself among `capabilities`; no entry there has this name."""


class Offer(Struct, frozen=True, kw_only=True):
    """A tool to expose, with all building blocks resolved."""

    name: str
    title: str | None = None
    description: str | None = None
    tags: list[str] = []
    aliases: list[str] = []
    examples: list[Any] = []
    category: str | None = None
    input_schema: Data
    guards: list[GuardModel] = []
    executor: ExecutorModel
    bare: Rest | None = None
    """The request without a body, for calls that give none."""
    reliability: Reliability | None = None
    annotations: dict[str, bool] = {}


def exposed_name(entry: Expose) -> str:
    """The name under which an entry of `proxy.expose` is offered."""
    return entry.name or entry.as_ or entry.capability or ""


def build_offer(entry: Expose, capabilities: Capabilities) -> Offer:
    """The offer of an entry of `proxy.expose` with everything it wraps; a `DefinitionError` where that is missing."""
    executor = entry.executor
    if executor is None and entry.capability is None:
        executor = Noop()
    wrapper = models.Capability(
        title=entry.title,
        description=entry.description,
        tags=entry.tags,
        examples=entry.examples,
        wraps=entry.capability,
        input_schema=entry.input_schema,
        executor=executor,
        guards=entry.guards,
        reliability=entry.reliability,
    )

    found = resolve_capability(_UNNAMED, {**capabilities, _UNNAMED: wrapper})
    named = capabilities.get(entry.capability or "")
    assert found.executor is not None
    return Offer(
        name=exposed_name(entry),
        title=found.title,
        description=found.description,
        tags=found.tags,
        aliases=list(dict.fromkeys([*(named.aliases if named is not None else ()), *entry.aliases])),
        examples=found.examples,
        category=entry.category,
        input_schema=NO_ARGUMENTS if found.input_schema is None else found.input_schema,
        guards=found.guards,
        executor=found.executor,
        reliability=found.reliability,
    )


OWNER: Final = "exposed"
_TRANSIENT: Final = ("timeout", "rate_limited", "connection_error", "transient_error")


class DefaultedForm:
    """A JSON Schema that was checked already, whose defaults replace missing arguments."""

    cast_plan = None

    def __init__(self, schema: Data) -> None:
        self.schema = schema if "type" in schema else {"type": "object", **schema}
        self._validator = Validator.deferred(self.schema)

    def admit(self, arguments: Data) -> Data:
        """The arguments with their defaults, if they fit."""
        filled: Data = with_defaults(self.schema, arguments)
        require(self._validator, filled)
        return filled


class Exposures:
    """The tools of a configuration; an offer that did not change keeps its tool over a reload."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[Offer, Capability]] = {}

    def tools(self, offers: Iterable[Offer], surroundings: ExecutorContext) -> list[Capability]:
        """A tool for each offer."""
        made: dict[str, tuple[Offer, Capability]] = {}
        for offer in offers:
            known = self._made.get(offer.name)
            made[offer.name] = known if known and known[0] == offer else (offer, expose(offer, surroundings))
        self._made = made
        return [tool for _, tool in made.values()]


def expose(offer: Offer, surroundings: ExecutorContext) -> Capability:
    """The tool of an offer."""
    schema = offer.input_schema
    examples = [one for one in offer.examples if isinstance(one, dict)]
    options = ToolOptions(
        title=offer.title,
        category=offer.category,
        tags=tuple(offer.tags),
        aliases=tuple(offer.aliases),
        timeout=_total_timeout(offer.reliability),
        annotations=offer.annotations or ({"idempotent_hint": True} if is_idempotent(offer.executor) else None),
    )
    phrases = [one for one in offer.examples if isinstance(one, str) and one]
    texts = (offer.description, f"For example: {'; '.join(phrases)}" if phrases else "")
    return make_tool(
        offer.name,
        options,
        arguments=DefaultedForm({**schema, "examples": examples} if examples else schema),
        handler=Exposed(offer, surroundings),
        description="\n\n".join(filter(None, texts)) or None,
        owner=OWNER,
    )


class Exposed:
    """The handler of an exposed tool."""

    def __init__(self, offer: Offer, surroundings: ExecutorContext) -> None:
        self.offer = offer
        self._surroundings = surroundings
        self._guards = compile_guards(offer.guards)

    @cached_property
    def _whole(self) -> Supervised:
        # Built on first use: an API has thousands of operations, of which few are ever called.
        return supervise(self.offer.executor, self.offer.reliability, self._surroundings)

    @cached_property
    def _bare(self) -> Supervised:
        bare = self.offer.bare
        return self._whole if bare is None else supervise(bare, self.offer.reliability, self._surroundings)

    async def __call__(self, arguments: Data, ctx: Context) -> Any:
        """The executor's output, or an error result that says why there is none."""
        name, caller = self.offer.name, ctx.caller
        scope = Scope({}, arguments, {}, principal=caller.principal)
        if not self._guards.holds(scope):
            reasons = self._guards.failures(scope)
            why = "; ".join(reason["message"] for reason in reasons)
            return _error(f"{name} is not allowed now: {why}", "GUARD_REJECTED", guards=reasons)
        runs = self._whole if "body" in arguments else self._bare
        try:
            output, _ = await runs.run(Run(scope, caller.chain.key or f"call_{uuid4().hex}", _with_chain(caller, name)))
        except ExecutorFailed as error:
            kind = error.error_class
            hint = " It may help to try again later." if kind in _TRANSIENT else ""
            return _error(f"{error.message} [{kind}]{hint}", "EXECUTOR_FAILED", errorClass=kind)
        return _to_content(output) if isinstance(self.offer.executor, Mcp) else output


def _with_chain(caller: Caller, name: str) -> Caller:
    """The caller as the capabilities see it that an executor calls."""
    before = caller.chain
    chain = msgspec.structs.replace(before, caller=name, type="core", depth=before.depth + 1, key="")
    # A stateless client answers by making its request again, and what ran so far would run twice.
    return NonInteractiveCaller(caller, chain) if is_modern(caller.version) else caller.with_chain(chain)


def _error(message: str, code: str, **details: Any) -> Result:
    return Result([Text(message)], {"error": {"code": code, "message": message, **details}}, is_error=True)


def _to_content(output: Any) -> Any:
    """A server's answer as content blocks, where it has nothing but content."""
    if not isinstance(output, dict) or output.keys() != {"content"}:
        return output
    try:
        return Result([_to_block(block) for block in output["content"]])
    except msgspec.ValidationError:
        return output


def _to_block(data: Any) -> Block:
    if isinstance(data, dict) and data.get("type") == "resource" and isinstance(data.get("resource"), dict):
        return EmbeddedResource(resource=data["resource"]).block()
    return msgspec.convert(data, Text | Image | Audio | ResourceLink)


def _total_timeout(reliability: Reliability | None) -> float | None:
    """The time for all attempts in seconds, where that of one is configured; else `None`, for the default of tools."""
    if reliability is None or reliability.timeout_ms is None:
        return None
    retry = reliability.retry or Retry()
    candidates = 1 + (len(reliability.fallback.executors) if reliability.fallback is not None else 0)
    pauses = 0.0 if retry.backoff == "none" else (retry.max_attempts - 1) * float(retry.max_delay_ms)
    return candidates * (retry.max_attempts * reliability.timeout_ms + pauses) / 1000 + 1.0
