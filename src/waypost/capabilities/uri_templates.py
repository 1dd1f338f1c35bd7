"""URI templates of RFC 6570, levels 1 and 2: `{var}`, `{+var}` and `{#var}`."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from waypost.errors import DefinitionError

_EXPRESSION: Final = re.compile(r"\{([^{}]*)\}")
_VARIABLE: Final = re.compile(r"([+#]?)([A-Za-z_][A-Za-z0-9_]*)")
_VALUE: Final = {"": "([^/?#]+)", "+": "(.+)", "#": "(?:#(.+))?"}
_KEPT: Final = {"": "-._~", "+": "-._~:/?#[]@!$&'()*+,;=%", "#": "-._~:/?#[]@!$&'()*+,;=%"}


class UriTemplate:
    """A template that can be filled in, and matched against a URI to get its variables back."""

    def __init__(self, template: str) -> None:
        self.template = template
        self._parts: list[tuple[str, str, str]] = []
        pattern = []
        position = 0
        for expression in _EXPRESSION.finditer(template):
            literal = self._literal(template[position : expression.start()])
            operator, name = self._variable(expression[1])
            self._parts.append((literal, operator, name))
            pattern.append(re.escape(literal) + _VALUE[operator])
            position = expression.end()
        self._tail = self._literal(template[position:])
        self._pattern = re.compile("".join(pattern) + re.escape(self._tail), re.DOTALL)
        self.variables = tuple(name for _, _, name in self._parts)
        if len(set(self.variables)) != len(self.variables):
            raise DefinitionError(f"URI template {template!r} uses a variable twice.")

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
        found = self._pattern.fullmatch(uri)
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
            filled.append(literal + ("#" if operator == "#" and value else "") + value)
        return "".join(filled) + self._tail
