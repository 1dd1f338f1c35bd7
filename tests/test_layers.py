"""The house: dependencies point down the list of rooms, and every module has a docstring and a bounded length."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "waypost"
MODULES = sorted(SOURCE.rglob("*.py"))

HOUSE = (
    {"cli"},
    {"testing"},
    {"hub"},
    {"runtime"},
    {"api", "hooks"},
    {"gateway"},
    {"imports", "search"},
    {"workflows"},
    {"skills"},
    {"documents"},
    {"worker"},
    {"workers"},
    {"upstreams", "identity.key_ring"},
    {"runtime.core", "runtime.component"},
    {"transports"},
    {"protocol"},
    {"policy"},
    {"identity"},
    {"execution"},
    {"capabilities"},
    {"queues"},
    {"stores"},
    {"buses"},
    {"config", "settings"},
    {"wire"},
    {"corked", "errors", "kinds", "loops", "redaction", "suggestions", "version"},
)
"""The rooms from top to bottom; a room knows the rooms below it."""

FLOOR = {room: floor for floor, rooms in enumerate(HOUSE) for room in rooms}
FRONT_DOORS = {"__init__", "__main__"}
"""The package itself and `python -m waypost` stand before the house and may use all of it."""

MAX_MODULE_LINES = 700


class Import(NamedTuple):
    room: str
    line: int


def room_of(file: Path) -> str:
    """The room a file of the package is in: its folder, its own name, or both where a module is a room of its own."""
    parts = file.relative_to(SOURCE).with_suffix("").parts
    return room if (room := ".".join(parts[:2])) in FLOOR else parts[0]


def imports(tree: ast.Module) -> Iterator[Import]:
    """Every import of a part of the package, wherever in the module it stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield from _rooms(name.name, (), node.lineno)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: a relative import"
            yield from _rooms(node.module or "", tuple(name.name for name in node.names), node.lineno)


def _rooms(module: str, names: tuple[str, ...], line: int) -> Iterator[Import]:
    package, _, rest = module.partition(".")
    if package != "waypost":
        return
    if rest:
        room = ".".join(rest.split(".")[:2])
        yield Import(room if room in FLOOR else rest.partition(".")[0], line)
        return
    # `from waypost import config` names a room; any other name is taken from the front door.
    for name in names or ("__init__",):
        yield Import(name if name in FLOOR else "__init__", line)


def upward(file: Path) -> list[str]:
    """The imports of a module that point up the house."""
    own = FLOOR[room_of(file)]
    tree = ast.parse(file.read_text())
    return [
        f"{file.relative_to(SOURCE)}:{found.line} imports {found.room}"
        for found in imports(tree)
        if found.room in FRONT_DOORS or FLOOR[found.room] < own
    ]


def test_every_module_is_in_a_room_of_the_house() -> None:
    assert {room_of(file) for file in MODULES} - FRONT_DOORS == set(FLOOR)


def test_dependencies_point_down_the_house() -> None:
    found = [violation for file in MODULES if room_of(file) not in FRONT_DOORS for violation in upward(file)]

    assert found == []


@pytest.mark.parametrize(
    ("line", "violations"),
    [
        ("import waypost.hub", 1),
        ("from waypost import Hub", 1),
        ("from waypost import hub", 1),
        ("import waypost", 1),
        ("if TYPE_CHECKING:\n    from waypost.transports.http.app import HttpApp", 1),
        ("def f():\n    from waypost.cli import main", 1),
        ("from waypost import config, hub", 1),
        ("from waypost.capabilities.registry import Registry", 0),
        ("from waypost.wire import messages", 0),
        ("import asyncio", 0),
    ],
)
def test_an_import_that_points_up_is_found_wherever_it_stands(
    line: str, violations: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "SOURCE", tmp_path)
    module = tmp_path / "capabilities" / "sample.py"
    module.parent.mkdir()
    module.write_text(line)

    assert len(upward(module)) == violations


@pytest.mark.parametrize("file", MODULES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_a_module_has_a_docstring_and_at_most_700_lines(file: Path) -> None:
    text = file.read_text()
    said = ast.get_docstring(ast.parse(text))

    assert said
    assert text.startswith('"""')
    assert len(text.splitlines()) <= MAX_MODULE_LINES


def test_every_folder_is_a_package() -> None:
    folders = {file.parent for file in MODULES}

    assert [str(folder) for folder in folders if not (folder / "__init__.py").exists()] == []


def test_the_package_says_that_it_is_typed() -> None:
    assert (SOURCE / "py.typed").exists()


@pytest.mark.parametrize("word", ["utils", "helpers", "common", "manager"])
def test_no_module_is_called_by_a_word_that_says_nothing(word: str) -> None:
    assert [file.name for file in MODULES if word in file.stem or word in file.parent.name] == []
