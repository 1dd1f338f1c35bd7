"""The hub: what can be put into it, what clients see of it, and how it is served."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal

import pytest

from tests.upstreams.conftest import served
from waypost import Context, DefinitionError, Hub, Prompt, RemoteError, Resource, Tool, Toolkit, tool
from waypost.capabilities.capability import Capability, Kind
from waypost.protocol.listing import Page
from waypost.testing import TestClient, connect
from waypost.upstreams.client import Client
from waypost.upstreams.http import HttpLink
from waypost.upstreams.replies import Reply
from waypost.wire.definitions import Definition
from waypost.wire.versions import ALL, LATEST_LEGACY, V2026_07_28

ERAS = [LATEST_LEGACY, V2026_07_28]
ListMethod = Literal["tools", "prompts", "resources"]
DEADLINE = 20.0


def empty(**options: Any) -> Hub:
    return Hub("test", version="1.0.0", **options)


def names(rows: list[Reply]) -> list[str]:
    return [row.name for row in rows]


def ids(hub: Hub, kind: Literal["tools", "prompts", "resources", "resource_templates"] = "tools") -> list[str]:
    return [capability.id for capability in hub.expand(kind)]


def definition(row: Capability | Definition) -> Definition:
    return row.definition if isinstance(row, Capability) else row


@asynccontextmanager
async def hearing(hub: Hub, version: str) -> AsyncIterator[TestClient]:
    """A client that is told of every change, in the way of its era."""
    async with asyncio.timeout(DEADLINE), connect(hub, version) as client:
        if version != V2026_07_28:
            yield client
            return
        async with client.listen(toolsListChanged=True, promptsListChanged=True, resourcesListChanged=True):
            await client.assert_notification("subscriptions/acknowledged")
            yield client


class Arithmetic(Toolkit, category="Maths"):
    """Five tools."""

    @tool(description="Add")
    def add(self, a: int, b: int) -> int:
        return a + b

    @tool(description="Subtract")
    def subtract(self, a: int, b: int) -> int:
        return a - b

    @tool(description="Multiply")
    def multiply(self, a: int, b: int) -> int:
        return a * b

    @tool(description="Divide", visible=False)
    def divide(self, a: int, b: int) -> float:
        return a / b

    @tool(name="maths.power", description="Raise")
    def power(self, a: int, b: int) -> int:
        return int(a**b)


class Shout(Tool):
    """Say it louder."""

    words: str

    async def execute(self, ctx: Context) -> str:
        return self.words.upper()


class Readme(Resource, uri="docs://readme", subscribable=True):
    """How to use it."""

    async def read(self) -> str:
        return "# Hello"


class Greet(Prompt):
    """Compose a greeting."""

    name: str
    tone: Literal["warm", "cold", "wry"] = "warm"

    def messages(self) -> str:
        return f"Greet {self.name}, {self.tone}."


def resource_at(uri: str) -> type[Resource]:
    class Other(Resource, uri=uri):
        """Another one."""

        async def read(self) -> str:
            return uri

    return Other


# What a hub is made of


@pytest.mark.parametrize(
    ("given", "missing"), [({}, "name"), ({"version": "1"}, "name"), ({"name": "x"}, "version"), ({"name": ""}, "name")]
)
def test_a_hub_needs_a_name_and_a_version(given: dict[str, Any], missing: str) -> None:
    with pytest.raises(DefinitionError, match=f"needs a {missing}"):
        Hub(**given)


@pytest.mark.parametrize("version", ALL)
def test_clients_of_every_version_learn_name_and_version(version: str) -> None:
    async def scenario() -> None:
        async with connect(Hub("shop", version="2.1", title="The shop"), version) as client:
            assert (client.server_info.name, client.server_info.version) == ("shop", "2.1")

    asyncio.run(scenario())


# Registering functions


@pytest.mark.parametrize("options", [{}, {"name": "other", "description": "Another name"}])
def test_decorators_return_the_function_unchanged(options: dict[str, str]) -> None:
    hub = empty()

    def double(a: int) -> int:
        return a * 2

    assert hub.tool(**options)(double) is double
    assert hub.prompt(**options)(double) is double
    assert hub.resource("docs://double", **options)(plain_text) is plain_text
    assert hub.resource("docs://{a}", **options)(double) is double
    assert double(3) == 6


def test_decorators_without_brackets_return_the_function_unchanged() -> None:
    hub = empty()

    assert hub.tool(plain_text) is plain_text
    assert hub.prompt(plain_text) is plain_text
    assert plain_text() == "text"


def plain_text() -> str:
    return "text"


@pytest.mark.parametrize("version", ERAS)
def test_decorated_functions_are_called_read_and_got(version: str) -> None:
    hub = empty()

    @hub.tool
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @hub.tool(name="maths.negate", title="Negate", description="The other sign", category="Maths")
    def negate(a: int) -> int:
        return -a

    @hub.prompt
    def greet(name: str) -> str:
        """Compose a greeting."""
        return f"Greet {name}."

    @hub.prompt(name="part", description="Say goodbye")
    def goodbye(name: str = "you") -> str:
        return f"Goodbye {name}."

    @hub.resource("docs://readme", mime_type="text/markdown")
    def readme() -> str:
        return "# Hello"

    @hub.resource("notes://{number}", name="note")
    def a_note(number: int) -> str:
        return f"note {number + 1}"

    async def scenario() -> None:
        async with connect(hub, version) as client:
            tools = {row.name: row for row in await client.list_tools()}
            assert tools["add"].description == "Add two numbers."
            assert tools["maths.negate"].description == "The other sign"
            assert tools["maths.negate"].meta == {"category": "Maths"}
            assert names(await client.list_prompts()) == ["greet", "part"]
            assert [row.uri for row in await client.list_resources()] == ["docs://readme"]
            assert [row.uri_template for row in await client.list_resource_templates()] == ["notes://{number}"]
            assert (await client.call_tool("add", {"a": 1, "b": 2})).structured == {"result": 3}
            assert (await client.call_tool("maths.negate", {"a": 1})).structured == {"result": -1}
            assert (await client.get_prompt("greet", {"name": "Ada"})).text == "Greet Ada."
            assert (await client.get_prompt("part")).text == "Goodbye you."
            assert (await client.read_resource("docs://readme")).text == "# Hello"
            assert (await client.read_resource("notes://41")).text == "note 42"

    asyncio.run(scenario())


def test_one_function_on_two_hubs_is_what_each_of_them_says() -> None:
    def lookup(word: str) -> str:
        return word

    first, second = empty(), empty()
    first.tool(lookup, name="first.lookup", description="The first")
    second.tool(lookup, name="second.lookup", description="The second")

    assert (ids(first), ids(second)) == (["first.lookup"], ["second.lookup"])


@pytest.mark.parametrize("register", [Hub.tool, Hub.prompt])
def test_an_unknown_option_is_refused_by_its_name(register: Callable[..., Any]) -> None:
    hub = empty()

    with pytest.raises(DefinitionError, match=r"'descripton'.*'description'"):
        register(hub, plain_text, descripton="Typo")
    assert ids(hub) == ids(hub, "prompts") == []


def test_what_cannot_be_registered_is_refused() -> None:
    with pytest.raises(DefinitionError, match="int is no tool"):
        empty().add(42)


# Adding with overrides


def test_what_the_registration_says_wins() -> None:
    hub = empty()
    hub.add(Shout, name="loud", description="LOUD", category="Voice", hidden=True)

    (found,) = hub.expand("tools")
    assert (found.id, found.category, found.hidden) == ("loud", "Voice", True)
    assert (found.definition.name, found.definition.description) == ("loud", "LOUD")
    assert found.definition.meta == {"category": "Voice"}


def test_the_same_component_can_be_added_under_two_names() -> None:
    hub = empty().add(Shout).add(Shout, name="scream")

    assert ids(hub) == ["scream", "shout"]


def test_a_kit_takes_category_and_visibility_for_all_its_tools() -> None:
    hub = empty().add(Arithmetic, category="Admin", visible=True)

    assert {(row.category, row.hidden) for row in hub.expand()} == {("Admin", False)}


def test_a_kit_without_overrides_keeps_what_it_says_itself() -> None:
    hub = empty().add(Arithmetic)

    assert ids(hub) == ["add", "divide", "maths.power", "multiply", "subtract"]
    assert {row.category for row in hub.expand()} == {"Maths"}
    assert [row.id for row in hub.expand() if row.hidden] == ["divide"]


def test_one_name_for_a_kit_of_many_tools_is_refused() -> None:
    hub = empty()

    with pytest.raises(DefinitionError, match="5 tools of Arithmetic is ambiguous"):
        hub.add(Arithmetic, name="maths")
    assert ids(hub) == []


def test_a_name_that_cannot_go_over_the_wire_is_refused() -> None:
    hub = empty()

    with pytest.raises(DefinitionError, match="not usable"):
        hub.add(Shout, name="two words")
    assert ids(hub) == []


# Changes at run time


@pytest.mark.parametrize("version", ERAS)
def test_adding_a_kit_at_run_time_is_told_exactly_once(version: str) -> None:
    hub = empty()

    async def scenario() -> None:
        async with hearing(hub, version) as client:
            assert await client.list_tools() == []
            hub.add(Arithmetic)
            await client.assert_notification("tools/list_changed")
            await client.refute_notification("tools/list_changed")
            assert names(await client.list_tools()) == ["add", "maths.power", "multiply", "subtract"]
            assert (await client.call_tool("add", {"a": 1, "b": 2})).structured == {"result": 3}

    asyncio.run(scenario())


@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize(("source", "kind"), [(Shout, "tools"), (Greet, "prompts"), (Readme, "resources")])
def test_each_kind_has_a_change_of_its_own(source: Any, kind: ListMethod, version: str) -> None:
    hub = empty().add(Greet, name="first").add(resource_at("docs://first"))

    async def scenario() -> None:
        async with hearing(hub, version) as client:
            hub.add(source)
            await client.assert_notification(f"{kind}/list_changed")
            for other in {"tools", "prompts", "resources"}:
                await client.refute_notification(f"{other}/list_changed", within=0.02)

    asyncio.run(scenario())


@pytest.mark.parametrize("version", ERAS)
def test_removed_tools_are_gone_and_told_once(version: str) -> None:
    hub = empty().add(Arithmetic)

    async def scenario() -> None:
        async with hearing(hub, version) as client:
            hub.remove("add", "maths.power")
            await client.assert_notification("tools/list_changed")
            await client.refute_notification("tools/list_changed")
            assert names(await client.list_tools()) == ["multiply", "subtract"]
            with pytest.raises(RemoteError, match="Unknown tool: add") as caught:
                await client.call_tool("add", {"a": 1, "b": 2})
            assert caught.value.code == -32602

    asyncio.run(scenario())


@pytest.mark.parametrize("version", ERAS)
def test_removing_what_is_not_there_changes_and_tells_nothing(version: str) -> None:
    hub = empty().add(Shout)

    async def scenario() -> None:
        async with hearing(hub, version) as client:
            hub.remove("whisper")
            await client.refute_notification("tools/list_changed")
            assert names(await client.list_tools()) == ["shout"]

    asyncio.run(scenario())


def test_resources_and_prompts_are_removed_by_uri_and_name() -> None:
    hub = empty().add(Readme).add(Greet)

    hub.remove("docs://readme", kind=Kind.RESOURCE)
    hub.remove("greet", kind=Kind.PROMPT)

    assert ids(hub, "resources") == ids(hub, "prompts") == []


@pytest.mark.parametrize("version", ERAS)
def test_a_name_given_twice_is_refused_and_nothing_is_half_added(version: str) -> None:
    hub = empty()

    @hub.tool
    def multiply(a: int, b: int) -> str:
        return "mine"

    async def scenario() -> None:
        async with hearing(hub, version) as client:
            with pytest.raises(DefinitionError, match="'multiply' already"):
                hub.add(Arithmetic)
            await client.refute_notification("tools/list_changed")
            assert names(await client.list_tools()) == ["multiply"]
            assert (await client.call_tool("multiply", {"a": 2, "b": 3})).text == "mine"

    asyncio.run(scenario())
    assert ids(hub) == ["multiply"]


def test_two_resources_at_one_uri_are_refused() -> None:
    hub = empty().add(Readme)

    with pytest.raises(DefinitionError, match="docs://readme"):
        hub.add(resource_at("docs://readme"))


@pytest.mark.parametrize("version", ERAS)
def test_a_change_can_be_told_by_hand(version: str) -> None:
    hub = empty().add(Shout)

    async def scenario() -> None:
        async with hearing(hub, version) as client:
            await hub.notify_changed("tools")
            await client.assert_notification("tools/list_changed")
            await client.refute_notification("tools/list_changed")

    asyncio.run(scenario())


@pytest.mark.parametrize("version", ERAS)
def test_a_change_in_another_thread_reaches_clients(version: str) -> None:
    hub = empty().add(Readme)

    def meanwhile() -> None:
        hub.add(Shout)
        asyncio.run(hub.notify_changed("resources"))

    async def scenario() -> None:
        async with hearing(hub, version) as client:
            thread = threading.Thread(target=meanwhile)
            thread.start()
            await client.assert_notification("tools/list_changed")
            await client.assert_notification("resources/list_changed")
            assert names(await client.list_tools()) == ["shout"]
            await asyncio.to_thread(thread.join)

    asyncio.run(scenario())


def test_an_update_in_another_thread_reaches_subscribers_only() -> None:
    hub = empty().add(Readme)

    async def scenario() -> None:
        async with connect(hub, LATEST_LEGACY) as reader, connect(hub, LATEST_LEGACY) as other:
            await reader.subscribe("docs://readme")
            await asyncio.to_thread(lambda: asyncio.run(hub.notify_resource_updated("docs://readme")))
            await reader.assert_notification("resources/updated", uri="docs://readme")
            await other.refute_notification("resources/updated")

    asyncio.run(scenario())


# Hooks


class Choosy(Hub):
    """Decides per request what is listed."""

    async def on_list_tools(self, cursor: str | None, ctx: Context) -> Page:
        shown = await super().on_list_tools(cursor, ctx)
        return Page([row for row in shown.items if definition(row).name in ("add", "shout")])

    async def on_completion(self, ref: str, argument: Any, ctx: Context) -> list[str]:
        usual = await super().on_completion(ref, argument, ctx)
        return [*usual, f"{ref}:{argument['name']}:{argument['value']}"]


@pytest.mark.parametrize("version", ERAS)
def test_a_subclass_decides_what_is_listed(version: str) -> None:
    hub = Choosy("test", "1").add(Arithmetic).add(Shout)

    async def scenario() -> None:
        async with connect(hub, version) as client:
            assert names(await client.list_tools()) == ["add", "shout"]
            assert (await client.call_tool("multiply", {"a": 2, "b": 3})).structured == {"result": 6}

    asyncio.run(scenario())


@pytest.mark.parametrize("version", ERAS)
def test_a_completion_hook_can_go_on_with_the_usual_values(version: str) -> None:
    hub = Choosy("test", "1").add(Greet)

    async def scenario() -> None:
        async with connect(hub, version) as client:
            offered = await client.complete({"type": "ref/prompt", "name": "greet"}, "tone", "w")
            assert offered == ["warm", "wry", "greet:tone:w"]

    asyncio.run(scenario())


@pytest.mark.parametrize("version", ERAS)
def test_without_a_hook_the_values_of_a_field_are_offered(version: str) -> None:
    hub = empty().add(Greet)

    async def scenario() -> None:
        async with connect(hub, version) as client:
            assert await client.complete({"type": "ref/prompt", "name": "greet"}, "tone", "W") == ["warm", "wry"]

    asyncio.run(scenario())


@pytest.mark.parametrize("version", ERAS)
def test_hooks_can_be_registered_as_functions(version: str) -> None:
    hub = empty().add(Arithmetic).add(Greet).add(Readme).add(resource_at("docs://other"))

    @hub.on("list_tools")
    async def only_some(cursor: str | None, ctx: Context) -> Any:
        return [row for row in hub.expand() if row.id == "divide"]

    @hub.on("list_resources")
    def in_two_pages(cursor: str | None, ctx: Context) -> Any:
        first, second = hub.expand("resources")
        return ([first], "more") if cursor is None else [second]

    @hub.on("completion")
    def complete(ref: str, argument: Any, ctx: Context) -> list[str]:
        return [argument["value"] + "!"]

    async def scenario() -> None:
        async with connect(hub, version) as client:
            assert names(await client.list_tools()) == ["divide"]
            assert [row.uri for row in await client.list_resources()] == ["docs://other", "docs://readme"]
            assert await client.complete({"type": "ref/prompt", "name": "greet"}, "name", "A") == ["A!"]
            assert names(await client.list_prompts()) == ["greet"]

    asyncio.run(scenario())


def test_registering_a_hook_returns_the_function() -> None:
    def hook(cursor: str | None, ctx: Context) -> list[Any]:
        return []

    assert empty().on("list_tools")(hook) is hook


def test_an_unknown_hook_is_refused_with_those_there_are() -> None:
    with pytest.raises(DefinitionError, match=r"no hook 'tool_list'.*list_tools"):
        empty().on("tool_list")


# Listing what is registered


def test_what_is_registered_comes_in_pages_that_can_include_hidden_items() -> None:
    hub = empty(page_size=2).add(Arithmetic)

    first = hub.list_registered("tools")
    second = hub.list_registered("tools", first.next_cursor)
    everything = [hub.list_registered("tools", include_hidden=True)]
    while everything[-1].next_cursor is not None:
        everything.append(hub.list_registered("tools", everything[-1].next_cursor, include_hidden=True))

    assert [definition(row).name for row in first.items] == ["add", "maths.power"]
    assert [definition(row).name for row in second.items] == ["multiply", "subtract"]
    assert second.next_cursor is None
    assert [definition(row).name for page in everything for row in page.items] == ids(hub)


@pytest.mark.parametrize(
    ("kind", "there"),
    [
        ("tools", ["shout"]),
        ("prompts", ["greet"]),
        ("resources", ["docs://readme"]),
        ("resource_templates", ["notes://{id}"]),
    ],
)
def test_each_kind_is_listed_for_itself(kind: Any, there: list[str]) -> None:
    hub = empty().add([Shout, Greet, Readme])

    @hub.resource("notes://{id}")
    def note(id: str) -> str:
        return id

    assert ids(hub, kind) == there
    assert [row.id for row in hub.list_registered(kind).items if isinstance(row, Capability)] == there


# Lists that depend on the session


class Vault(Hub):
    """Shows its hidden tools to sessions that know the word."""

    async def on_list_tools(self, cursor: str | None, ctx: Context) -> Page:
        return self.list_registered("tools", cursor, include_hidden=bool(ctx.session.assigns.get("open")))


def vault() -> Vault:
    hub = Vault("vault", "1")

    @hub.tool
    async def unlock(word: str, ctx: Context) -> str:
        """Show what is hidden."""
        await ctx.session.put("open", word == "sesame")
        await ctx.session.notify_changed("tools")
        return "done"

    @hub.tool(hidden=True)
    async def treasure() -> str:
        """Not for everybody's eyes."""
        return "gold"

    return hub


