"""Questions to the client: what is asked, what the client must be able to do, and how its answers read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from waypost.errors import CapabilityNotSupported, InvalidAnswer
from waypost.wire.content import CONTENT_TYPES, Audio, Image, Text, as_block

ANSWER_WITHIN: Final = 300.0


class Question(msgspec.Struct, frozen=True):
    """One request to the client; `key` tells it apart from the others of its call."""

    method: str
    params: dict[str, Any]
    needs: dict[str, Any]
    key: str | None = None
    within: float = ANSWER_WITHIN


class InputNeeded(BaseException):
    """Ends a run of a handler that asked something; no handler is meant to catch it."""


def is_input_needed(error: BaseException) -> bool:
    """Whether a run ended because it asked, possibly from several tasks at once."""
    if isinstance(error, BaseExceptionGroup):
        return any(is_input_needed(inner) for inner in error.exceptions)
    return isinstance(error, InputNeeded)


class SamplingAnswer(msgspec.Struct, frozen=True, rename="camel"):
    """What the client's model said."""

    role: str
    content: Any
    model: str = ""
    stop_reason: str | None = None

    @property
    def text(self) -> str:
        """The text of the answer."""
        blocks = self.content if isinstance(self.content, list) else [self.content]
        return "\n".join(block.text for block in blocks if isinstance(block, Text))


class Root(msgspec.Struct, frozen=True):
    """A place the client works in."""

    uri: str
    name: str | None = None


def require(capabilities: Mapping[str, Any], needs: Mapping[str, Any]) -> None:
    """Refuse to ask what the client did not say it can answer."""
    for name, inner in needs.items():
        offered = capabilities.get(name)
        if offered is None or (name == "elicitation" and not _offers_mode(offered, inner)):
            raise CapabilityNotSupported({name: inner})
        if name != "elicitation" and isinstance(inner, dict) and any(key not in offered for key in inner):
            raise CapabilityNotSupported({name: inner})


def _offers_mode(offered: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether a client shows that kind of elicitation; one that names no kind shows forms."""
    return all(mode in offered or (mode == "form" and not offered) for mode in wanted)


def form_question(message: str, schema: dict[str, Any], key: str | None, within: float) -> Question:
    """Ask a person to fill in a form."""
    params = {"mode": "form", "message": message, "requestedSchema": schema}
    return Question("elicitation/create", params, {"elicitation": {"form": {}}}, key, within)


def url_question(message: str, url: str, key: str | None, within: float) -> Question:
    """Ask a person to open a page."""
    params = {"mode": "url", "message": message, "url": url}
    return Question("elicitation/create", params, {"elicitation": {"url": {}}}, key, within)


def sampling_question(
    messages: Any, options: Mapping[str, Any], max_tokens: int, key: str | None, within: float
) -> Question:
    """Ask the client's model."""
    params: dict[str, Any] = {"messages": as_sampling_messages(messages), "maxTokens": max_tokens}
    params |= {_SAMPLING[name]: value for name, value in options.items() if value is not None}
    needs: dict[str, Any] = {"sampling": {"tools": {}} if params.get("tools") else {}}
    return Question("sampling/createMessage", params, needs, key, within)


def roots_question(key: str | None, within: float) -> Question:
    """Ask where the client works."""
    return Question("roots/list", {}, {"roots": {}}, key, within)


_SAMPLING: Final = {
    "system_prompt": "systemPrompt",
    "model_preferences": "modelPreferences",
    "temperature": "temperature",
    "stop_sequences": "stopSequences",
    "include_context": "includeContext",
    "metadata": "metadata",
    "tools": "tools",
    "tool_choice": "toolChoice",
}


def as_sampling_messages(messages: Any) -> list[dict[str, Any]]:
    """Messages for a model from text, content blocks, or messages with a role."""
    parts = messages if isinstance(messages, Sequence) and not isinstance(messages, str) else [messages]
    return [_sampling_message(part) for part in parts]


def _sampling_message(part: Any) -> dict[str, Any]:
    if isinstance(part, (str, *CONTENT_TYPES)):
        return {"role": "user", "content": msgspec.to_builtins(as_block(part))}
    if isinstance(part, Mapping) and "role" in part and "content" in part:
        content = part["content"]
        plain = content if isinstance(content, (Mapping, list)) else msgspec.to_builtins(as_block(content))
        return {**part, "content": plain}
    raise TypeError("A message for sampling is text, a content block, or a mapping with role and content.")


def sampling_answer(result: Any) -> SamplingAnswer:
    """What the model said, with content as blocks where they are known."""
    try:
        given = msgspec.convert(result, SamplingAnswer)
        content = [_block(part) for part in given.content] if isinstance(given.content, list) else _block(given.content)
    except msgspec.ValidationError as error:
        raise InvalidAnswer(f"The client's answer is malformed: {error}.") from None
    return msgspec.structs.replace(given, content=content)


def _block(part: Any) -> Any:
    if isinstance(part, dict) and part.get("type") in ("text", "image", "audio"):
        return msgspec.convert(part, Text | Image | Audio)
    return part


def roots_answer(result: Any) -> list[Root]:
    """The client's roots."""
    try:
        return msgspec.convert(result, _Roots).roots
    except msgspec.ValidationError as error:
        raise InvalidAnswer(f"The client's answer is malformed: {error}.") from None


class _Roots(msgspec.Struct):
    roots: list[Root]
