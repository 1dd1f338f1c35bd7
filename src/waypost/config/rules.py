"""Rules about single sections that no model can say: references to toolkits, prompts, skills, key sets."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from waypost.config.findings import Finding, KeyPath, finding, quoted, quoted_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jinja2 import Environment, nodes

    from waypost.config.nodes import Node


_NAMED = re.compile(r"(?P<target>.+):(?P<name>[A-Za-z_]\w*)", re.DOTALL)
_MODULE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")


def split(reference: str) -> tuple[str, str | None]:
    """The file or module of a reference, and the name inside it if one is given."""
    match = _NAMED.fullmatch(reference)
    return (match["target"], match["name"]) if match else (reference, None)


def file_of(reference: str) -> Path | None:
    """The file a reference names, or None when it names a module."""
    target, _ = split(reference)
    is_file = target.startswith(("./", "../", "/")) or target.endswith(".py")
    return Path(target) if is_file else None


def absolute(reference: str, folder: str) -> str:
    """The reference with its file, if it names one, taken relative to `folder`."""
    file = file_of(reference)
    if file is None:
        return reference
    _, name = split(reference)
    path = os.path.abspath(os.path.join(folder, file))
    return f"{path}:{name}" if name else path


def is_module(reference: str) -> bool:
    """Whether a reference has the form of a module or of a name in one."""
    return _MODULE.fullmatch(split(reference)[0]) is not None


def check_timeouts(root: Node, data: dict[str, Any], findings: list[Finding]) -> None:
    """Report a tool timeout that is given in both of its places with different values."""
    name = "toolTimeoutMs"
    node, other = root.at("mcp", name), root.at("server", name)
    values = {(data.get(section) or {}).get(name) for section in ("server", "mcp")} - {None}
    if node is not None and other is not None and len(values) > 1:
        same = quoted(f"server.{other.spelt or name}")
        message = f"the value differs from {same}, which is the same setting; keep one of the two"
        findings.append(node.finding(("mcp", node.spelt or name), message, "CFG060"))


def check_connections(data: dict[str, Any], root: Node, findings: list[Finding]) -> None:
    """Report MCP servers that are neither started nor reached at an address, and those of which only one is done."""
    for name, connection in data.get("connections", {}).items():
        node = root.at("connections", name)
        if connection.get("kind") != "mcp" or node is None:
            continue
        path = ("connections", name, "command")
        if {"command", "url"} <= connection.keys():
            message = "a url is given too, so nothing is started; remove the `command` or the `url`"
            findings.append(node.finding(path, message, "CFG075"))
        elif not {"command", "url"} & connection.keys() and not any(
            # Of a misspelt key, or of the entry of `mcpServers` that it was made of: one mistake, one finding.
            found.path[:2] in (path[:2], ("mcpServers", name))
            for found in findings
        ):
            message = "the key `command` is missing; add the program to start, or the `url` of a server that runs"
            findings.append(node.finding(path, message, "CFG014"))


def check_key_set(root: Node, findings: list[Finding]) -> None:
    """Report a file of public keys that is not there."""
    path = ("auth", "oauth", "jwks")
    node = root.at(*path)
    named = node.value if node is not None and isinstance(node.value, str) else ""
    if node is not None and named and "://" not in named and not os.path.isfile(named):
        message = f"the file {quoted_file(named)} does not exist; check the path"
        findings.append(node.finding(path, message, "CFG065"))


def check_skills(root: Node, findings: list[Finding]) -> None:
    """Report a directory of skills that is a file, or not there."""
    path = ("skills", "dynamic")
    node = root.at(*path)
    if node is None or not isinstance(node.value, str) or os.path.isdir(node.value):
        return
    if os.path.exists(node.value):
        message = f"{quoted_file(node.value)} is a file; name the directory of the skills"
        findings.append(node.finding(path, message, "CFG068"))
    else:
        message = f"the directory {quoted_file(node.value)} does not exist; create it, or check the path"
        findings.append(node.finding(path, message, "CFG082"))


def check_toolkits(root: Node, findings: list[Finding]) -> None:
    """Report toolkit references that lead nowhere."""
    toolkits = root.at("toolkits")
    for index, entry in enumerate(toolkits.value if toolkits and isinstance(toolkits.value, list) else []):
        used = entry.at("use") if isinstance(entry.value, dict) else entry
        path: KeyPath = ("toolkits", index) if used is entry else ("toolkits", index, "use")
        if used is not None and isinstance(used.value, str) and used.value:
            _check_reference(used, used.value, path, findings)


def _check_reference(node: Node, reference: str, path: KeyPath, findings: list[Finding]) -> None:
    file = file_of(reference)
    if file is None:
        if not is_module(reference):
            message = f"{quoted(reference)} is neither a file such as `./tools.py` nor a module such as `pkg.mod:Kit`"
            findings.append(node.finding(path, message, "CFG040"))
    elif not os.path.exists(file):
        message = f"the file {quoted_file(str(file))} does not exist; check the path"
        findings.append(node.finding(path, message, "CFG041"))


# What Jinja2 itself defines in loops, blocks and macros.
_PROVIDED = frozenset({"loop", "self", "super", "caller", "varargs", "kwargs"})


class _Variables(NamedTuple):
    """What a template reads, and what of it neither the template nor Jinja2 defines."""

    read: set[str]
    foreign: set[str]


def check_prompts(root: Node, findings: list[Finding]) -> None:
    """Report templates that cannot be rendered, and arguments that do not match their template."""
    prompts = root.at("prompts")
    if prompts is None or not isinstance(prompts.value, dict):
        return
    for name, prompt in prompts.value.items():
        _check_prompt(prompt, ("prompts", name), findings)


def _check_prompt(prompt: Node, path: KeyPath, findings: list[Finding]) -> None:
    arguments = _arguments(prompt, path, findings)
    template = prompt.at("template")
    if template is None or not isinstance(template.value, str):
        return
    try:
        used = _variables(template, template.value, (*path, "template"), findings)
    except RecursionError:
        findings.append(template.finding((*path, "template"), "the template is nested too deeply", "CFG050"))
        return
    if used is None:
        return
    for variable in sorted(used.foreign - arguments.keys()):
        message = f"the variable {quoted(variable)} is not among the arguments; declare it, or it will be empty"
        findings.append(template.finding((*path, "template"), message, "CFG051"))
    for name, node in arguments.items():
        if name not in used.read:
            message = f"the template does not use the argument {quoted(name)}"
            findings.append(node.finding((*path, "arguments"), message, "CFG053"))


def _arguments(prompt: Node, path: KeyPath, findings: list[Finding]) -> dict[str, Node]:
    declared: dict[str, Node] = {}
    arguments = prompt.at("arguments")
    for index, argument in enumerate(arguments.value if arguments and isinstance(arguments.value, list) else []):
        name = argument.at("name")
        if name is None or not isinstance(name.value, str):
            continue
        if name.value in declared:
            message = f"the argument {quoted(name.value)} is declared twice; remove one"
            findings.append(name.finding((*path, "arguments", index, "name"), message, "CFG052"))
            continue
        declared[name.value] = name
    return declared


def _variables(node: Node, text: str, path: KeyPath, findings: list[Finding]) -> _Variables | None:
    """The variables of a template, or None when it cannot be rendered."""
    from jinja2 import Environment, TemplateSyntaxError
    from jinja2.nodes import Macro, Name

    # Only parsed: compiling would evaluate constants such as `9 ** 9 ** 9`.
    environment = Environment(autoescape=False)  # noqa: S701
    try:
        tree = environment.parse(text)
        problems = list(_unusable(tree, environment))
    except TemplateSyntaxError as error:
        problems = [(error.lineno, error.message or "the syntax is wrong")]
    except ValueError:
        problems = [(1, "a number in it is too long")]
    if problems:
        for line, problem in problems:
            message = f"the template cannot be rendered: {problem.rstrip('.')}"
            findings.append(finding(node.file, node.text_line + line - 1, path, message, "CFG050"))
        return None
    names = list(tree.find_all(Name))
    bound = {name.name for name in names if name.ctx != "load"}
    bound.update(macro.name for macro in tree.find_all(Macro))
    read = {name.name for name in names if name.ctx == "load"}
    return _Variables(read, read - bound - _PROVIDED - environment.globals.keys())


def _unusable(tree: nodes.Template, environment: Environment) -> Iterator[tuple[int, str]]:
    from jinja2.nodes import Extends, Filter, FromImport, Import, Include, Test

    for loading in tree.find_all((Extends, FromImport, Import, Include)):
        yield loading.lineno, "it loads another template, which prompts cannot"
    for call in tree.find_all((Filter, Test)):
        known = environment.filters if isinstance(call, Filter) else environment.tests
        if call.name not in known:
            yield call.lineno, f"there is no {type(call).__name__.lower()} named {quoted(call.name)}"
    yield from _forbidden(tree)


def _forbidden(tree: nodes.Template) -> Iterator[tuple[int, str]]:
    """What the sandbox refuses whatever the arguments are, as far as it stands in the template."""
    from jinja2.nodes import Call, Const, Getattr, Getitem
    from jinja2.sandbox import MAX_RANGE

    # The sandbox finds them when the prompt is rendered, which is too late for the operator who wrote it.
    named = [(one.lineno, one.attr) for one in tree.find_all(Getattr)]
    named += [(one.lineno, one.arg.value) for one in tree.find_all(Getitem) if isinstance(one.arg, Const)]
    for line, name in named:
        if isinstance(name, str) and name.startswith("__") and name.endswith("__"):
            yield line, f"it uses {quoted(name)}, which prompts cannot"
    for call in tree.find_all(Call):
        if getattr(call.node, "name", None) == "range" and _length(call.args) > MAX_RANGE:
            yield call.lineno, f"it has a range of more than {MAX_RANGE:,} numbers, which prompts cannot"


def _length(bounds: list[nodes.Expr]) -> int:
    """How many numbers there are between bounds that stand in a template; others are not calculated."""
    from jinja2.nodes import Const, Neg

    numbers = []
    for bound in bounds:
        sign, bare = (-1, bound.node) if isinstance(bound, Neg) else (1, bound)
        if not isinstance(bare, Const) or not isinstance(bare.value, int):
            return 0
        numbers.append(sign * bare.value)
    try:
        return len(range(*numbers))
    # `len` cannot count further than `sys.maxsize`.
    except OverflowError:
        return sys.maxsize
    except (TypeError, ValueError):
        return 0
