"""Hubs from a configuration file: what they offer, and how they follow the file while they run."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import textwrap
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shell import serving
from tests.upstreams.conftest import until
from waypost import ConfigError, RemoteError
from waypost.building import check
from waypost.config import Finding
from waypost.configured import ConfiguredHub
from waypost.policy import digest, new_key
from waypost.testing import TestClient, connect
from waypost.wire.versions import LATEST_LEGACY, V2026_07_28

ERAS = [LATEST_LEGACY, V2026_07_28]
DEADLINE = 20.0

KIT = """\
from waypost import Toolkit, tool


class Kit(Toolkit, category="Small"):
    @tool(description="Say a word")
    async def speak(self) -> str:
        return "one"
"""

CONFIG = """\
version: "1"
server: {name: desk, version: 2.0.0, surface: full, instructions: Ask nicely.}
toolkits:
  - ./tools.py
"""


class Folder:
    """A configuration and the files it names."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = self.write("waypost.yaml", CONFIG)
        self.tools = self.write("tools.py", KIT)

    def write(self, name: str, text: str) -> Path:
        """Write a file in one step, as editors do."""
        path = self.path / name
        draft = path.with_name(path.name + ".draft")
        draft.write_text(textwrap.dedent(text))
        os.replace(draft, path)
        return path

    def hub(self) -> ConfiguredHub:
        return ConfiguredHub(self.config)

    def findings(self) -> list[Finding]:
        """What `check` finds, which is what stops the hub from being made."""
        found = check(self.config)
        with pytest.raises(ConfigError) as caught:
            self.hub()
        assert list(caught.value.findings) == found
        return found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    monkeypatch.setattr(sys, "path", list(sys.path))
    return Folder(tmp_path)


@asynccontextmanager
async def using(hub: ConfiguredHub, version: str = LATEST_LEGACY) -> AsyncIterator[TestClient]:
    """A client of the hub, which stops with it."""
    async with asyncio.timeout(DEADLINE):
        try:
            async with connect(hub, version) as client:
                yield client
        finally:
            await hub.stop()


def names(rows: list[Any]) -> list[str]:
    return [row.name for row in rows]


def run(folder: Folder, use: Callable[[TestClient], Any], version: str = LATEST_LEGACY) -> Any:
    """What one use of a hub gives."""

    async def scenario() -> Any:
        async with using(folder.hub(), version) as client:
            return await use(client)

    return asyncio.run(scenario())


# What is offered


@pytest.mark.parametrize("version", ERAS)
def test_the_server_section_is_what_clients_see(folder: Folder, version: str) -> None:
    async def scenario() -> None:
        async with using(folder.hub(), version) as client:
            assert (client.server_info.name, client.server_info.version) == ("desk", "2.0.0")
            assert (await client.open()).instructions == "Ask nicely."

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "reference", ["./tools.py", "./tools.py:Kit", "toolpackage.kits", "toolpackage.kits:Kit"], ids=lambda text: text
)
def test_toolkits_come_from_files_and_modules(reference: str, folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder.path / "toolpackage").mkdir()
    folder.write("toolpackage/__init__.py", "")
    folder.write("toolpackage/kits.py", KIT)
    folder.write("waypost.yaml", f"server: {{surface: full}}\ntoolkits: ['{reference}']")
    monkeypatch.syspath_prepend(folder.path)
    for module in ("toolpackage", "toolpackage.kits"):
        monkeypatch.delitem(sys.modules, module, raising=False)

    (listed,) = run(folder, TestClient.list_tools)

    assert (listed.name, listed.description, listed.meta) == ("speak", "Say a word", {"category": "Small"})
    assert run(folder, lambda client: client.call_tool("speak")).text == "one"


def test_a_file_gives_everything_in_it_that_can_be_registered(folder: Folder) -> None:
    folder.write(
        "tools.py",
        '''\
        from waypost import Context, Prompt, Resource, Tool, Toolkit, tool
        from waypost.capabilities.catalog import Catalog


        class Kit(Toolkit):
            @tool
            def first(self) -> str:
                return "first"


        @tool(name="second")
        def function() -> str:
            return "second"


        class Third(Tool):
            """A component."""
            def execute(self) -> str:
                return "third"


        class Base(Tool):
            """Without a body of its own it is no tool."""


        class Readme(Resource, uri="docs://readme"):
            def read(self) -> str:
                return "# Hello"


        class Greet(Prompt):
            def messages(self) -> str:
                return "Greet."


        def helper() -> str:
            return "not marked"
        ''',
    )
    hub = folder.hub()

    assert [row.id for row in hub.expand("tools")] == ["first", "second", "third"]
    assert [row.id for row in hub.expand("resources")] == ["docs://readme"]
    assert [row.id for row in hub.expand("prompts")] == ["greet"]


