from typing import Literal

from waypost import Hub, Resource, UnknownResource

hub = Hub("shelves", version="1.0.0")


class Note(Resource, uri_template="notes://{shelf}/{number}", mime_type="text/plain"):
    """A note on a shelf."""

    shelf: Literal["work", "home"]
    number: int

    async def read(self) -> str:
        if self.number > 100:
            raise UnknownResource(f"notes://{self.shelf}/{self.number}")
        return f"Note {self.number} of {self.shelf}."


@hub.resource("files://{+path}{#section}")
async def file(path: str, section: str) -> str:
    """A file, or a section of it."""
    return f"{path} [{section}]"


hub.add(Note)
