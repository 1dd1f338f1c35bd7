"""Results from outside, cleaned of what people do not see and models do: hidden characters, comments, endless text."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from waypost.capabilities.context import Context, Handler
from waypost.capabilities.results import Result, to_result
from waypost.loops import maybe_await
from waypost.wire.content import Text

LONGEST: Final = 100_000
"""Characters of one text that are kept."""

_UNSEEN: Final = re.compile(
    "[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f"  # controls, but for tab and new lines
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e"  # soft hyphens and fillers
    "\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff"  # of no width, and those that turn the direction
    "\ufff9-\ufffb\U000e0000-\U000e0fff]"  # annotations, tags and selectors of plane 14
)


def cleaning(run: Handler) -> Handler:
    """A handler whose results are cleaned."""

    async def clean(arguments: Any, ctx: Context) -> Result:
        result = to_result(await maybe_await(run(arguments, ctx)))
        content = [_block(block) for block in result.content]
        return msgspec.structs.replace(result, content=content, structured=_cleaned(result.structured))

    return clean


def sanitised(text: str) -> str:
    """A text without what is not there to be seen; what is cut off is said."""
    clean = _uncommented(_UNSEEN.sub("", text))
    if len(clean) <= LONGEST:
        return clean
    return f"{clean[:LONGEST]}\n[{len(clean) - LONGEST} more characters were cut off]"


def _uncommented(text: str) -> str:
    """The text without comments of HTML; one that does not end takes the rest."""
    kept, start = [], 0
    while (found := text.find("<!--", start)) >= 0:
        kept.append(text[start:found])
        end = text.find("-->", found)
        if end < 0:
            return "".join(kept)
        start = end + 3
    return text if not kept else "".join([*kept, text[start:]])


def _block(block: Any) -> Any:
    return msgspec.structs.replace(block, text=sanitised(block.text)) if isinstance(block, Text) else block


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return sanitised(value)
    if isinstance(value, dict):
        return {_cleaned(key): _cleaned(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_cleaned(one) for one in value]
    return value
