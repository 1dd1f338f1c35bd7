"""What a server answered: a dict whose members are attributes too, in either spelling."""

from __future__ import annotations

import re
from typing import Any, Final, Self

_NEXT_WORD: Final = re.compile(r"_([a-z0-9])")
_SHORT: Final = {"structured": "structuredContent", "meta": "_meta"}


class Reply(dict[str, Any]):
    """`reply["isError"]`, `reply.isError` and `reply.is_error` are one; a missing member is `None` as an attribute."""

    @classmethod
    def of(cls, value: dict[str, Any]) -> Self:
        """A reply whose nested objects are replies too."""
        return cls((key, _nested(cls, member)) for key, member in value.items())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        for spelling in (name, _SHORT.get(name, name), _NEXT_WORD.sub(lambda found: found[1].upper(), name)):
            if spelling in self:
                return self[spelling]
        return None

    @property
    def is_error(self) -> bool:
        """Whether a tool's answer says that it failed."""
        return bool(self.get("isError"))

    @property
    def text(self) -> str:
        """The text of this block, or of all text blocks in the content, contents or messages."""
        if isinstance(self.get("text"), str):
            return str(self["text"])
        parts = self.get("content") or self.get("contents") or self.get("messages") or []
        blocks = parts if isinstance(parts, list) else [parts]
        return "\n".join(block.text for block in blocks if isinstance(block, Reply) and block.text)


def _nested(kind: type[Reply], value: Any) -> Any:
    if isinstance(value, dict):
        return kind.of(value)
    return [_nested(kind, item) for item in value] if isinstance(value, list) else value
