"""A skill: count the words of a text, and remember how often it was counted."""

import hashlib
from typing import Any

description = "Count the words of a text, and say how often it was counted before."
version = "1.0.0"
permissions = ["state_read", "state_write"]
routes = ["new", "known"]
input_schema = {"least": {"type": "integer", "description": "Shorter words do not count"}}


def run(args: dict[str, Any], ctx: Any) -> Any:
    words = [word for word in args["input"].split() if len(word) >= args.get("least", 1)]
    key = hashlib.sha256(args["input"].encode()).hexdigest()
    before = ctx.state_get(key) or 0
    ctx.state_put(key, before + 1)
    return {"words": len(words), "before": before}, "known" if before else "new"
