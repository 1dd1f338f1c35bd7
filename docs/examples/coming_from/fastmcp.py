from waypost import Context, Hub, ToolError

hub = Hub("library", version="1.0.0", instructions="Search before you reserve.")

BOOKS = {"dune": 2, "emma": 0}


@hub.tool
def search(title: str) -> list[str]:
    """Find books by a part of their title."""
    return [book for book in BOOKS if title.lower() in book]


@hub.tool
async def reserve(titles: list[str], ctx: Context) -> str:
    """Reserve books."""
    for done, title in enumerate(titles, start=1):
        if not BOOKS.get(title):
            raise ToolError(f"{title} is not available.")
        await ctx.log("info", f"reserved {title}")
        await ctx.progress(done, len(titles))
    return f"Reserved {', '.join(titles)}."


@hub.resource("book://{title}", mime_type="application/json")
def book(title: str) -> dict[str, int]:
    """How many copies there are."""
    return {"copies": BOOKS.get(title, 0)}


@hub.prompt
def recommend(mood: str) -> str:
    """Ask for a recommendation."""
    return f"Recommend a book to a reader who feels {mood}."


if __name__ == "__main__":
    hub.run("http")