def test_a_toolkit_can_be_used_with_options(folder: Folder) -> None:
    folder.write(
        "waypost.yaml",
        """\
        server: {surface: full}
        toolkits:
          - {use: "./tools.py:Kit", category: Admin, hidden: true, name: utter, description: Say it}
        """,
    )
    (row,) = folder.hub().expand("tools")

    assert (row.id, row.category, row.hidden, row.definition.description) == ("utter", "Admin", True, "Say it")
    assert run(folder, TestClient.list_tools) == []
    assert run(folder, lambda client: client.call_tool("utter")).text == "one"


def test_files_are_found_beside_the_configuration_wherever_the_process_is(
    folder: Folder, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write("helper_of_the_kit.py", "WORD = 'helped'\n")
    folder.write("tools.py", "import helper_of_the_kit\n" + KIT.replace('"one"', "helper_of_the_kit.WORD"))
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))

    assert run(folder, lambda client: client.call_tool("speak")).text == "helped"


def test_two_files_of_one_name_do_not_meet(folder: Folder) -> None:
    for place in ("a", "b"):
        (folder.path / place).mkdir()
        folder.write(f"{place}/tools.py", KIT.replace("speak", f"speak_{place}").replace('"one"', f'"{place}"'))
    folder.write("waypost.yaml", "server: {surface: full}\ntoolkits: [./a/tools.py, ./b/tools.py]")

    assert names(run(folder, TestClient.list_tools)) == ["speak_a", "speak_b"]
    assert run(folder, lambda client: client.call_tool("speak_a")).text == "a"


def test_the_settings_of_the_server_take_effect(folder: Folder) -> None:
    folder.write(
        "waypost.yaml",
        """\
        server: {surface: full, names: portable, pageSize: 1, toolTimeoutMs: 50, maxBodyBytes: 2048}
        toolkits: [./tools.py]
        """,
    )
    folder.write(
        "tools.py",
        """\
        import asyncio
        from waypost import tool

        @tool(name="a.wait")
        async def wait() -> str:
            await asyncio.Event().wait()
            return "never"

        @tool(name="b.other")
        async def other() -> str:
            return "other"
        """,
    )
    hub = folder.hub()

    async def scenario() -> None:
        async with using(hub) as client:
            page = await client.request("tools/list")
            assert (names(page.tools), page.next_cursor is None) == (["a_wait"], False)
            assert (await client.call_tool("a_wait")).text == "Tool execution timed out"

    asyncio.run(scenario())
    assert hub.max_body == 2048


# Prompts


def with_prompt(folder: Folder, template: str, arguments: str = "[{name: who, required: true}, {name: tone}]") -> None:
    indented = textwrap.indent(template, " " * 6)
    folder.write(
        "waypost.yaml",
        f"prompts:\n  greet:\n    title: Greeting\n    description: Greet somebody\n    arguments: {arguments}\n"
        f"    template: |\n{indented}\n",
    )


def rendered(folder: Folder, version: str = LATEST_LEGACY, **arguments: str) -> str:
    return str(run(folder, lambda client: client.get_prompt("greet", arguments), version).text)


@pytest.mark.parametrize("version", ERAS)
def test_a_prompt_is_listed_with_its_arguments(folder: Folder, version: str) -> None:
    with_prompt(folder, "{{ who }} {{ tone }}", "[{name: who, description: The name, required: true}, {name: tone}]")

    (prompt,) = run(folder, TestClient.list_prompts, version)

    assert (prompt.name, prompt.title, prompt.description) == ("greet", "Greeting", "Greet somebody")
    assert prompt.arguments == [{"name": "who", "description": "The name", "required": True}, {"name": "tone"}]


@pytest.mark.parametrize("version", ERAS)
def test_a_prompt_is_rendered_with_and_without_what_is_optional(folder: Folder, version: str) -> None:
    with_prompt(folder, "Greet {{ who }}{% if tone %}, {{ tone }}{% endif %}.")

    assert rendered(folder, version, who="Ada") == "Greet Ada.\n"
    assert rendered(folder, version, who="Ada", tone="warmly") == "Greet Ada, warmly.\n"


