"""URI templates of RFC 6570, levels 1 and 2: `{var}`, `{+var}` and `{#var}`."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from waypost.errors import DefinitionError

_EXPRESSION: Final = re.compile(r"\{([^{}]*)\}")
_VARIABLE: Final = re.compile(r"([+#]?)([A-Za-z_][A-Za-z0-9_]*)")
_CHARACTER: Final = {"": "[^/?#]", "+": ".", "#": "."}
_RESERVED: Final = "-._~:/?#[]@!$&'()*+,;="
_KEPT: Final = {"": "-._~", "+": _RESERVED, "#": _RESERVED}
_LONGEST: Final = 8192
_ENCODED_TWICE: Final = re.compile(r"%25([0-9A-Fa-f]{2})")


class UriTemplate:
    """A template that can be filled in, and matched against a URI to get its variables back."""

    def __init__(self, template: str) -> None:
        self.template = template
        self._parts: list[tuple[str, str, str]] = []
        position = 0
        for expression in _EXPRESSION.finditer(template):
            literal = self._literal(template[position : expression.start()])
            if not literal and self._parts and not expression[1].startswith("#"):
                raise DefinitionError(
                    f"URI template {template!r} has two variables side by side; put something between."
                )
            self._parts.append((literal, *self._variable(expression[1])))
            position = expression.end()
        self._tail = self._literal(template[position:])
        self._pattern = re.compile(self._regex(), re.DOTALL)
        self.variables = tuple(name for _, _, name in self._parts)
        if len(set(self.variables)) != len(self.variables):
            raise DefinitionError(f"URI template {template!r} uses a variable twice.")

    def _regex(self) -> str:
        """A pattern that hardly ever has to try twice: only one value may hold what comes behind it."""
        greedy = max((index for index, (_, operator, _) in enumerate(self._parts) if operator), default=-1)
        following = [re.escape(literal) or operator for literal, operator, _ in self._parts[1:]]
        pattern = ""
        for index, (literal, operator, _) in enumerate(self._parts):
            character = _CHARACTER[operator]
            if index < len(following) and index != greedy:
                character = f"(?:(?!{following[index]}){character})"
            pattern += re.escape(literal) + (f"(?:#({character}+))?" if operator == "#" else f"({character}+)")
        return pattern + re.escape(self._tail)

    def _literal(self, text: str) -> str:
        if "{" in text or "}" in text:
            raise DefinitionError(f"URI template {self.template!r} has an unbalanced brace.")
        return text

    def _variable(self, expression: str) -> tuple[str, str]:
        found = _VARIABLE.fullmatch(expression)
        if found is None:
            raise DefinitionError(
                f"URI template {self.template!r}: {{{expression}}} is unknown; use {{name}}, {{+name}} or {{#name}}."
            )
        return found[1], found[2]

    def match(self, uri: str) -> dict[str, str] | None:
        """The variables that give `uri`, percent-decoded; `None` if no values do."""
        found = self._pattern.fullmatch(uri) if len(uri) <= _LONGEST else None
        if found is None:
            return None
        try:
            return {
                name: unquote_to_bytes(value or "").decode()
                for name, value in zip(self.variables, found.groups(), strict=True)
            }
        except UnicodeDecodeError:
            return None

    def expand(self, **variables: str) -> str:
        """The URI for these values."""
        filled = []
        for literal, operator, name in self._parts:
            value = quote(variables.get(name, ""), safe=_KEPT[operator])
            if operator:
                value = _ENCODED_TWICE.sub(r"%\1", value)
            filled.append(literal + ("#" if operator == "#" and value else "") + value)
        return "".join(filled) + self._tail
