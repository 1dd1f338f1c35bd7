"""URI templates of other servers: of any level, matched as they stand, and never costly."""

from __future__ import annotations

import re
from typing import Final

from waypost.capabilities.resources import MAX_URI_CHARACTERS, UriTemplate
from waypost.errors import DefinitionError

_EXPRESSION: Final = re.compile(r"\{([^{}]*)\}")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_MOST_EXPRESSIONS: Final = 32
_APART: Final = re.compile(r"[/?#]")


class ForeignTemplate(UriTemplate):
    """Finds out which URIs a server may answer for; what they mean is the server's business."""

    def __init__(self, template: str) -> None:
        self.template = template
        literals = _EXPRESSION.split(template)
        self._expressions = literals[1::2]
        self.beginning, *self._literals = literals[::2]
        self.variables = ()
        if not _SCHEME.match(self.beginning):
            raise DefinitionError("its URI template does not begin with a scheme.")
        if len(template) > MAX_URI_CHARACTERS or len(self._expressions) > _MOST_EXPRESSIONS:
            raise DefinitionError("its URI template is too long.")

    def match(self, uri: str) -> dict[str, str] | None:
        """The URI itself, if the template may have given it."""
        if len(uri) > MAX_URI_CHARACTERS or not uri.startswith(self.beginning):
            return None
        place = len(self.beginning)
        for index, (expression, literal) in enumerate(zip(self._expressions, self._literals, strict=True)):
            is_last = index == len(self._literals) - 1
            if is_last and not uri.endswith(literal):
                return None
            end = max(place, len(uri) - len(literal)) if is_last else uri.find(literal, place)
            if end < 0 or not _fits(expression, uri[place:end]):
                return None
            place = end + len(literal)
        return {"uri": uri} if place == len(uri) else None


def _fits(expression: str, value: str) -> bool:
    """Whether a value may stand for an expression; a plain one holds no separators."""
    plain = expression[:1].isalnum() or expression[:1] in ("_", "%")
    return bool(value) and _APART.search(value) is None if plain else True