@pytest.mark.parametrize("version", ERAS)
def test_an_argument_that_is_missing_is_refused(folder: Folder, version: str) -> None:
    with_prompt(folder, "Greet {{ who }}.")

    with pytest.raises(RemoteError, match="who") as caught:
        rendered(folder, version, tone="warmly")
    assert caught.value.code == -32602


def test_a_prompt_without_arguments_needs_none(folder: Folder) -> None:
    with_prompt(folder, "Greet everybody.", "[]")

    assert rendered(folder) == "Greet everybody.\n"


@pytest.mark.parametrize(
    "value",
    ["{{7*7}}", "{% for x in range(9) %}x{% endfor %}", "{# gone #}", "<b>&amp;</b>", "${HOME}", "line\n# {{ who }}"],
)
def test_a_value_is_data_and_never_a_template(value: str, folder: Folder) -> None:
    with_prompt(folder, "Greet {{ who }}.")

    assert rendered(folder, who=value) == f"Greet {value}.\n"


@pytest.mark.parametrize(
    "template",
    [
        "{{ who.__class__.__mro__ }}",
        "{{ who.__class__ }}",
        "{{ who['__class__']['__base__'] }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ who | attr('__class__') }}",
        "{{ cycler.__init__.__globals__.os.environ }}",
        "{{ '{0.__class__.__init__}'.format(who) }}",
        "{{ who.format.__globals__ }}",
    ],
)
def test_a_template_cannot_reach_behind_its_values(template: str, folder: Folder) -> None:
    with_prompt(folder, template)

    try:
        shown = rendered(folder, who="Ada")
    except (ConfigError, RemoteError):
        return
    assert "class" not in shown
    assert "os" not in shown
    assert shown.strip() == ""


def test_a_template_that_fails_while_it_is_rendered_fails_the_request_alone(folder: Folder) -> None:
    with_prompt(folder, "{{ 1 / (who | length) }}")

    async def scenario() -> None:
        async with using(folder.hub()) as client:
            with pytest.raises(RemoteError):
                await client.get_prompt("greet", {"who": ""})
            assert (await client.get_prompt("greet", {"who": "Al"})).text == "0.5\n"

    asyncio.run(scenario())


# Mistakes


def test_a_toolkit_that_cannot_be_imported_is_a_finding_with_its_line(folder: Folder) -> None:
    folder.write("tools.py", "import no_such_module_anywhere\n")

    (found,) = folder.findings()

    assert (found.file, found.line, found.key, found.code) == (str(folder.config), 4, "toolkits[0]", "CFG042")
    assert "ModuleNotFoundError: No module named 'no_such_module_anywhere'" in found.message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def (:\n", "SyntaxError"),
        ("raise RuntimeError('no luck')\n", "RuntimeError: no luck"),
        (KIT.replace("@tool(", "@tool(nmae='x', "), "unknown option 'nmae'"),
        (KIT.replace("@tool(", "@tool(name='two words', "), "two words"),
        (KIT + "\n    def __init__(self, needed: int) -> None: ...\n", "needed"),
        (KIT + "\n    def __init__(self):\n        raise OSError('no disk')\n", "no disk"),
        ("raise SystemExit(3)\n", "SystemExit"),
        ("import sys\nsys.exit('usage: tools.py')\n", "usage: tools.py"),
    ],
    ids=[
        "syntax",
        "raises",
        "unknown option",
        "bad name",
        "needs arguments",
        "constructor",
        "exits",
        "exits with text",
    ],
)
def test_a_toolkit_that_cannot_be_used_is_a_finding(text: str, said: str, folder: Folder) -> None:
    folder.write("tools.py", text)

    (found,) = folder.findings()

    assert (found.line, found.key, found.code) == (4, "toolkits[0]", "CFG042")
    assert said in found.message


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("./tools.py:Kti", "'Kti'"),
        ("no.such.package:Kit", "No module named"),
        ("json:dumps_all", "'dumps_all'"),
        ("./tools.py:WORD", "no tool"),
    ],
)
def test_a_reference_that_leads_to_no_toolkit_is_a_finding(reference: str, said: str, folder: Folder) -> None:
    folder.write("tools.py", KIT + "\nWORD = 'word'\n")
    folder.write("waypost.yaml", f"server: {{name: x}}\n\ntoolkits: ['{reference}']\n")

    (found,) = folder.findings()

    assert (found.line, found.key, found.code) == (3, "toolkits[0]", "CFG042")
    assert said in found.message


