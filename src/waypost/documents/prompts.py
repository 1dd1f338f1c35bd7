"""Prompts: slash commands with arguments, written by functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from waypost.documents.collection import Collection, ask
from waypost.documents.ports import Asker, Data, NotThere, Trigger, refused
from waypost.documents.records import Argument, Prompt, now
from waypost.documents.uris import check_arguments, check_name
from waypost.errors import shorten
from waypost.workers.functions import is_internal


class Prompts:
    """Every prompt, and what writing one comes to."""

    def __init__(self, kept: Collection[Prompt], trigger: Trigger, within: float) -> None:
        self._kept = kept
        self._trigger = trigger
        self._within = within

    async def register(
        self,
        name: str,
        description: str,
        function_id: str,
        arguments: Sequence[Argument] = (),
        owner: str = "",
        namespace: str | None = None,
    ) -> Data:
        """Offer a prompt, in the place of what was there; whether its function exists is seen when it is used."""
        check_name(name)
        if not description.strip():
            raise refused("description must be non-empty")
        if not function_id.strip():
            raise refused("function_id must be non-empty")
        check_arguments(argument.name for argument in arguments)
        prompt = Prompt(name, description, list(arguments), function_id, now(), owner or None, namespace=namespace)
        await self._kept.put(prompt, owner)
        return {"name": name, "registered_at": prompt.registered_at}

    async def unregister(self, name: str, owner: str = "") -> Data:
        """Offer a prompt no more."""
        check_name(name)
        return {"name": name, "removed": await self._kept.remove(name, owner)}

    async def list(self, by: Asker = None) -> Data:
        """What there is, in short."""
        return {"prompts": [self._row(prompt) for prompt in await self._kept.shown(by)]}

    def _row(self, prompt: Prompt) -> Data:
        return {
            "name": prompt.name,
            "function_id": prompt.function_id,
            "arguments": len(prompt.arguments),
            "registered_at": prompt.registered_at,
            **self._kept.owners.told(prompt),
        }

    async def offered(self, by: Asker = None) -> Data:
        """What `prompts/list` shows."""
        shown = await self._kept.shown(by)
        return {"prompts": [_entry(prompt) for prompt in shown if self._kept.stands(prompt.name)]}

    async def left_out(self) -> Sequence[Data]:
        """What clients do not find, because the hub itself has others of the same names."""
        kept = [prompt for prompt in await self._kept.all() if not self._kept.stands(prompt.name)]
        return [{**_entry(prompt), **self._kept.owners.told(prompt)} for prompt in kept]

    async def get(self, name: str, arguments: Any = None, by: Asker = None) -> Data:
        """What `prompts/get` answers: the prompt, written with arguments that only its function checks."""
        prompt = await self._kept.find(name)
        if prompt is None:
            raise NotThere(f"Prompt not found: {shorten(name)}{await self._kept.hint(name, by)}")
        if not self._kept.stands(name):
            raise NotThere(f"Prompt not found: {name}; the hub itself has another of this name")
        function_id = prompt.function_id
        if is_internal(function_id):
            raise refused(f"Prompt handler '{function_id}' is in an internal namespace and cannot back a prompt")
        given = {} if arguments is None else arguments
        output = await ask(self._trigger, function_id, given, self._within, by, prompt.namespace)
        return {"description": prompt.description, "messages": messages(output)}


def messages(output: Any) -> list[Any]:
    """The messages of what a function answered."""
    if isinstance(output, str):
        return [_message(output)]
    if isinstance(output, dict):
        if isinstance(output.get("messages"), list):
            return list(output["messages"])
        if isinstance(output.get("content"), str):
            return [_message(output["content"])]
    raise refused("prompt handler returned unsupported shape; expected string, { content }, or { messages: [...] }")


def _message(text: str) -> Data:
    return {"role": "user", "content": {"type": "text", "text": text}}


def _entry(prompt: Prompt) -> Data:
    arguments = [_argument(argument) for argument in prompt.arguments]
    return {"name": prompt.name, "description": prompt.description, "arguments": arguments}


def _argument(argument: Argument) -> Data:
    told: Data = {"name": argument.name, "required": argument.required}
    return told if argument.description is None else {**told, "description": argument.description}