@pytest.mark.parametrize("version", [version for version in ALL if version != V2026_07_28])
def test_a_session_unlocks_tools_for_itself_alone(version: str) -> None:
    hub = vault()

    async def scenario() -> None:
        async with connect(hub, version) as insider, connect(hub, version) as outsider:
            assert names(await insider.list_tools()) == ["unlock"]
            assert (await insider.call_tool("treasure")).text == "gold"
            await insider.call_tool("unlock", {"word": "sesame"})
            await insider.assert_notification("tools/list_changed")
            await insider.refute_notification("tools/list_changed")
            assert names(await insider.list_tools()) == ["treasure", "unlock"]
            await outsider.refute_notification("tools/list_changed")
            assert names(await outsider.list_tools()) == ["unlock"]
            await insider.call_tool("unlock", {"word": "abracadabra"})
            assert names(await insider.list_tools()) == ["unlock"]

    asyncio.run(scenario())


def test_a_stateless_request_unlocks_nothing_for_the_next() -> None:
    async def scenario() -> None:
        async with hearing(vault(), V2026_07_28) as client:
            await client.call_tool("unlock", {"word": "sesame"})
            await client.refute_notification("tools/list_changed")
            assert names(await client.list_tools()) == ["unlock"]

    asyncio.run(scenario())


