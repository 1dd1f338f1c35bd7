"""A toolkit of three tools, and a schema to give to others."""

from __future__ import annotations

from typing import Any

from waypost import Context, Toolkit, tool

OBJECT = {"type": "object", "properties": {"q": {"type": "string"}}}


class Files(Toolkit, category="Utility"):
    @tool(
        name="files.read",
        category="Files",
        description="Read a file",
        input={"path": {"type": "string", "required": True}},
    )
    def read_file(self, args: dict[str, Any], ctx: Context) -> str:
        return f"read {args['path']} for {ctx.principal.id}"

    @tool(description="Server time")
    def server_time(self) -> str:
        return "noon"

    @tool(visible=False)
    @tool(input='{"type": "object", "properties": {"q": {"type": "string"}}}')
    def lookup(self, args: dict[str, Any]) -> str:
        return str(args.get("q", ""))

    def helper(self) -> str:
        return "not a tool"
