"""The core skill that lets the caller's own model rewrite text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from waypost.errors import ToolError
from waypost.skills.core.inputs import CoreSettings, input_text, text, whole

if TYPE_CHECKING:
    from waypost.capabilities.context import Context
    from waypost.skills.core.inputs import Run

description = "Transform the input with the client's language model."
version = "1.0.0"
permissions = ("llm",)
routes = ("on_success", "on_error")
external = False
input_schema: dict[str, Any] = {
    "system_prompt": {"type": "string", "description": "What the model is told to do with the input"},
    "model": {"type": "string", "description": "A model to prefer, by name or part of it"},
}

PLACE: Final = "{input}"
_TIERS: Final[Mapping[str, Mapping[str, float]]] = {
    "light": {"costPriority": 1.0, "speedPriority": 1.0},
    "heavy": {"intelligencePriority": 1.0},
}


def make(settings: CoreSettings) -> Run:
    """The skill; the model is the client's, so nothing of the settings is used."""

    async def run(args: Mapping[str, Any], ctx: Context) -> str:
        answer = await ctx.sample(
            _prompt(args),
            max_tokens=whole(args, "max_tokens", 1024, 100_000),
            system_prompt=text(args, "system_prompt") or None,
            model_preferences=_preferences(args),
        )
        if not answer.text:
            raise ToolError("The model answered without text.")
        return answer.text

    return run


def _prompt(args: Mapping[str, Any]) -> str:
    """The template with the input in its place, or after it; braces in the input mean nothing."""
    given = input_text(args)
    template = text(args, "prompt_template")
    if not template and not given:
        raise ToolError("input is missing.")
    if PLACE in template:
        return template.replace(PLACE, given)
    return "\n\n".join(part for part in (template, given) if part)


def _preferences(args: Mapping[str, Any]) -> dict[str, Any] | None:
    model = text(args, "model")
    hints = {"hints": [{"name": model}]} if model else {}
    return {**hints, **_TIERS.get(text(args, "llm_tier"), {})} or None
