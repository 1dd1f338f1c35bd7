from typing import Literal

from waypost import Context, Hub, Tool, ToolError


class Calculator(Tool):
    """Do basic arithmetic."""

    operation: Literal["add", "divide"]
    a: float
    b: float

    async def execute(self, ctx: Context) -> float:
        if self.operation == "divide" and self.b == 0:
            raise ToolError("Cannot divide by zero.")
        result = self.a + self.b if self.operation == "add" else self.a / self.b
        if ctx.session is not None:
            await ctx.session.put("last_calculation", result)
        return result


hub = Hub("calculator", version="1.0.0")
hub.add(Calculator)
