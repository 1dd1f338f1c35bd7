"""What files of mcp-flowgate say in other words: read as what it means here, or noted where it has no effect."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from waypost.config.findings import listed, quoted
from waypost.config.models import ClientServer, OnTimeout, State, Workflow
from waypost.settings import Audit, Settings, Store

if TYPE_CHECKING:
    from collections.abc import Callable

    from msgspec import Struct

    from waypost.config.findings import Finding, KeyPath
    from waypost.config.nodes import Node

    Entries = dict[str, Node]
    Translation = Callable[[Entries, list[Finding], KeyPath], Entries]

IDLE: Final[dict[type[Struct], dict[str, str]]] = {
    Settings: {
        "discovery": "everything but connections can be found, and `search.ranking` says how",
        "inputs": "`${NAME}` reads a variable of the environment",
    },
    Audit: {
        "path": "the file is `audit.jsonl` in the data directory",
        "rotation": "the file is not rotated by the hub",
    },
    ClientServer: {
        **dict.fromkeys(("autoApprove", "alwaysAllow", "trust"), "`policies` say what callers may do"),
        **dict.fromkeys(("disabledTools", "excludeTools"), "write an import with `exclude` in `proxy.import`"),
        "timeout": "`server.toolTimeoutMs` bounds every call",
        "description": "servers describe themselves",
    },
    Workflow: {"blackboard": "what a context holds is not declared"},
    State: {"delegate": "who works on a state is left to the client"},
    OnTimeout: {
        "executor": "give the state it goes to an `onEnter`",
        "output": "give the state it goes to an `onEnter`",
    },
}
"""Keys that are known and do nothing, each with what to know about it."""

# Every 1.x is version 1 here.
_FIRST: Final = re.compile(r"1(\.[0-9]+)+")
_SINKS: Final = {"stdout": "stderr", "memory": "none"}
_KINDS: Final = ["memory", "file", "sqlite", "postgres"]
_MEMORY: Final = "sqlite://"


def translated(model: type[Struct], entries: Entries, findings: list[Finding], path: KeyPath) -> Entries:
    """The entries of a mapping that is meant for a model, as Waypost writes them."""
    idle = IDLE.get(model)
    if idle is not None:
        entries = _without(idle, entries, findings, path)
    translation = _TRANSLATIONS.get(model)
    return entries if translation is None else translation(entries, findings, path)


def _without(idle: dict[str, str], entries: Entries, findings: list[Finding], path: KeyPath) -> Entries:
    for key, why in idle.items():
        if key in entries:
            findings.append(entries[key].finding((*path, key), f"the key has no effect: {why}", "CFG064"))
    return {key: node for key, node in entries.items() if key not in idle}


def _version(entries: Entries, findings: list[Finding], path: KeyPath) -> Entries:
    node = entries.get("version")
    if node is None or isinstance(node.value, bool) or not isinstance(node.value, str | int | float):
        return entries
    number = str(node.value)
    return {**entries, "version": replace(node, value="1" if _FIRST.fullmatch(number) else number, plain=False)}


def _settings(entries: Entries, findings: list[Finding], path: KeyPath) -> Entries:
    """Also take the servers of VS Code's `mcp.json` and `settings.json` for `mcpServers`."""
    entries = _version(entries, findings, path)
    mcp = entries.get("mcp")
    within = mcp.value if mcp is not None and isinstance(mcp.value, dict) else {}
    for place, servers in ((("servers",), entries.get("servers")), (("mcp", "servers"), within.get("servers"))):
        if servers is not None and _are_servers(servers):
            message = f"the key {quoted('.'.join(place))} is how VS Code writes it; write `mcpServers`, at the top"
            findings.append(servers.finding((*path, *place), message, "CFG010"))
            entries = {**entries, "mcpServers": replace(servers, spelt=".".join(place))}
    rest = {key: node for key, node in entries.items() if key != "servers" or not _are_servers(node)}
    if mcp is not None and "servers" in within:
        rest["mcp"] = replace(mcp, value={key: node for key, node in within.items() if key != "servers"})
    return rest


def _are_servers(node: Node) -> bool:
    entries = node.value.values() if isinstance(node.value, dict) else ()
    return any(one.at("command") or one.at("url") for one in entries)


def _sink(entries: Entries, findings: list[Finding], path: KeyPath) -> Entries:
    node = entries.get("sink")
    sink = _SINKS.get(node.value) if node is not None and isinstance(node.value, str) else None
    if node is None or sink is None:
        return entries
    if sink == "none":
        message = "`memory` has no effect: nothing is recorded; use `store`"
        findings.append(node.finding((*path, "sink"), message, "CFG064"))
    return {**entries, "sink": replace(node, value=sink)}


def _store(entries: Entries, findings: list[Finding], path: KeyPath) -> Entries:
    kind = entries.get("kind")
    if kind is None:
        return entries
    place = entries.get("url") or entries.get("path")
    rest = {key: node for key, node in entries.items() if key not in ("kind", "path", "url")}
    match kind.value:
        case "memory":
            return {**rest, "url": replace(kind, value=_MEMORY)}
        case "file":
            message = "a folder of files is no store here; SQLite in the data directory is used instead"
            findings.append(kind.finding((*path, "kind"), message, "CFG064"))
            return rest
        case "sqlite" | "postgres" if place is None:
            key = "path" if kind.value == "sqlite" else "url"
            message = f"the key {quoted(key)} is missing; add it"
            findings.append(kind.finding((*path, key), message, "CFG014"))
            return rest
        case "sqlite" if place is not None and isinstance(place.value, str) and "://" not in place.value:
            # A path may have characters with a meaning in URLs.
            return {**rest, "url": replace(place, value=f"sqlite:///{quote(os.path.expanduser(place.value))}")}
        case "sqlite" | "postgres" if place is not None:
            return {**rest, "url": place}
    findings.append(kind.finding((*path, "kind"), f"expected {listed(_KINDS)}", "CFG013"))
    return rest


ALSO: Final[dict[type[Struct], dict[str, dict[str, object]]]] = {
    Settings: {
        "version": {
            "anyOf": [
                {"type": "string", "pattern": f"^{_FIRST.pattern}$"},
                {"type": "number", "minimum": 1, "exclusiveMaximum": 2},
            ]
        }
    },
    Audit: {"sink": {"enum": list(_SINKS)}},
    Store: {"kind": {"enum": _KINDS}, "path": {"type": "string"}},
}
"""JSON Schemas of what is translated, by key."""

_TRANSLATIONS: Final[dict[type[Struct], Translation]] = {Settings: _settings, Audit: _sink, Store: _store}
