from waypost import Catalog, Hub, Toolkit, tool


class Users(Toolkit, category="People"):
    """The people of the office."""

    @tool(description="Find a person")
    async def find_user(self, name: str) -> str:
        return f"{name}@example.com"

    @tool(description="Remove a person", category="Danger", hidden=True)
    async def remove_user(self, name: str) -> str:
        return f"{name} is gone."


class Rooms(Toolkit):
    """The rooms of the office."""

    @tool(description="List the rooms")
    async def list_rooms(self) -> list[str]:
        return ["attic", "cellar"]


async def ping() -> str:
    """Answer."""
    return "pong"


hub = Hub("office", version="1.0.0")
hub.add(Users)
hub.add(Rooms, category="Places", hidden=True)
hub.add(ping, name="office.ping", description="Say whether the office is open", category="Health")
hub.add(Catalog)
