from typing import Annotated

from waypost import Hub, Tool, ToolError


class AddNumbers(Tool):
    """Add two numbers."""

    a: float
    b: float = 0.0

    async def execute(self) -> float:
        return self.a + self.b


class Lookup(Tool, name="words.lookup", category="Words"):
    """Find the meaning of a word."""

    word: Annotated[str, "The word to look up"]

    def __init__(self, meanings: dict[str, str]) -> None:
        self._meanings = meanings

    async def execute(self) -> str:
        if self.word not in self._meanings:
            raise ToolError(f"There is no entry for {self.word}.")
        return self._meanings[self.word]


hub = Hub("components", version="1.0.0")
hub.add(AddNumbers)
hub.add(Lookup({"waypost": "A post that shows the way."}))
