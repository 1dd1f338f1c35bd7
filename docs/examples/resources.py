from typing import Any

from waypost import Hub, Resource

hub = Hub("documents", version="1.0.0")


@hub.resource("docs://readme", mime_type="text/markdown", title="Read me")
async def readme() -> str:
    """How to use this server."""
    return "# Hello"


@hub.resource("docs://logo", mime_type="image/png")
async def logo() -> bytes:
    """The logo."""
    return b"\x89PNG"


class Settings(Resource, uri="docs://settings"):
    """What is configured, as JSON."""

    async def read(self) -> dict[str, Any]:
        return {"colour": "blue"}


hub.add(Settings)
