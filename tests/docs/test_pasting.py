"""Every block of the pages can be pasted into a file, or a link below it names its file."""

from __future__ import annotations

import builtins
import re
import runpy
import symtable
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.docs.pages import EXAMPLE_FILES, PAGES, WORKER_FILES, Block, blocks
from tests.docs.test_docs import LINK, is_shown_by
from waypost.runtime.assembly import check

FILES: Final = {path.resolve() for path in (*EXAMPLE_FILES, *WORKER_FILES)}


def tables(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    """A scope and all scopes in it."""
    yield table
    for child in table.get_children():
        yield from tables(child)


def unknown_names(text: str) -> set[str]:
    """The names that a program uses and nothing in it defines."""
    program = symtable.symtable(text, "pasted", "exec")
    symbols = [(scope, symbol) for scope in tables(program) for symbol in scope.get_symbols()]
    defined = {symbol.get_name() for symbol in program.get_symbols() if symbol.is_assigned() or symbol.is_imported()}
    used = {
        symbol.get_name()
        for scope, symbol in symbols
        if symbol.is_global() or (scope is program and symbol.is_referenced())
    }
    return used - defined - set(dir(builtins)) - {"__name__", "__file__"}


def runs_alone(text: str, folder: Path) -> bool:
    """Whether a program can be pasted into an empty file and imported."""
    try:
        complete = not unknown_names(text)
    except SyntaxError:
        return False
    if complete:
        file = folder / "pasted.py"
        file.write_text(text)
        runpy.run_path(str(file), run_name="pasted")
    return complete


def is_whole(text: str, folder: Path) -> bool:
    """Whether a text is a configuration that can be served."""
    file = folder / "waypost.yaml"
    file.write_text(text)
    return [finding for finding in check(file) if finding.severity == "error"] == []


def linked_below(block: Block) -> set[Path]:
    """The files that the paragraph right below a block links to."""
    lines = block.page.read_text().splitlines()[block.line + block.text.count("\n") + 1 :]
    paragraph = re.split(r"\n[ \t]*\n", "\n".join(lines).lstrip("\n"), maxsplit=1)[0]
    return {(block.page.parent / target).resolve() for target in LINK.findall(paragraph)} & FILES


def linked_on(page: Path) -> set[Path]:
    """The files that a page links to."""
    return {(page.parent / target).resolve() for target in LINK.findall(page.read_text())} & FILES


@pytest.mark.parametrize("block", blocks("python", "js"), ids=lambda block: block.place)
def test_a_program_runs_when_it_is_pasted_or_its_file_is_linked_right_below(block: Block, tmp_path: Path) -> None:
    named = any(is_shown_by(path.read_text(), block.text) for path in linked_below(block))
    assert named or (block.language == "python" and runs_alone(block.text, tmp_path)), block.text


@pytest.mark.parametrize("block", blocks("yaml"), ids=lambda block: block.place)
def test_a_configuration_is_whole_or_its_file_is_linked_on_the_page(block: Block, tmp_path: Path) -> None:
    if is_whole(block.text, tmp_path):
        return
    assert any(is_shown_by(path.read_text(), block.text) for path in linked_on(block.page)), block.text


def test_an_incomplete_block_is_noticed(tmp_path: Path) -> None:
    assert runs_alone("from waypost import Hub\nhub = Hub('a', version='1')\n", tmp_path)
    assert not runs_alone("hub = Hub('a', version='1')\n", tmp_path)
    assert not runs_alone("def f():\n    return asyncio.sleep(1)\n", tmp_path)
    assert not runs_alone("    x = 1\n", tmp_path)
    assert not runs_alone("x = {\n", tmp_path)
    block = Block(PAGES[0], 1, "python", "")
    assert linked_below(block) == set()
