from waypost import Hub

hub = Hub("embedded", version="1.0.0", allowed_hosts=["hub.example.com"])


@hub.tool
async def greet(name: str) -> str:
    """Say hello."""
    return f"Hello, {name}."


app = hub.asgi()
