"""A skill that calls another one twice, concurrently."""

import asyncio
from typing import Any

description = "Say which of two texts has more words."
version = "1.0.0"
permissions = ["skill_invoke", "state_read", "state_write"]
input_schema = {
    "type": "object",
    "properties": {"first": {"type": "string"}, "second": {"type": "string"}},
    "required": ["first", "second"],
}


async def run(args: dict[str, Any], ctx: Any) -> str:
    counted = await asyncio.gather(
        ctx.invoke("skill:word_count", {"input": args["first"]}),
        ctx.invoke("skill:word_count", {"input": args["second"]}),
    )
    first, second = (answer.structured["words"] for answer in counted)
    return "equal" if first == second else "first" if first > second else "second"
