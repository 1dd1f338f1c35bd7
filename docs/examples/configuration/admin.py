from waypost import Toolkit, tool


class Admin(Toolkit):
    """For those who run the hub."""

    @tool(description="Say how long the hub has been up")
    async def uptime(self) -> str:
        return "Long enough."
