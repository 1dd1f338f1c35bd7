"""`waypost call`: call a tool of a hub."""

from __future__ import annotations

import json
from argparse import ArgumentTypeError, Namespace
from typing import TYPE_CHECKING, Any, Final

from waypost.capabilities.schemas.graph import follow_reference
from waypost.cli.command import Argument, Output, WrongUsage, format_text, parse_object
from waypost.cli.target import TARGET, call_gateway, list_everything, target_command
from waypost.errors import WaypostError
from waypost.suggestions import did_you_mean

if TYPE_CHECKING:
    from waypost.upstreams.client import Client


async def run(client: Client, args: Namespace) -> Output:
    """Call the tool; an error result goes to stderr and fails the command."""
    result = await client.call_tool(args.name, await _read_arguments(client, args))
    blocks = [format_text(block.text) if block.type == "text" else json.dumps(block) for block in result["content"]]
    text = "".join(f"{block}\n" for block in blocks)
    return Output(result, error=text, status=1) if result.is_error else Output(result, text)


async def _read_arguments(client: Client, args: Namespace) -> dict[str, Any]:
    """The arguments of the call: one JSON object, or pairs whose values are read as the tool's schema says."""
    words: list[str | dict[str, Any]] = args.arguments
    if len(words) == 1 and isinstance(words[0], dict):
        return words[0]
    pairs = [word for word in words if isinstance(word, str)]
    if len(pairs) < len(words):
        raise WrongUsage("The arguments are one JSON object, or pairs such as name=value, not both.")
    return read_pairs(args.name, pairs, await _find_schema(client, args) if pairs else {})


async def _find_schema(client: Client, args: Namespace) -> dict[str, Any]:
    """The input schema of the tool; an empty one where the hub does not tell."""
    tools = await client.list_tools()
    if all(entry.name != args.name for entry in tools):
        tools = (await list_everything(client, args.hub)).get("tools", [])
    for entry in tools:
        if entry.name == args.name and isinstance(entry.input_schema, dict):
            return entry.input_schema
    try:
        item = await call_gateway(client, args.hub, "describe", {"id": args.name})
    except WaypostError:
        item = None
    links = () if item is None else item.get("links", ())
    schemas = (link.get("input_schema") for link in links)
    return next((schema for schema in schemas if isinstance(schema, dict)), {})


def read_pairs(tool: str, pairs: list[str], schema: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """The arguments that pairs of names and values stand for.

    A list is one JSON value, or one pair for each item; a field of an object is named after a dot.
    """
    arguments: dict[str, Any] = {}
    fields: dict[str, list[str]] = {}
    properties = schema.get("properties")
    known = properties if isinstance(properties, dict) else {}
    for pair in pairs:
        name, _, text = pair.partition("=")
        head, dot, field = name.partition(".")
        if dot and name not in known and "object" in _find_types(known.get(head), schema):
            fields.setdefault(head, []).append(f"{field}={text}")
            continue
        # Tools drop what they do not declare, so a misspelt name would go unnoticed.
        if name not in known and known and not schema.get("additionalProperties") and "patternProperties" not in schema:
            hint = did_you_mean(name, known) or f"it takes {', '.join(known)}"
            raise WrongUsage(f"{tool} has no argument {prefix + name!r}; {hint}")
        value = _read_value(prefix + name, text, known.get(name, {}), schema)
        if name in arguments:
            if not isinstance(arguments[name], list) or not isinstance(value, list):
                raise WrongUsage(f"The argument {prefix + name!r} is given twice.")
            value = [*arguments[name], *value]
        arguments[name] = value
    for name, inner in fields.items():
        if name in arguments:
            raise WrongUsage(f"The argument {prefix + name!r} is given twice.")
        definitions = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
        kind = definitions | (follow_reference(known[name], schema) or known[name])
        arguments[name] = read_pairs(tool, inner, kind, f"{prefix}{name}.")
    return arguments


def _read_value(name: str, text: str, kind: Any, schema: dict[str, Any]) -> Any:
    types = _find_types(kind, schema)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = text
    if not types or _type_of(value) in types or (type(value) is int and "number" in types):
        return value
    if "string" in types:
        return text
    if "array" in types:
        return [_read_value(name, text, kind.get("items", {}) if isinstance(kind, dict) else {}, schema)]
    raise WrongUsage(f"The argument {name!r} is of type {' or '.join(sorted(types))}, and {text!r} is not.")


def _find_types(kind: Any, schema: dict[str, Any]) -> set[str]:
    """The JSON types that a schema allows; none where it does not say."""
    if not isinstance(kind, dict):
        return set()
    if (target := follow_reference(kind, schema)) is not None:
        return _find_types(target, {})  # nothing to follow in there: a definition may refer to itself
    allowed = [*kind.get("anyOf", ()), *kind.get("oneOf", ())]
    found = [{_type_of(value) for value in kind.get("enum", ())}, *(_find_types(one, schema) for one in allowed)]
    given = kind.get("type", ())
    return set().union({given} if isinstance(given, str) else given, *found)


def _type_of(value: Any) -> str:
    names = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}
    return names.get(type(value), "null")


def _parse_word(text: str) -> str | dict[str, Any]:
    """A pair of a name and a value, or else a JSON object."""
    if text.lstrip().startswith("{"):
        return parse_object(text)
    if "=" not in text:
        raise ArgumentTypeError(f"{text!r} is not a JSON object, and not `name=value`")
    return text


COMMAND: Final = target_command(
    run,
    "Call a tool.",
    "waypost call server.py:hub add a=1 b=2",
    TARGET,
    Argument("name", metavar="NAME", help="the tool"),
    Argument(
        "arguments",
        nargs="*",
        type=_parse_word,
        default=[],
        metavar="ARGUMENTS",
        help="its arguments: pairs such as a=1 or point.x=2, or one JSON object",
    ),
    resumes_runs=True,
)
