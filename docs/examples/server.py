from waypost import Hub, ToolError

hub = Hub("arithmetic", version="1.0.0")


@hub.tool
async def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


@hub.tool
async def divide(a: float, b: float) -> float:
    """Divide one number by another."""
    if b == 0:
        raise ToolError("Cannot divide by zero.")
    return a / b
