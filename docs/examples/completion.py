from typing import Any

from waypost import Context, Hub

hub = Hub("travel", version="1.0.0")

CITIES = {"France": ["Paris", "Lyon"], "Peru": ["Lima", "Cusco"]}


@hub.prompt
def plan(country: str, city: str) -> str:
    """Plan a journey."""
    return f"Plan a journey to {city} in {country}."


@hub.on("completion")
async def complete(ref: str, argument: dict[str, Any], ctx: Context) -> list[str]:
    settled = argument.get("context", {}).get("arguments", {})
    offered = list(CITIES) if argument["name"] == "country" else CITIES.get(settled.get("country", ""), [])
    return [value for value in offered if value.startswith(argument["value"])]
