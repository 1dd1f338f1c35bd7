from typing import Annotated

from waypost import Context, Hub, UnknownResource

hub = Hub("library", version="1.0.0", instructions="Search first, then read a book by its number.")

BOOKS = {1: "The Left Hand of Darkness", 2: "The Dispossessed", 3: "A Wizard of Earthsea"}


@hub.tool(category="Search")
async def search(text: Annotated[str, "Part of a title"], ctx: Context) -> list[int]:
    """Find books by title."""
    found = []
    for done, (number, title) in enumerate(BOOKS.items(), start=1):
        if text.casefold() in title.casefold():
            found.append(number)
        await ctx.progress(done, len(BOOKS))
    return found


@hub.resource("book://{number}", mime_type="text/plain")
async def book(number: int) -> str:
    """A book, by its number."""
    if number not in BOOKS:
        raise UnknownResource(f"book://{number}")
    return BOOKS[number]


@hub.prompt
def recommend(mood: str) -> str:
    """Ask for a recommendation."""
    return f"Recommend one of our books to a reader who feels {mood}."
