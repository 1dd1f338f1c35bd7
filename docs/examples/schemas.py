from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Any

from waypost import Hub

hub = Hub("schemas", version="1.0.0")


class Size(Enum):
    SMALL = "small"
    LARGE = "large"


@hub.tool(
    input={
        "item": {"type": "string", "required": True, "max_length": 40},
        "amount": {"type": "integer", "min": 1, "max": 10, "default": 1},
        "size": {"type": "enum", "values": Size},
        "due": "date",
        "address": {"type": "object", "fields": {"street": {"type": "string", "required": True}, "zip": "string"}},
        "tags": {"type": "array", "items": "string", "max": 5},
    }
)
async def data_form(args: dict[str, Any]) -> str:
    """Order something; the input is written as plain data."""
    return repr(args)


@hub.tool(
    input_schema={
        "type": "object",
        "properties": {"item": {"type": "string"}, "amount": {"type": "integer", "default": 1}},
        "required": ["item"],
    }
)
async def raw_form(args: dict[str, Any]) -> str:
    """Order something; the input is a JSON Schema."""
    return repr(args)


@hub.tool(input='{"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]}')
async def text_form(args: dict[str, Any]) -> str:
    """Order something; the input is a JSON Schema as text."""
    return repr(args)


@dataclass
class Address:
    street: str
    zip: str = ""


@hub.tool
async def typed(item: str, address: Address, due: date, amount: int = 1, size: Size = Size.SMALL) -> str:
    """Order something; the input comes from the signature."""
    return repr((item, address, due, amount, size))


@hub.tool
async def anything(args):  # type: ignore[no-untyped-def]
    """Order something; without annotations every object is taken as it comes."""
    return repr(args)
