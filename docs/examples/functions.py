from typing import Annotated, Literal

from waypost import Context, Hub

hub = Hub("weather", version="1.0.0")


@hub.tool(title="Forecast", annotations={"read_only_hint": True})
async def forecast(
    city: Annotated[str, "Where"],
    days: int = 3,
    unit: Literal["C", "F"] = "C",
) -> list[str]:
    """Forecast the weather of the next days."""
    return [f"{city}: {20 + day} {unit}" for day in range(days)]


@hub.tool
async def compare(cities: list[str], ctx: Context) -> str:
    """Compare the weather of several cities."""
    for done, city in enumerate(cities, start=1):
        await ctx.invoke("forecast", {"city": city, "days": 1})
        await ctx.progress(done, total=len(cities), message=city)
    await ctx.log("info", "compared", {"cities": len(cities)})
    return f"It is equally fine in {' and '.join(cities)}."


def shout(text: str) -> str:
    """Say it louder."""
    return text.upper()


hub.tool(shout)
