"""The tables of settings in `docs/configuration.md`: `python -m tests.config.reference FILE` rewrites them.

A table follows a line `<!-- settings: SECTION -->`; the one after `<!-- settings -->` has all other sections.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args, get_origin

import msgspec
from msgspec import NODEFAULT, Meta, Struct

from waypost.config.checks import Annotation, choices, entry_types, find_model, item_type, members, path_kind
from waypost.settings import Settings

ELSEWHERE: Final = ("connections", "mcpServers", "capabilities", "workflows", "proxy.expose[].reliability")
"""Settings whose own settings are on other pages."""
_SEE: Final = {
    "include": "[Includes](#includes)",
    "store": "[The store](store.md)",
    "toolkits": "[Toolkits](#toolkits)",
    "prompts": "[Prompts](#prompts)",
    "auth": "[Auth](#auth)",
    "skills": "[Skills](#skills)",
    "connections": "[Connections](workflow-executors.md#connections)",
    "mcpServers": "[Servers of a client's configuration](upstreams.md#servers-of-a-clients-configuration)",
    "capabilities": "[An action](workflow-reference.md#an-action)",
    "workflows": "[Workflows](workflows.md) and [A workflow](workflow-reference.md#a-workflow)",
    "proxy": "[Proxy](#proxy)",
    "workers": "[Workers](workers.md)",
    "workers.registry": "[Documents and prompts](content.md)",
    "workers.observe": "[Observing](worker-reference.md#observing)",
    "workers.allowPrivate": "[Functions at a URL](worker-reference.md#functions-at-a-url)",
    "workers.secrets": "[Functions at a URL](worker-reference.md#functions-at-a-url)",
    "search": "[Search and ranking](search.md)",
    "breakers": "[Circuit breakers](policies.md#circuit-breakers)",
    "policies": "[Policies](#policies)",
    "audit": "[The audit](audit.md)",
    "limits": "[Limits](#limits)",
    "server.maxResultBytes": "[Large results](tools-and-toolkits.md#large-results)",
    "skills.folders": "[Folders of skills](skill-folders.md)",
    "skills.prompts": "[Prompts](skill-folders.md#prompts)",
    "skills.limits": "[Isolation](skills.md#isolation)",
    "skills.permissions": "[Permissions](skills.md#permissions)",
    "proxy.expose[].guards": "[Guards](workflow-reference.md#guards)",
    "proxy.expose[].executor": "[Executors](workflow-executors.md)",
    "proxy.expose[].reliability": "[Reliability](workflow-executors.md#reliability)",
    "policies[].config": "[Types of policies](policies.md#types-of-policies)",
    "policies[].callers": "[Which calls a policy applies to](policies.md#which-calls-a-policy-applies-to)",
}
"""Where to read more about a setting."""
_TABLE: Final = re.compile(r"^<!-- settings(?:: (?P<section>\w+))? -->\n\n(?:\|.*\n)*", re.MULTILINE)
_WORDS: Final[dict[Any, str]] = {
    str: "text",
    int: "integer",
    float: "number",
    bool: "true or false",
    dict: "mapping",
    Any: "any value",
}
_UNITS: Final = {"Ms": "milliseconds, ", "Bytes": "bytes, ", "Seconds": "seconds, "}


class Setting(NamedTuple):
    """One setting: its path, such as `server.port`, and its field in the model."""

    name: str
    field: msgspec.structs.FieldInfo


def list_settings(model: type[Struct] = Settings, prefix: str = "") -> Iterator[Setting]:
    """Yield every setting of a model, each section before its own settings."""
    for field in msgspec.structs.fields(model):
        name = prefix + field.encode_name
        yield Setting(name, field)
        if name in ELSEWHERE:
            continue
        if (entry := entry_types(field.type)) and (inner := find_model(entry[1], {})):
            yield from list_settings(inner, f"{name}.<name>.")
        elif (item := item_type(field.type)) is not None and (inner := find_model(item, {})):
            yield from list_settings(inner, f"{name}[].")
        elif inner := find_model(field.type, {}):
            yield from list_settings(inner, f"{name}.")


def fill_page(page: str) -> str:
    """Rewrite the tables of a page."""
    own = {match["section"] for match in _TABLE.finditer(page)} - {None}
    rows: dict[str | None, list[str]] = {}
    for setting in list_settings():
        section = re.split(r"[.\[]", setting.name)[0]
        is_own = section in own and setting.name != section
        rows.setdefault(section if is_own else None, []).append(_format_row(setting))
    head = "| setting | type | default | meaning |\n|---|---|---|---|\n"

    def fill(match: re.Match[str]) -> str:
        marker = match[0].partition("\n")[0]
        return f"{marker}\n\n{head}{''.join(rows[match['section']])}"

    return _TABLE.sub(fill, page)


def _format_row(setting: Setting) -> str:
    name, field = setting
    see = f" See {_SEE[name]}." if name in _SEE else ""
    cells = (f"`{name}`", _format_type(field.type, name), _format_default(field), f"{_describe(field.type)}{see}")
    return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|\n"


def _describe(annotation: Annotation) -> str:
    """The description in the `Meta` of a setting."""
    return next(note.description for note in get_args(annotation)[1:] if isinstance(note, Meta) and note.description)


def _format_default(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "required"
    default = field.default
    if default is NODEFAULT:
        default = field.default_factory() if field.default_factory not in (NODEFAULT, None) else None
    if default is None or isinstance(default, Struct):
        return ""
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"`{default}`" if default != "" else '`""`'


def _format_type(annotation: Annotation, name: str) -> str:
    if item_type(annotation) is not None:
        inner = _format_type(item_type(annotation), name)
        plural = re.sub(r"\b(mapping|reference|list)\b", r"\1s", inner).replace("directory", "directories")
        return "list" if inner == "any value" else f"list of {plural}"
    if words := choices(annotation):
        return ", ".join(f"`{word}`" for word in words)
    if kind := path_kind(annotation):
        is_mapping = any(find_model(one, {}) for one in members(annotation))
        return f"{'reference' if kind == 'toolkit' else kind}{' or mapping' if is_mapping else ''}"
    bounds = _get_bounds(annotation)
    if bounds is not None:
        unit = next((word for end, word in _UNITS.items() if name.endswith(end)), "")
        return f"{unit}{bounds[0]:,} to {bounds[1]:,}"
    words = []
    for member in members(annotation):
        if member is not type(None):
            is_model = isinstance(member, type) and issubclass(member, Struct)
            words.append("mapping" if is_model else _WORDS.get(get_origin(member) or member, "mapping"))
    return ", ".join(dict.fromkeys(words))


def _get_bounds(annotation: Annotation) -> tuple[int, int] | None:
    """The minimum and the maximum of a number that has both."""
    for part in get_args(annotation):
        if isinstance(part, Meta) and part.ge is not None and part.le is not None:
            return int(part.ge), int(part.le)
        if (found := _get_bounds(part)) is not None:
            return found
    return None


if __name__ == "__main__":
    for given in sys.argv[1:]:
        file = Path(given)
        file.write_text(fill_page(file.read_text()))
