"""Rules between settings, which no type can say."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from waypost.config import references
from waypost.config.findings import quoted, quoted_file
from waypost.settings import DEFAULT_BUS

if TYPE_CHECKING:
    from waypost.config.findings import Finding, KeyPath
    from waypost.config.nodes import Node


def check_timeouts(root: Node, data: dict[str, Any], findings: list[Finding]) -> None:
    """Report a tool timeout that is given in both of its places with different values."""
    name = "toolTimeoutMs"
    node, other = root.at("mcp", name), root.at("server", name)
    values = {(data.get(section) or {}).get(name) for section in ("server", "mcp")} - {None}
    if node is not None and other is not None and len(values) > 1:
        same = quoted(f"server.{other.spelt or name}")
        message = f"the value differs from {same}, which is the same setting; keep one of the two"
        findings.append(node.finding(("mcp", node.spelt or name), message, "CFG060"))


def check_bus(root: Node, findings: list[Finding]) -> None:
    """Report a bus that does not exist."""
    path = ("bus", "url")
    node = root.at(*path)
    if node is not None and isinstance(node.value, str) and node.value not in ("", DEFAULT_BUS):
        message = f"the only bus is {quoted(DEFAULT_BUS)}, within one process; nats:// comes later"
        findings.append(node.finding(path, message, "CFG062"))


def check_key_set(root: Node, findings: list[Finding]) -> None:
    """Report a file of public keys that is not there."""
    path = ("auth", "oauth", "jwks")
    node = root.at(*path)
    named = node.value if node is not None and isinstance(node.value, str) else ""
    if node is not None and named and "://" not in named and not os.path.isfile(named):
        message = f"the file {quoted_file(named)} does not exist; check the path"
        findings.append(node.finding(path, message, "CFG065"))


def check_skills(root: Node, findings: list[Finding]) -> None:
    """Report a directory of skills that is a file."""
    path = ("skills", "dynamic")
    node = root.at(*path)
    if node is not None and isinstance(node.value, str) and os.path.isfile(node.value):
        message = f"{quoted_file(node.value)} is a file; name the directory of the skills"
        findings.append(node.finding(path, message, "CFG068"))


def check_toolkits(root: Node, findings: list[Finding]) -> None:
    """Report toolkit references that lead nowhere."""
    toolkits = root.at("toolkits")
    for index, entry in enumerate(toolkits.value if toolkits and isinstance(toolkits.value, list) else []):
        used = entry.at("use") if isinstance(entry.value, dict) else entry
        path: KeyPath = ("toolkits", index) if used is entry else ("toolkits", index, "use")
        if used is not None and isinstance(used.value, str) and used.value:
            _check_reference(used, used.value, path, findings)


def _check_reference(node: Node, reference: str, path: KeyPath, findings: list[Finding]) -> None:
    file = references.file_of(reference)
    if file is None:
        if not references.is_module(reference):
            message = f"{quoted(reference)} is neither a file such as `./tools.py` nor a module such as `pkg.mod:Kit`"
            findings.append(node.finding(path, message, "CFG040"))
    elif not os.path.exists(file):
        message = f"the file {quoted_file(str(file))} does not exist; check the path"
        findings.append(node.finding(path, message, "CFG041"))
