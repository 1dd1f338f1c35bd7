"""A hub with a guard, its two principals, and tools that call others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from msgspec.structs import replace

from tests.protocol.conftest import Json
from tests.transports.http.conftest import Web
from waypost import Context, Hub, Result
from waypost.capabilities.capability import ToolOptions, parse_options
from waypost.capabilities.principals import Principal
from waypost.capabilities.tools import tool_from_function
from waypost.identity import Authentication, Key, digest

ANN = Principal("ann", roles=("lead",), permissions=("deploy",))
BOB = Principal("bob", roles=("agent",))


def key_of(who: Principal) -> str:
    return f"wp_{who.id:_<43}"


def hub_for(*principals: Principal, **options: Any) -> Hub:
    """A hub that accepts a key of each of these principals."""
    keys = [Key(one.id, digest(key_of(one)), one.roles, one.permissions) for one in principals or (ANN, BOB)]
    return Hub("guarded", version="1", auth=Authentication(keys), **options)


async def ask(web: Web, who: Principal, method: str, /, **params: Any) -> Json:
    """Send a request as a principal and return its result or error."""
    call = await web.modern(method, params, {"authorization": f"Bearer {key_of(who)}"})
    answer: Json = call.json
    found: Json = answer.get("result") or answer["error"]
    return found


async def says(web: Web, who: Principal, name: str, **arguments: Any) -> str:
    """Call a tool and return its text, or the code and message of the error."""
    answer = await ask(web, who, "tools/call", name=name, arguments=arguments)
    return f"{answer['code']} {answer['message']}" if "code" in answer else str(answer["content"][0]["text"])


async def pass_on(args: Json, ctx: Context) -> Result | str:
    """Require the permissions in `needs`, then call the next tool of the path with the rest of it."""
    for permission in args.get("needs", ()):
        ctx.require(permission)
    path = args.get("path", [])
    return await ctx.invoke(path[0], {**args, "path": path[1:]}) if path else "arrived"


def add(
    hub: Hub,
    name: str,
    permissions: Iterable[str] = (),
    owner: str | None = "dynamic",
    does: Callable[[Json, Context], Awaitable[Result | str]] = pass_on,
) -> None:
    """Register a tool that calls others, like a skill."""
    options = parse_options({"name": name, "input_schema": {"type": "object"}}, name, ToolOptions)
    capability = tool_from_function(does, options).capability
    hub.registry.add([replace(capability, owner=owner, permissions=tuple(permissions))])


async def recorded(hub: Hub) -> list[Json]:
    """The audit entries of calls, oldest first."""
    assert hub.guard.audit is not None
    await hub.guard.audit.written()
    entries = [entry.value for entry in await hub.store.audit.latest(1000)]
    return [entry for entry in reversed(entries) if entry.get("action") != "begin"]
