"""The tools that the policies of policies.yaml apply to."""

from waypost import Context, Toolkit, tool


class Office(Toolkit):
    """Tools for people, programs and guests."""

    @tool(description="Find something")
    async def search(self, text: str) -> list[str]:
        return [f"All about {text}"]

    @tool(name="notes.read", description="Read a note")
    async def read_note(self, name: str) -> str:
        return f"What {name} says."

    @tool(name="notes.write", description="Write a note")
    async def write_note(self, name: str, text: str) -> str:
        return f"Wrote {len(text)} characters to {name}."

    @tool(name="shell.run", description="Run a command")
    async def run(self, command: str) -> str:
        return f"$ {command}"

    @tool(name="billing.refund", description="Give money back")
    async def refund(self, invoice: str) -> str:
        return f"{invoice} is refunded."

    @tool(description="Put a version into production", permissions=["deploy"])
    async def deploy(self, version: str) -> str:
        return f"{version} is live."

    @tool(description="Write a release note, then deploy")
    async def release(self, version: str, ctx: Context) -> str:
        await ctx.invoke("notes.write", {"name": version, "text": "New."})
        return (await ctx.invoke("deploy", {"version": version})).text
