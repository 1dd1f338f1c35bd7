"""A skill: keep the first words of a text."""

from typing import Any

description = "Keep the first words of a text."


def run(args: dict[str, Any]) -> Any:
    return " ".join(args["input"].split()[: args["config"].get("words", 3)])
