"""Variables of the environment in a file, and the secret values that no text may show."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from waypost.config.findings import quoted
from waypost.config.nodes import UNKNOWN, Node
from waypost.redaction import is_secret_name, secrets_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from waypost.config.findings import Finding, KeyPath


_REFERENCE = re.compile(
    r"""
    \$\$\{                                             # an escaped one
    | \$\{ (?: (?P<name>[A-Za-z_][A-Za-z0-9_]*)
               (?: :- (?P<default>(?:(?!\$\{)[^}])*) )?
               \} )?                                   # without this part it is malformed
    """,
    re.VERBOSE,
)


def expand(node: Node, environ: Mapping[str, str], findings: list[Finding], path: KeyPath = ()) -> Node:
    """The node with every variable in its values replaced; keys stay as they are."""
    value = node.value
    if isinstance(value, dict):
        return replace(node, value={k: expand(v, environ, findings, (*path, k)) for k, v in value.items()})
    if isinstance(value, list):
        return replace(node, value=[expand(v, environ, findings, (*path, i)) for i, v in enumerate(value)])
    if isinstance(value, str) and "${" in value:
        return _expand_text(node, value, environ, findings, path)
    return node


def _expand_text(node: Node, text: str, environ: Mapping[str, str], findings: list[Finding], path: KeyPath) -> Node:
    problems: list[Finding] = []

    def substitute(match: re.Match[str]) -> str:
        name, default = match["name"], match["default"]
        if match[0] == "$${":
            return "${"
        if name is None:
            message = "a variable is written `${NAME}` or `${NAME:-default}`; write `$${` for a literal `${`"
            problems.append(node.finding(path, message, "CFG021"))
            return ""
        given = environ.get(name)
        if default is not None:
            return given or str(default)
        if given is None:
            message = f"the variable {quoted(name)} is not set; set it, or write `${{{name}:-default}}`"
            problems.append(node.finding(path, message, "CFG020"))
            return ""
        return given

    expanded = _REFERENCE.sub(substitute, text)
    findings.extend(problems)
    # Inside `{...}` YAML demands quotes around a variable, so they do not make it text for good.
    return replace(node, value=UNKNOWN if problems else expanded, plain=True)


_MAPPINGS: Final = ("env", "headers")


def secrets(root: Node) -> tuple[str, ...]:
    """What environments and headers hold under the name of a secret, the workers' token, the store's password."""
    return secrets_of(*({"": value} for value in _values(root)))


def _values(root: Node) -> Iterator[str]:
    yield from _named(root)
    token, store = root.at("workers", "token"), root.at("store", "url")
    if token is not None and isinstance(token.value, str):
        yield token.value
    if store is not None and isinstance(store.value, str) and (password := _password(store.value)):
        yield password
        yield unquote(password)


def _named(node: Node) -> Iterator[str]:
    """The secrets in whatever is a mapping of names to texts."""
    value = node.value
    if isinstance(value, list):
        for child in value:
            yield from _named(child)
    if isinstance(value, dict):
        for key, child in value.items():
            if key in _MAPPINGS and isinstance(child.value, dict):
                named = [one.value for name, one in child.value.items() if is_secret_name(name)]
                yield from (one for one in named if isinstance(one, str) and not one.startswith("$."))
            else:
                yield from _named(child)


def _password(url: str) -> str | None:
    try:
        return urlsplit(url).password
    except ValueError:
        return None