def test_all_mistakes_are_told_at_once(folder: Folder) -> None:
    folder.write("other.py", "1 / 0\n")
    folder.write("tools.py", "1 / 0\n")
    folder.write("waypost.yaml", "toolkits:\n- ./tools.py\n- ./other.py\n")

    assert [found.line for found in folder.findings()] == [2, 3]


def test_two_tools_of_one_name_are_a_finding_that_names_it(folder: Folder) -> None:
    folder.write("other.py", KIT)
    folder.write("waypost.yaml", "toolkits:\n- ./tools.py\n- ./other.py\n")

    (found,) = folder.findings()

    assert found.code == "CFG043"
    assert "`speak`" in found.message
    assert found.key.startswith("toolkits")


def test_a_prompt_of_the_file_that_has_the_name_of_another_is_a_finding_at_the_prompt(folder: Folder) -> None:
    folder.write("tools.py", "from waypost import Prompt\n\nclass Greet(Prompt):\n    def messages(self): return 'x'\n")
    folder.write("waypost.yaml", "toolkits: [./tools.py]\n\nprompts:\n  greet:\n    template: Greet.\n")

    (found,) = folder.findings()

    assert found.code == "CFG043"
    assert "`greet`" in found.message
    assert (found.key, found.line) == ("prompts.greet", 4)


def test_a_prompt_whose_name_cannot_go_over_the_wire_is_a_finding(folder: Folder) -> None:
    folder.write("waypost.yaml", "\nprompts:\n  two words:\n    template: Greet.\n")

    (found,) = folder.findings()

    assert (found.line, found.key) == (3, "prompts.two words")


def test_a_good_file_has_no_findings(folder: Folder) -> None:
    assert check(folder.config) == []


# Following the file


@pytest.mark.parametrize("version", ERAS)
def test_a_reload_exchanges_everything_and_is_told_once(folder: Folder, version: str) -> None:
    hub = folder.hub()

    async def scenario() -> None:
        async with using(hub, version) as client:
            assert names(await client.list_tools()) == ["speak"]
            async with listening(client):
                # One class of two new tools in place of one old tool: three rows change.
                folder.write("tools.py", KIT.replace("speak", "shout") + more("whisper"))
                assert await hub.reload()
                await client.assert_notification("tools/list_changed")
                await client.refute_notification("tools/list_changed")
            assert names(await client.list_tools()) == ["shout", "whisper"]
            with pytest.raises(RemoteError, match="Unknown tool: speak"):
                await client.call_tool("speak")

    asyncio.run(scenario())


def more(name: str) -> str:
    """One more tool for the kit."""
    return f'\n    @tool(description="More")\n    async def {name}(self) -> str:\n        return "{name}"\n'


@asynccontextmanager
async def listening(client: TestClient) -> AsyncIterator[None]:
    """Hear of changes, in the way of the client's era."""
    if client.version != V2026_07_28:
        yield
        return
    async with client.listen(toolsListChanged=True, promptsListChanged=True):
        yield


@pytest.mark.parametrize("version", ERAS)
def test_an_unchanged_file_changes_and_tells_nothing(folder: Folder, version: str) -> None:
    hub = folder.hub()

    async def scenario() -> None:
        async with using(hub, version) as client, listening(client):
            folder.write("waypost.yaml", CONFIG)
            folder.write("tools.py", KIT)
            assert await hub.reload()
            await client.refute_notification("tools/list_changed")
            assert names(await client.list_tools()) == ["speak"]

    asyncio.run(scenario())


def test_new_code_behind_the_same_definition_runs_without_a_change_of_the_list(folder: Folder) -> None:
    hub = folder.hub()

    async def scenario() -> None:
        async with using(hub) as client:
            folder.write("tools.py", KIT.replace('"one"', '"another"'))
            assert await hub.reload()
            assert (await client.call_tool("speak")).text == "another"
            await client.refute_notification("tools/list_changed")

    asyncio.run(scenario())


