"""Checking the prompts of a configuration."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NamedTuple

from waypost.config.findings import Finding, KeyPath, finding, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jinja2 import Environment, nodes

    from waypost.config.nodes import Node

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
    except OverflowError:
        return sys.maxsize
    except (TypeError, ValueError):
        return 0
