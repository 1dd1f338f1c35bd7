import pytest

from tests.config.conftest import Folder
from waypost.stores import places


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("", 30.0),
        ("server: {toolTimeoutMs: 500}", 0.5),
        ("mcp: {tool_timeout_ms: 500}", 0.5),
        ("mcp: {tool_timeout_ms: 500}\nserver: {toolTimeoutMs: 500}", 0.5),
        ("mcp: {tool_timeout_ms: }\nserver: {toolTimeoutMs: 500}", 0.5),
    ],
)
def test_the_tool_timeout_may_stand_in_either_place(folder: Folder, text: str, seconds: float) -> None:
    assert folder.load(text).config.tool_timeout == seconds


def test_two_different_tool_timeouts_are_an_error(folder: Folder) -> None:
    found = folder.only("server: {toolTimeoutMs: 500}\nmcp:\n  tool_timeout_ms: 600\n")
    assert (found.code, found.line, found.key) == ("CFG060", 3, "mcp.toolTimeoutMs")


def test_a_toolkit_file_must_exist(folder: Folder) -> None:
    folder.write("here.py", "")
    found = folder.only("toolkits:\n  - ./here.py:Kit\n  - use: ./gone.py:Kit\n")
    assert (found.code, found.line, found.key) == ("CFG041", 3, "toolkits[1].use")
    assert str(folder.path / "gone.py") in found.message


def test_a_toolkit_module_is_not_looked_for(folder: Folder) -> None:
    assert folder.load("toolkits: ['no.such.module:Kit', module]\n").warnings == ()


@pytest.mark.parametrize("reference", ["not good", "a:b:c", "https://example.com/x"])
def test_a_reference_that_is_neither_a_file_nor_a_module_is_an_error(folder: Folder, reference: str) -> None:
    assert folder.only(f"toolkits: ['{reference}']\n").code == "CFG040"


@pytest.mark.parametrize("text", ["", "store:\n", "store: {}\nbus: {}\n"])
def test_a_hub_from_a_file_is_durable_and_on_its_own_by_default(folder: Folder, text: str) -> None:
    config = folder.load(text).config
    assert (config.store.url, config.bus.url) == (places.DEFAULT, "local://")


@pytest.mark.parametrize("url", ["nats://127.0.0.1:4222", "local", "redis://cache"])
def test_a_bus_that_is_not_there_yet_is_an_error(folder: Folder, url: str) -> None:
    found = folder.only(f"bus:\n  url: {url}\n")
    assert (found.code, found.line, found.key) == ("CFG062", 2, "bus.url")
    assert "nats:// comes later" in found.message


@pytest.mark.parametrize("section", ["store", "bus"])
def test_a_url_that_is_no_text_is_told_once(folder: Folder, section: str) -> None:
    assert folder.only(f"{section}: {{url: 7}}\n").code == "CFG012"
    assert folder.only(f"{section}: {{url: ''}}\n").code == "CFG013"
