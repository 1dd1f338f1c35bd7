"""A skill: separate urgent mail from the rest."""

from typing import Any

description = "Separate urgent mail from the rest."
routes = ["urgent", "normal"]


def run(args: dict[str, Any]) -> Any:
    if not args["input"]:
        raise ValueError("there is no mail")
    return args["input"], "urgent" if "!" in args["input"] else "normal"
