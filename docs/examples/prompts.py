from typing import Annotated, Any, Literal

from waypost import Hub, Image, Prompt

hub = Hub("letters", version="1.0.0")


@hub.prompt
def greet(name: str) -> str:
    """Compose a greeting."""
    return f"Greet {name} warmly."


class Letter(Prompt, title="A letter"):
    """Write a letter."""

    to: Annotated[str, "The recipient"]
    pages: int = 1
    tone: Literal["warm", "wry", "formal"] = "warm"

    def messages(self) -> list[Any]:
        return [
            f"Write a {self.tone} letter of {self.pages} page(s) to {self.to}.",
            {"role": "assistant", "content": f"Dear {self.to},"},
        ]


@hub.prompt
def describe_logo() -> list[Any]:
    """Ask for a description of the logo."""
    return [Image(b"\x89PNG", mime_type="image/png"), "What is this?"]


hub.add(Letter)
