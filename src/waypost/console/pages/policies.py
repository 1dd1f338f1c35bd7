"""Policies: the rules in the order in which they decide, and a dry run."""

from __future__ import annotations

import json
from typing import Any, Final

from waypost.console.page import Done, InvalidForm, Page, View

MAX_ROWS: Final = 40
MAX_SUGGESTIONS: Final = 40


async def load(view: View) -> dict[str, Any]:
    """All rules, the highest priority first, and the names that the dry run suggests."""
    rules = (await view.api.get("policies"))["policies"]
    keys = (await view.api.get("keys"))["keys"]
    return {
        "rules": rules[:MAX_ROWS],
        "count": len(rules),
        "principals": ["anonymous", *(key["id"] for key in keys[:MAX_SUGGESTIONS])],
        "tried": None,
    }


async def test(view: View) -> Done:
    """Ask what the rules would decide; nothing is called."""
    text = view.form.get("arguments", "").strip() or "{}"
    try:
        arguments = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidForm(f"Arguments: {text[:80]!r} is not JSON: {error}.") from None
    question = {
        "principal": view.form.get("principal", "").strip(),
        "capability": view.form.get("capability", "").strip(),
        "arguments": arguments,
    }
    answer = await view.api.post("policies/test", question)
    word = "may" if answer["decision"] == "allow" else "may not"
    message = f"{question['principal']} {word} use {question['capability']}."
    return Done(message, {"tried": {**question, **answer, "text": text}})


PAGE: Final = Page(
    "policies",
    "Policies",
    "policies.html",
    load,
    {"test": test},
    section="Access",
    icon="policies",
    shortcut="p",
    live=("policies",),
)