# Capabilities


def declared(hub: Hub, version: str) -> dict[str, Any]:
    async def scenario() -> dict[str, Any]:
        async with connect(hub, version) as client:
            return dict((await client.open())["capabilities"])

    return asyncio.run(scenario())


@pytest.mark.parametrize("version", ERAS)
def test_capabilities_are_derived_from_what_is_registered(version: str) -> None:
    hub = empty().add(Shout)
    assert declared(hub, version).keys() == {"tools", "logging"}

    hub.add(Greet).add(Readme)
    assert declared(hub, version) == {
        "tools": {"listChanged": True},
        "prompts": {"listChanged": True},
        "resources": {"listChanged": True, "subscribe": True},
        "logging": {},
        "completions": {},
    }


@pytest.mark.parametrize("version", ERAS)
def test_configured_capabilities_are_declared_as_they_are(version: str) -> None:
    given: dict[str, Any] = {"tools": {}, "resources": {"subscribe": True}, "prompts": {"listChanged": True}}

    assert declared(empty(capabilities=given), version) == given


@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize("method", ["prompts/list", "resources/list", "resources/templates/list"])
def test_methods_of_undeclared_capabilities_do_not_exist(method: str, version: str) -> None:
    async def scenario(hub: Hub) -> None:
        async with connect(hub, version) as client:
            with pytest.raises(RemoteError, match=method) as caught:
                await client.request(method)
            assert caught.value.code == -32601

    asyncio.run(scenario(empty().add(Shout)))
    asyncio.run(scenario(empty(capabilities={"tools": {}}).add(Greet).add(Readme)))


