"""Reading what strangers wrote, in a process that can be killed."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import msgspec

from waypost.errors import ToolError
from waypost.execution.processes import make_environment, run_process

READER: Final = Path(__file__).with_name("reading.py")
MOST_BYTES: Final = 16 * 1024 * 1024
WITHIN: Final = 10.0
MISSING: Final = "The library {} is missing; it comes with pip install 'waypost[skills]'."


async def read_page(html: str, url: str, form: str, most: int, within: float = WITHIN) -> dict[str, Any]:
    """A page's title, readable part and links."""
    return await _read(
        {"what": "page", "url": url, "form": form, "most": most}, html.encode("utf-8", "replace"), within
    )


async def read_feed(body: bytes, url: str, content_type: str, within: float = WITHIN) -> dict[str, Any]:
    """A feed's title and items."""
    return await _read({"what": "feed", "url": url, "type": content_type}, body, within)


async def _read(asked: dict[str, Any], document: bytes, within: float) -> dict[str, Any]:
    directory = Path(tempfile.gettempdir())
    variables = make_environment(directory) | {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    given = msgspec.json.encode(asked) + b"\n" + document
    try:
        ended = await run_process(
            (sys.executable, "-P", str(READER)),
            directory,
            variables,
            within=within,
            max_bytes=MOST_BYTES,
            stdin_data=given,
        )
    except TimeoutError:
        raise ToolError(f"What was fetched could not be read within {within:g} s.") from None
    if ended.code != 0 or ended.truncated:
        raise ToolError("What was fetched could not be read.")
    answer: dict[str, Any] = msgspec.json.decode(ended.out)
    if "missing" in answer:
        raise ToolError(MISSING.format(answer["missing"]))
    return answer
