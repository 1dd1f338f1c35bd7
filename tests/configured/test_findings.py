"""Errors in toolkits and prompts are reported where the file names them."""

from __future__ import annotations

import pytest

from tests.configured.conftest import BROKEN_KIT, KIT, Folder
from waypost.runtime.assembly import check


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
        (BROKEN_KIT, "no disk"),
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
def test_a_reference_to_no_toolkit_is_a_finding(reference: str, said: str, folder: Folder) -> None:
    folder.write("tools.py", KIT + "\nWORD = 'word'\n")
    folder.write("waypost.yaml", f"server: {{name: x}}\n\ntoolkits: ['{reference}']\n")

    (found,) = folder.findings()

    assert (found.line, found.key, found.code) == (3, "toolkits[0]", "CFG042")
    assert said in found.message


def test_all_errors_are_reported_together(folder: Folder) -> None:
    folder.write("other.py", "1 / 0\n")
    folder.write("tools.py", "1 / 0\n")
    folder.write("waypost.yaml", "toolkits:\n- ./tools.py\n- ./other.py\n")

    assert [found.line for found in folder.findings()] == [2, 3]


def test_two_tools_with_one_name_are_a_finding(folder: Folder) -> None:
    folder.write("other.py", KIT)
    folder.write("waypost.yaml", "toolkits:\n- ./tools.py\n- ./other.py\n")

    (found,) = folder.findings()

    assert found.code == "CFG043"
    assert "`speak`" in found.message
    assert found.key.startswith("toolkits")


def test_a_prompt_with_the_name_of_another_is_a_finding(folder: Folder) -> None:
    folder.write("tools.py", "from waypost import Prompt\n\nclass Greet(Prompt):\n    def messages(self): return 'x'\n")
    folder.write("waypost.yaml", "toolkits: [./tools.py]\n\nprompts:\n  greet:\n    template: Greet.\n")

    (found,) = folder.findings()

    assert found.code == "CFG043"
    assert "`greet`" in found.message
    assert (found.key, found.line) == ("prompts.greet", 4)


def test_a_prompt_with_an_invalid_name_is_a_finding(folder: Folder) -> None:
    folder.write("waypost.yaml", "\nprompts:\n  two words:\n    template: Greet.\n")

    (found,) = folder.findings()

    assert (found.line, found.key) == (3, "prompts.two words")


def test_a_valid_file_has_no_findings(folder: Folder) -> None:
    assert check(folder.config) == []