@pytest.mark.parametrize("version", ERAS)
def test_a_capability_appears_with_its_first_prompt(version: str) -> None:
    hub = empty()

    async def scenario() -> None:
        async with connect(hub, version) as client:
            with pytest.raises(RemoteError):
                await client.list_prompts()
            hub.add(Greet)
            assert names(await client.list_prompts()) == ["greet"]

    asyncio.run(scenario())


def test_a_hub_that_does_not_declare_changes_of_a_list_does_not_tell_them() -> None:
    hub = empty(capabilities={"tools": {}, "prompts": {"listChanged": True}})

    async def scenario() -> None:
        async with connect(hub, LATEST_LEGACY) as client:
            hub.add(Shout).add(Greet)
            await client.assert_notification("prompts/list_changed")
            await client.refute_notification("tools/list_changed")

    asyncio.run(scenario())


# Names


@pytest.mark.parametrize("version", ERAS)
def test_portable_names_are_published_and_both_forms_are_accepted(version: str) -> None:
    hub = empty(names="portable").add(Arithmetic)

    async def scenario() -> None:
        async with connect(hub, version) as client:
            rows = {row.name: row for row in await client.list_tools()}
            assert list(rows) == ["add", "maths_power", "multiply", "subtract"]
            if version == V2026_07_28:
                assert rows["maths_power"].title == "maths.power"
            for name in ("maths_power", "maths.power"):
                assert (await client.call_tool(name, {"a": 2, "b": 5})).structured == {"result": 32}

    asyncio.run(scenario())


