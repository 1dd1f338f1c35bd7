from waypost import Toolkit, tool


class Greetings(Toolkit, category="Greetings"):
    """Kind words."""

    @tool(description="Say hello")
    async def hello(self, name: str) -> str:
        return f"Hello, {name}."
