"""What a skill says about itself, read from its source without running it."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec

from waypost.capabilities.results import round_trip_json
from waypost.capabilities.schemas.forms import RawForm, is_raw
from waypost.errors import DefinitionError
from waypost.skills.child.messages import VALUES, Ready
from waypost.skills.files import Source
from waypost.skills.network_use import network_use
from waypost.skills.refusals import SkillRefused

PERMISSIONS: Final = (
    "skill_invoke",
    "workflow_run",
    "web_read",
    "llm",
    "state_read",
    "state_write",
    "resources_read",
    "config_read",
)
"""What a skill may ask for."""

_INPUT: Final = "Input data passed to the skill (string, or JSON-encoded)"


class Declaration(msgspec.Struct, frozen=True):
    """The values of a skill's module; what is not there has its default."""

    description: str | None = None
    version: str | None = None
    permissions: tuple[str, ...] | None = None
    routes: tuple[str, ...] | None = None
    external: bool | None = None
    input_schema: dict[str, Any] | None = None

    @property
    def arguments(self) -> RawForm:
        """What the tool takes: `input`, `config` and the skill's own fields."""
        own = self.input_schema or {}
        whole = own if is_raw(own) else {"properties": own}
        branches = f" Possible output branches: {', '.join(self.routes)}." if self.routes else ""
        base = {"input": {"type": "string", "description": _INPUT + branches}, "config": {"type": "object"}}
        properties = whole.get("properties", {})
        if not isinstance(properties, dict) or not all(isinstance(part, dict | bool) for part in properties.values()):
            raise DefinitionError("input_schema must map names to JSON Schemas, or be a schema of an object")
        return RawForm({"type": "object", **whole, "properties": {**base, **properties}})


def examined(source: Source, known: Collection[str]) -> Declaration:
    """The declaration of a skill whose source may be run; anything against that is `SkillRefused`."""
    tree = _parsed(source)
    if not _binds_run(tree):
        raise SkillRefused("missing_run", f"{source.file} has no function run(args, ctx).")
    declaration = _declaration(source, _literals(source, tree))
    unknown = [name for name in declaration.permissions or () if name not in known]
    if unknown:
        raise SkillRefused(
            "unknown_permissions", f"{source.file} asks for permissions that do not exist: {', '.join(unknown)}."
        )
    uses = [] if declaration.external else network_use(tree)
    if uses:
        raise SkillRefused(
            "undeclared_external",
            f"{source.file} reaches out of its process without external = True: {', '.join(uses)}.",
        )
    return declaration


def agree(source: Source, ready: Ready) -> None:
    """Refuse a module that turned out to say something else than its source shows."""
    shown = round_trip_json(_literals(source, _parsed(source)))
    for name in VALUES:
        if name in ready.odd or (name in shown) != (name in ready.values) or shown.get(name) != ready.values.get(name):
            raise SkillRefused(
                "bad_metadata", f"{source.file}: {name} must be assigned once, at the top level, as a plain literal."
            )


def _parsed(source: Source) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source.text.encode(), source.file)
    except SyntaxError as error:
        line = f", line {error.lineno}" if error.lineno else ""
        raise SkillRefused("compilation_error", f"{source.file}{line}: {error.msg}.") from None
    except (ValueError, RecursionError, MemoryError) as error:
        said = str(error) or "it is nested too deeply"
        raise SkillRefused("compilation_error", f"{source.file} is not a Python source: {said}.") from None


def _binds_run(tree: ast.Module) -> bool:
    return any(
        (isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == "run")
        or (isinstance(node, ast.Name) and node.id == "run" and isinstance(node.ctx, ast.Store))
        or (isinstance(node, ast.alias) and (node.asname or node.name) == "run")
        for node in ast.walk(tree)
    )


def _literals(source: Source, tree: ast.Module) -> dict[str, Any]:
    """The values assigned at the top level; one that is not a literal is refused."""
    found: dict[str, Any] = {}
    for name, value in _assignments(tree):
        try:
            found[name] = ast.literal_eval(value)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            line = value.lineno
            raise SkillRefused(
                "bad_metadata", f"{source.file}, line {line}: {name} must be a plain literal, for it is read unrun."
            ) from None
    return found


def _assignments(tree: ast.Module) -> list[tuple[str, ast.expr]]:
    found = []
    for node in tree.body:
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            targets, value = [node.target], node.value
        else:
            continue
        found += [(target.id, value) for target in targets if isinstance(target, ast.Name) and target.id in VALUES]
    return found


def _declaration(source: Source, literals: Mapping[str, Any]) -> Declaration:
    try:
        for name in ("permissions", "routes"):
            if isinstance(literals.get(name), set | frozenset | dict):
                raise DefinitionError(f"{name} must be a list of strings")
        declaration = msgspec.convert(literals, Declaration)
        round_trip_json(literals)
        _ = declaration.arguments
    except (msgspec.ValidationError, DefinitionError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise SkillRefused("bad_metadata", f"{source.file}: {str(error).rstrip('.')}.") from None
    return declaration