@pytest.mark.parametrize("version", ERAS)
def test_canonical_names_are_published_as_they_are_and_both_forms_are_accepted(version: str) -> None:
    hub = empty().add(Arithmetic)

    async def scenario() -> None:
        async with connect(hub, version) as client:
            assert "maths.power" in names(await client.list_tools())
            for name in ("maths_power", "maths.power"):
                assert (await client.call_tool(name, {"a": 2, "b": 5})).structured == {"result": 32}

    asyncio.run(scenario())


# Limits


@pytest.mark.parametrize("version", ERAS)
def test_a_tool_that_takes_longer_than_the_hub_allows_is_stopped(version: str) -> None:
    hub = empty(tool_timeout=0.05)
    stopped: list[bool] = []

    @hub.tool
    async def wait() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(True)
        return "never"

    async def scenario() -> None:
        async with connect(hub, version) as client:
            result = await client.call_tool("wait")
            assert (result.is_error, result.text) == (True, "Tool execution timed out")

    asyncio.run(scenario())
    assert stopped == [True]


# Running


def test_an_unknown_transport_is_refused() -> None:
    with pytest.raises(DefinitionError, match="no transport 'carrier-pigeon'"):
        empty().run("carrier-pigeon")  # type: ignore[arg-type]


def test_the_health_of_a_hub_names_its_version() -> None:
    assert asyncio.run(empty().health())["status"] == "ok"


@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize("lifespan", ["off", "on"])
def test_the_asgi_app_runs_under_a_server_of_its_own(lifespan: Literal["on", "off"], version: str) -> None:
    hub = empty().add(Arithmetic)

    async def scenario() -> None:
        async with asyncio.timeout(DEADLINE), served(hub, lifespan=lifespan) as url:
            client = Client(HttpLink(url), version=version)
            await client.open()
            assert (await client.call_tool("add", {"a": 1, "b": 2})).structured == {"result": 3}
            assert len(await client.list_tools()) == 4
            await client.close()

    asyncio.run(scenario())


def test_a_server_without_lifespan_still_tells_changes() -> None:
    hub = empty().add(Arithmetic)

    async def scenario() -> None:
        async with asyncio.timeout(DEADLINE), served(hub, lifespan="off") as url:
            client = TestClient(HttpLink(url))
            await client.open()
            async with client.listen(toolsListChanged=True):
                hub.add(Shout)
                await client.assert_notification("tools/list_changed")
            await client.close()

    asyncio.run(scenario())
