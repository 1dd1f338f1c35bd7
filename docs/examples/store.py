from waypost import Hub

hub = Hub("archive", version="1.0.0", store="sqlite:///archive.db")


@hub.tool(task="required")
async def pack(folder: str) -> str:
    """Pack a folder; ask for the result whenever you like, after a restart too."""
    return f"{folder} is packed."
