"""The section `toolkits`: the sources and names of tools."""

from __future__ import annotations

import sys

import pytest

from tests.configured.conftest import KIT, Folder, names, run
from waypost import Hub
from waypost.errors import ConfigError
from waypost.testing import TestClient


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


def test_every_component_of_a_file_is_registered(folder: Folder) -> None:
    folder.write(
        "tools.py",
        '''\
        from waypost import Context, Prompt, Resource, Tool, Toolkit, tool
        from waypost.capabilities.registry import Catalog


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

    assert (row.id, row.metadata.category, row.metadata.hidden, row.definition.description) == (
        "utter",
        "Admin",
        True,
        "Say it",
    )
    assert run(folder, TestClient.list_tools) == []
    assert run(folder, lambda client: client.call_tool("utter")).text == "one"


def test_files_are_found_next_to_the_configuration_from_any_working_directory(
    folder: Folder, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write("helper_of_the_kit.py", "WORD = 'helped'\n")
    folder.write("tools.py", "import helper_of_the_kit\n" + KIT.replace('"one"', "helper_of_the_kit.WORD"))
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))

    assert run(folder, lambda client: client.call_tool("speak")).text == "helped"


def test_two_files_with_one_name_do_not_collide(folder: Folder) -> None:
    for place in ("a", "b"):
        (folder.path / place).mkdir()
        folder.write(f"{place}/tools.py", KIT.replace("speak", f"speak_{place}").replace('"one"', f'"{place}"'))
    folder.write("waypost.yaml", "server: {surface: full}\ntoolkits: [./a/tools.py, ./b/tools.py]")

    assert names(run(folder, TestClient.list_tools)) == ["speak_a", "speak_b"]
    assert run(folder, lambda client: client.call_tool("speak_a")).text == "a"


def test_a_file_that_makes_a_hub_of_the_configuration_that_names_it_is_a_finding(folder: Folder) -> None:
    made = f"import waypost\nhub = waypost.Hub.from_config({str(folder.config)!r})\n"
    folder.tools.write_text(KIT + made)

    with pytest.raises(ConfigError, match="makes a hub of a configuration that names this file"):
        Hub.from_config(folder.config)
    folder.tools.write_text(KIT)
    assert run(folder, lambda client: client.call_tool("speak")).text == "one"
