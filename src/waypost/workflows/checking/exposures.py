"""Whether what `proxy.expose` lists can be offered: it has to work without a workflow around it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from waypost.capabilities.headers import header_parameters
from waypost.config import Config
from waypost.config.executors import Human
from waypost.config.findings import KeyPath, quoted
from waypost.config.proxy import Expose, ItemName
from waypost.config.workflows import AllOf, AnyOf, Capability, EvidenceGuard, Guard, Not
from waypost.errors import DefinitionError
from waypost.workflows.checking.executors import check_depth, check_executors
from waypost.workflows.checking.places import Place, followed, of_capability
from waypost.workflows.checking.reading import Look, Reader, check_schema
from waypost.workflows.checking.references import check_references
from waypost.workflows.checking.report import Report
from waypost.workflows.resolving import nearest, resolve_capability


def check_exposures(config: Config, known: Collection[str] | None, report: Report) -> None:
    """Note everything that cannot be offered as it is written."""
    for index, entry in enumerate(config.proxy.expose):
        path = ("proxy", "expose", index)
        if _check_form(entry, config, path, report):
            _check_entry(entry, config, path, known, report)


def _check_form(entry: Expose, config: Config, path: KeyPath, report: Report) -> bool:
    """Whether an entry is one of the two that there are."""
    name = entry.capability
    if (entry.name is None) == (name is None):
        sentence = (
            "an entry has `name`, where it is written here, or `capability`, which names one; give one of the two"
        )
        report.add(path, sentence, "WF060")
    elif name is None and entry.as_ is not None:
        report.add((*path, "as"), "`as` is the name of a `capability`; what is written here has `name`", "WF060")
    elif name is not None and name not in config.capabilities:
        sentence = f"there is no capability {quoted(name)}; {nearest(name, config.capabilities)}"
        report.add((*path, "capability"), sentence, "WF012")
    elif name is not None and entry.as_ is None and not _fits(name):
        report.add((*path, "capability"), f"{quoted(name)} is no name for a tool; give it one with `as`", "WF060")
    else:
        return True
    return False


def _fits(name: str) -> bool:
    try:
        msgspec.convert(name, ItemName)
    except msgspec.ValidationError:
        return False
    return True


def _check_entry(entry: Expose, config: Config, path: KeyPath, known: Collection[str] | None, report: Report) -> None:
    own = Capability(executor=entry.executor, reliability=entry.reliability)
    places = list(of_capability(own, path))
    check_references(config, places, known, report)
    check_executors(places, report)
    check_depth(places, config.capabilities, report)
    _check_input(entry.input_schema, (*path, "inputSchema"), report)
    inner = _inner(entry, config)
    if inner is None:
        return
    named = (*path, "capability")
    if entry.input_schema is None:
        _check_root(inner.input_schema, named, report)
    every = [*followed(iter(places), config.capabilities), *(_at(named, place) for place in of_capability(inner, path))]
    for place in every:
        if isinstance(place.executor, Human):
            sentence = "people are only waited for in a workflow; start one that asks them instead"
            report.add(place.path, sentence, "WF061")
    for guard, where in [*((one, (*path, "guards")) for one in entry.guards), *((one, named) for one in inner.guards)]:
        if _needs_evidence(guard):
            report.add(where, "evidence is only left in a workflow, so this guard never holds", "WF061")
    _check_looks(entry, inner, every, path, report)


def _inner(entry: Expose, config: Config) -> Capability | None:
    """What an entry names, or nothing but an empty one; `None` where that cannot be told."""
    if entry.capability is None:
        return Capability()
    try:
        found = resolve_capability(entry.capability, config.capabilities)
    except DefinitionError:  # it was noted where it is written
        return None
    return found if entry.executor is None else replace(found, executor=None)


def _at(path: KeyPath, place: Place) -> Place:
    return Place(place.executor, path, place.within, via=place.via or "", depth=place.depth)


def _check_input(schema: dict[str, Any] | None, key: KeyPath, report: Report) -> None:
    check_schema(schema, key, report)
    _check_root(schema, key, report)


def _check_root(schema: dict[str, Any] | None, key: KeyPath, report: Report) -> None:
    if schema is None:
        return
    if schema.get("type", "object") != "object":
        report.add(key, "arguments are an object, so the root type of their schema is `object`", "WF031")
    try:
        header_parameters(schema)
    except DefinitionError as error:
        report.add(key, error.message, "WF031")


def _needs_evidence(guard: Guard) -> bool:
    match guard:
        case EvidenceGuard():
            return True
        case AllOf():
            return any(map(_needs_evidence, guard.guards))
        case AnyOf():
            return bool(guard.guards) and all(map(_needs_evidence, guard.guards))
        case Not():
            return False
        case _:
            return False


def _check_looks(entry: Expose, inner: Capability, places: list[Place], path: KeyPath, report: Report) -> None:
    for look in _looks(entry, inner, places, path, report):
        if look.path.root in ("context", "input", "workflow"):
            sentence = f"there is nothing at {quoted(look.path.text)} outside of a workflow; use `$.arguments`"
            report.add(look.key, sentence, "WF062")


def _looks(entry: Expose, inner: Capability, places: list[Place], path: KeyPath, report: Report) -> Iterator[Look]:
    yield from Reader(report).guards(entry.guards, (*path, "guards"))
    named = (*path, "capability")
    yield from (Look(named, look.path) for look in Reader().guards(inner.guards, named))
    for place in places:
        # What is wrong with a capability is said where it is written.
        yield from Reader(report if place.via is None else None).executor(place)
