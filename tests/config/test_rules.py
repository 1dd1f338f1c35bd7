import pytest

from tests.config.conftest import Folder


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