def test_two_edits_of_one_length_in_one_second_are_both_seen(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    moment = 1_700_000_000
    os.utime(folder.tools, (moment, moment))
    hub = folder.hub()

    async def scenario() -> None:
        async with using(hub) as client:
            for word in ("two", "six"):
                folder.write("tools.py", KIT.replace('"one"', f'"{word}"'))
                os.utime(folder.tools, (moment, moment))
                assert await hub.reload()
                assert (await client.call_tool("speak")).text == word

    asyncio.run(scenario())


def test_prompts_follow_the_file_too(folder: Folder) -> None:
    folder.write("waypost.yaml", CONFIG + "prompts: {greet: {template: Hello.}}\n")
    hub = folder.hub()

    async def scenario() -> None:
        async with using(hub) as client:
            folder.write("waypost.yaml", CONFIG + "prompts: {greet: {template: Bye.}, part: {template: Go.}}\n")
            assert await hub.reload()
            await client.assert_notification("prompts/list_changed")
            await client.refute_notification("prompts/list_changed")
            await client.refute_notification("tools/list_changed")
            assert (await client.get_prompt("greet")).text == "Bye."
            assert names(await client.list_prompts()) == ["greet", "part"]

    asyncio.run(scenario())


def test_a_new_timeout_is_in_force_after_a_reload(folder: Folder) -> None:
    folder.write("tools.py", "import asyncio\n" + KIT.replace('return "one"', "await asyncio.Event().wait()"))
    hub = folder.hub()

    async def scenario() -> None:
        async with using(hub) as client:
            folder.write("waypost.yaml", CONFIG + "mcp: {tool_timeout_ms: 50}\n")
            assert await hub.reload()
            assert (await client.call_tool("speak")).text == "Tool execution timed out"

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("waypost.yaml", "toolkits: [./tools.py", "CFG004"),
        ("waypost.yaml", CONFIG + "servre: {}\n", "waypost.yaml:5: servre: "),
        ("waypost.yaml", CONFIG.replace("tools.py", "gone.py"), "gone.py"),
        ("waypost.yaml", CONFIG + "prompts: {x: {template: '{{ x'}}\n", "waypost.yaml:5"),
        ("tools.py", "def (:\n", "waypost.yaml:4: toolkits[0]: "),
        ("tools.py", "1 / 0\n", "ZeroDivisionError"),
        ("tools.py", KIT.replace("@tool(", "@tool(nmae='x', "), "nmae"),
        ("tools.py", KIT + "\n    def __init__(self):\n        raise OSError('no disk')\n", "no disk"),
        ("tools.py", KIT + more("twin") + "\n@tool(name='twin')\ndef other(): ...\n", "`twin`"),
        ("tools.py", "raise SystemExit(3)\n", "SystemExit"),
    ],
    ids=[
        "yaml",
        "unknown key",
        "missing file",
        "template",
        "syntax",
        "raises",
        "definition",
        "constructor",
        "duplicate",
        "exits",
    ],
)
def test_a_bad_file_keeps_the_old_configuration_and_says_what_is_wrong(
    file: str, text: str, said: str, folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    hub = folder.hub()

    async def scenario() -> None:
        async with using(hub) as client:
            folder.write(file, text)
            assert not await hub.reload()
            await client.refute_notification("tools/list_changed")
            assert names(await client.list_tools()) == ["speak"]
            assert (await client.call_tool("speak")).text == "one"
            folder.write("waypost.yaml", CONFIG)
            folder.write("tools.py", KIT.replace('"one"', '"healed"'))
            assert await hub.reload()
            assert (await client.call_tool("speak")).text == "healed"

    with caplog.at_level(logging.ERROR, "waypost"):
        asyncio.run(scenario())

    (record,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert "not reloaded" in record.getMessage()
    assert said in record.getMessage()


def test_a_file_that_disappears_keeps_the_old_configuration(folder: Folder, caplog: pytest.LogCaptureFixture) -> None:
    hub = folder.hub()
    folder.config.unlink()

    assert asyncio.run(hub.reload()) is False
    assert [row.id for row in hub.expand()] == ["speak"]
    assert "CFG001" in caplog.text


def test_what_was_added_in_python_stays_and_keeps_its_name(folder: Folder) -> None:
    hub = folder.hub()

    @hub.tool
    def mine() -> str:
        return "mine"

    async def scenario() -> None:
        folder.write("tools.py", KIT.replace("speak", "shout"))
        assert await hub.reload()
        assert [row.id for row in hub.expand()] == ["mine", "shout"]
        folder.write("tools.py", KIT.replace("speak", "mine"))
        assert not await hub.reload()
        assert [row.id for row in hub.expand()] == ["mine", "shout"]

    asyncio.run(scenario())


def test_running_calls_end_with_the_code_they_began_with(folder: Folder) -> None:
    slow = KIT.replace('return "one"', 'await GATE.wait()\n        return "old"')
    folder.write("tools.py", "import asyncio\nGATE = asyncio.Event()\n" + slow)
    hub = folder.hub()
    gate: asyncio.Event = sys.modules["waypost_file_tools"].GATE

    async def scenario() -> None:
        async with using(hub) as client:
            call = asyncio.create_task(client.call_tool("speak"))
            await client.ping()
            folder.write("tools.py", KIT.replace('"one"', '"new"'))
            assert await hub.reload()
            assert (await client.call_tool("speak")).text == "new"
            gate.set()
            assert (await call).text == "old"

    asyncio.run(scenario())


def test_a_change_of_the_server_section_waits_for_the_next_start(
    folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    hub = folder.hub()
    folder.write("waypost.yaml", CONFIG.replace("name: desk", "name: office"))

    assert asyncio.run(hub.reload()) is True
    assert hub.info.name == "desk"
    assert "take effect at the next start" in caplog.text


def test_a_change_of_the_store_waits_for_the_next_start(folder: Folder, caplog: pytest.LogCaptureFixture) -> None:
    hub = folder.hub()
    store = hub.store
    folder.write("waypost.yaml", CONFIG + "store: {url: 'sqlite:///other.db'}\n")

    assert asyncio.run(hub.reload()) is True
    assert hub.store is store
    assert "changes in the section store take effect at the next start" in caplog.text


# The store


@pytest.mark.parametrize(
    ("section", "file"),
    [
        ("", ".waypost/waypost.db"),
        ("store: {url: 'sqlite:///other.db?synchronous=NORMAL'}", ".waypost/other.db"),
        ("store: {url: 'sqlite:///${NAME:-deep/er}.db'}", ".waypost/deep/er.db"),
    ],
    ids=["by default", "with options", "with a variable"],
)
def test_a_hub_from_a_file_keeps_things_beside_it(
    section: str, file: str, folder: Folder, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.delenv("WAYPOST_DATA", raising=False)
    folder.write("waypost.yaml", CONFIG + section)
    monkeypatch.chdir(folder.path)
    hub = ConfiguredHub(Path("waypost.yaml"))
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert not (folder.path / ".waypost").exists()

    async def scenario() -> None:
        await hub.store.open()
        await hub.stop()

    asyncio.run(scenario())
    assert (folder.path / file).exists()


def test_the_environment_decides_where_the_data_directory_is(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("WAYPOST_DATA", str(tmp_path / "data"))
    hub = folder.hub()

    async def scenario() -> None:
        await hub.store.open()
        await hub.stop()

    asyncio.run(scenario())
    assert (tmp_path / "data" / "waypost.db").exists()
    assert not (folder.path / ".waypost").exists()


def test_a_hub_can_be_told_to_forget(folder: Folder) -> None:
    folder.write("waypost.yaml", CONFIG + "store: {url: 'sqlite://'}\n")

    assert not folder.hub().store.database.lasts


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("mysql://db/waypost", "names no store"),
        ("waypost.db", "names no store"),
        ("sqlite://waypost.db", "has a host"),
        ("sqlite:///waypost.db?journal=off", "options that do not exist"),
        ("sqlite:///waypost.db?synchronous=OFF", "options that do not exist"),
    ],
)
def test_a_url_that_names_no_store_is_found(url: str, said: str, folder: Folder) -> None:
    folder.write("waypost.yaml", f"{CONFIG}store:\n  url: '{url}'\n")

    (found,) = folder.findings()

    assert (found.file, found.line, found.key, found.code) == (str(folder.config), 6, "store.url", "CFG061")
    assert said in found.message


def test_a_store_that_cannot_be_used_does_not_stop_a_running_hub(
    folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    hub = folder.hub()
    folder.write("waypost.yaml", f"{CONFIG}store: {{url: 'mysql://db'}}\n")

    assert asyncio.run(hub.reload()) is False
    assert "CFG061" in caplog.text


@pytest.mark.parametrize("version", ERAS)
def test_a_changed_file_is_noticed_by_itself(folder: Folder, version: str) -> None:
    hub = folder.hub()

    async def scenario() -> None:
        async with using(hub, version) as client, listening(client):
            folder.write("tools.py", KIT + more("whisper"))
            await client.assert_notification("tools/list_changed", within=DEADLINE)
            assert names(await client.list_tools()) == ["speak", "whisper"]
            await client.refute_notification("tools/list_changed")

    asyncio.run(scenario())


def test_watching_goes_on_after_a_bad_file(folder: Folder, caplog: pytest.LogCaptureFixture) -> None:
    hub = folder.hub()

    async def scenario() -> None:
        async with using(hub) as client:
            folder.write("tools.py", KIT + "\n    def __init__(self):\n        raise OSError('no disk')\n")
            await until(lambda: "no disk" in caplog.text, 4)
            folder.write("tools.py", KIT.replace("speak", "shout"))
            await client.assert_notification("tools/list_changed", within=4)

    asyncio.run(scenario())


def test_a_hub_that_is_started_again_watches_again(folder: Folder) -> None:
    hub = folder.hub()

    async def scenario(name: str) -> None:
        async with using(hub) as client:
            folder.write("tools.py", KIT.replace("speak", name))
            await client.assert_notification("tools/list_changed", within=4)

    asyncio.run(scenario("first"))
    asyncio.run(scenario("second"))


def test_a_hangup_reloads_a_running_process(folder: Folder) -> None:
    folder.write("waypost.yaml", CONFIG.replace("server: {", "server: {port: 0, "))

    with serving("waypost.yaml", cwd=folder.path) as hub:
        assert hub.url
        hub.signal(signal.SIGHUP)
        assert "reloaded" in hub.wait_for("the configuration was reloaded")
        folder.write("waypost.yaml", "toolkits: [")
        hub.signal(signal.SIGHUP)
        assert "CFG004" in hub.wait_for("the configuration was not reloaded")
        assert hub.process.poll() is None


def test_keys_and_what_anonymous_callers_are_come_from_the_section_auth(tmp_path: Path) -> None:
    key = new_key()
    file = tmp_path / "waypost.yaml"
    file.write_text(
        'version: "1"\nauth:\n  anonymous: {roles: [guest]}\n'
        f'  keys: [{{id: ci, hash: "{digest(key)}", roles: [agent], scopes: [read]}}]\n'
    )
    auth = ConfiguredHub(file).auth
    assert auth is not None
    known = auth.known({b"authorization": f"Bearer {key}".encode()})
    assert known is not None
    assert (known.id, known.roles, known.scopes) == ("ci", ("agent",), ("read",))
    anonymous = auth.known({})
    assert anonymous is not None
    assert anonymous.roles == ("guest",)


def test_nobody_is_let_in_without_a_key_when_the_file_says_so(tmp_path: Path) -> None:
    file = tmp_path / "waypost.yaml"
    file.write_text('version: "1"\nauth: {anonymous: false}\n')
    auth = ConfiguredHub(file).auth
    assert auth is not None
    assert auth.known({}) is None
    assert not auth.allows_anonymous


def test_a_key_whose_hash_is_none_is_a_finding_at_its_line(tmp_path: Path) -> None:
    file = tmp_path / "waypost.yaml"
    file.write_text('version: "1"\nauth:\n  keys:\n    - {id: ci, hash: secret}\n')
    (found,) = check(file)
    assert (found.line, found.key) == (4, "auth.keys[0].hash")


# Policies, skills and the audit

RULE = "policies:\n  - {name: quiet, type: mcp_restriction, config: {tool_pattern: speak}}\n"


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        ("type: rate_limit, config: {max_calls: many}", "Policy 'r': "),
        ("type: rate_limit, config: {max: 1}", "Policy 'r': "),
        ("type: rate_limit, config: {per: [color]}", "Policy 'r': per knows principal, capability and permission"),
        ("type: time_window, config: {timezone: Mars/Olympus}", "Policy 'r': there is no time zone 'Mars/Olympus'."),
        ("type: time_window, config: {deny_end_hour: 25}", "Policy 'r': hours go from 0 to 24."),
        ("type: allow_list, config: {}", "Policy 'r': "),
        ("type: permission_override, config: {permission: a, action: allow}", "Policy 'r': a permission_override can"),
        ("type: permission_override, config: {permission: a, expires_at: '2027-01-01T00:00:00'}", "Policy 'r': "),
    ],
)
def test_a_rule_that_does_not_fit_its_type_is_a_finding_at_its_line(rule: str, sentence: str, folder: Folder) -> None:
    folder.write("waypost.yaml", f"policies:\n  - {{name: r, {rule}}}\n")
    (found,) = folder.findings()
    assert (found.code, found.line) == ("CFG063", 2)
    assert found.message.startswith(sentence)


def test_two_rules_with_one_name_are_a_finding(folder: Folder) -> None:
    folder.write("waypost.yaml", RULE + "  - {name: quiet, type: chain_restriction, config: {caller_pattern: a}}\n")
    (found,) = folder.findings()
    assert (found.code, found.key) == ("CFG063", "policies[1].name")
    assert found.message == "two policies are called `quiet`; give one of them another name"


def test_a_changed_rule_counts_from_the_next_call_on_and_a_bad_one_changes_nothing(folder: Folder) -> None:
    async def scenario() -> None:
        hub = folder.hub()
        async with using(hub) as client:
            assert (await client.call_tool("speak")).text == "one"
            folder.write("waypost.yaml", CONFIG + RULE)
            assert await hub.reload()
            with pytest.raises(RemoteError, match="tool 'speak' blocked by pattern 'speak'") as denied:
                await client.call_tool("speak")
            assert denied.value.code == -32000
            folder.write("waypost.yaml", CONFIG + RULE.replace("speak", "other") + "  - {name: b, type: allow_list}\n")
            assert not await hub.reload()
            with pytest.raises(RemoteError, match="MCP restriction"):
                await client.call_tool("speak")
            folder.write("waypost.yaml", CONFIG)
            assert await hub.reload()
            assert (await client.call_tool("speak")).text == "one"

    asyncio.run(scenario())


def test_rules_that_stay_keep_what_they_counted(folder: Folder) -> None:
    limit = CONFIG + "policies:\n  - {name: once, type: rate_limit, config: {max_calls: 1, window_seconds: 3600}}\n"
    folder.write("waypost.yaml", limit)

    async def scenario() -> None:
        hub = folder.hub()
        async with using(hub) as client:
            await client.call_tool("speak")
            folder.write("waypost.yaml", limit + RULE.replace("policies:\n", "").replace("speak", "other"))
            assert await hub.reload()
            with pytest.raises(RemoteError, match="rate limit exceeded: max 1/3600s"):
                await client.call_tool("speak")

    asyncio.run(scenario())


@pytest.mark.parametrize(("sink", "entries"), [("", 2), ("audit: {sink: store}\n", 2), ("audit: {sink: none}\n", 0)])
def test_calls_go_on_record_where_the_file_says(sink: str, entries: int, folder: Folder) -> None:
    folder.write("waypost.yaml", CONFIG + sink)

    async def scenario() -> None:
        hub = folder.hub()
        async with using(hub) as client:
            await client.call_tool("speak")
            if hub.guard.audit is not None:
                await hub.guard.audit.written()
            assert len(await hub.store.audit.latest()) == entries

    asyncio.run(scenario())


def test_the_audit_can_be_a_file_for_its_owner_alone(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WAYPOST_DATA", raising=False)
    folder.write("waypost.yaml", CONFIG + "audit: {sink: file}\n")
    run(folder, lambda client: client.call_tool("speak"))
    file = folder.path / ".waypost" / "audit.jsonl"
    assert '"capability":"speak"' in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600


CORE = ["api_request", "llm_transform", "rss_collector", "send_to_workflow", "system_info", "web_browse", "web_search"]


@pytest.mark.parametrize(
    ("section", "skills"),
    [
        ("", []),
        ("skills: {}\n", CORE),
        ("skills: {core: []}\n", []),
        ("skills: {core: [shell, web_search]}\n", ["shell", "web_search"]),
        ("skills: {core: [], dynamic: ./made}\n", ["echo"]),
        ("skills: {core: [], dynamic: ./made, autoload: false}\n", []),
    ],
)
def test_there_are_the_skills_that_the_file_asks_for(section: str, skills: list[str], folder: Folder) -> None:
    (folder.path / "made").mkdir()
    folder.write("made/echo.py", "def run(args):\n    return args['input']\n")
    folder.write("waypost.yaml", CONFIG + section)
    found = run(folder, lambda client: client.list_tools())
    assert names(found) == [*(f"skill:{name}" for name in skills), "speak"]


def test_one_principal_runs_no_more_at_once_than_the_file_says(folder: Folder) -> None:
    folder.write("waypost.yaml", CONFIG.replace("name: desk", "name: desk, maxRunning: 1"))
    slow = KIT.replace("        return", "        await gate.wait()\n        return")
    folder.write("tools.py", "import asyncio\n\ngate = asyncio.Event()\n" + slow)

    async def scenario() -> None:
        hub = folder.hub()
        async with using(hub) as client:
            calls = [asyncio.create_task(client.call_tool("speak")) for _ in range(2)]
            await until(lambda: hub.guard.bulkheads is not None and hub.guard.bulkheads._waiting == 1)
            sys.modules["waypost_file_tools"].gate.set()
            assert [(await call).text for call in calls] == ["one", "one"]

    asyncio.run(scenario())
