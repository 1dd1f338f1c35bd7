"""The core skill that has the client's own model rewrite text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from waypost.capabilities.context import Context
from waypost.errors import ToolError
from waypost.skills.core.inputs import CoreSettings, get_input, get_integer, get_text

description = "Transform the input with the client's language model."
permissions = ("llm",)
input_schema: dict[str, Any] = {
    "system_prompt": {"type": "string", "description": "What the model shall do with the input"},
    "model": {"type": "string", "description": "A model to prefer, by name or part of it"},
}

_PLACEHOLDER: Final = "{input}"
_TIERS: Final[Mapping[str, Mapping[str, float]]] = {
    "light": {"costPriority": 1.0, "speedPriority": 1.0},
    "heavy": {"intelligencePriority": 1.0},
}


async def run(args: Mapping[str, Any], ctx: Context, settings: CoreSettings) -> str:
    """Sample the client's model."""
    model = get_text(args, "model")
    hints = {"hints": [{"name": model}]} if model else {}
    answer = await ctx.sample(
        _make_prompt(args),
        max_tokens=get_integer(args, "max_tokens", 1024, 100_000),
        system_prompt=get_text(args, "system_prompt") or None,
        model_preferences={**hints, **_TIERS.get(get_text(args, "llm_tier"), {})} or None,
    )
    if not answer.text:
        raise ToolError("The model answered without text.")
    return answer.text


def _make_prompt(args: Mapping[str, Any]) -> str:
    """Put the input into the template's placeholder, or after the template; braces in the input mean nothing."""
    given = get_input(args)
    template = get_text(args, "prompt_template")
    if not template and not given:
        raise ToolError("input is missing.")
    if _PLACEHOLDER in template:
        return template.replace(_PLACEHOLDER, given)
    return "\n\n".join(part for part in (template, given) if part)
