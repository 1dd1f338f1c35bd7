import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.config.conftest import Folder
from waypost.config import nodes
from waypost.config.files import MAX_FILE_BYTES, Snapshot
from waypost.config.findings import Finding
from waypost.config.nodes import Node, read


def reading(folder: Folder, text: str | bytes) -> tuple[Node | None, list[Finding]]:
    findings: list[Finding] = []
    return read(folder.write("file.yaml", text), Snapshot(), findings), findings


def refused(folder: Folder, text: str | bytes) -> tuple[str, int]:
    node, (found,) = reading(folder, text)
    # A tag, an alias or a second document leaves the rest readable.
    assert (node is None) == (found.code not in ("CFG005", "CFG009"))
    return found.code, found.line


@pytest.fixture(params=["C", "pure"], autouse=True)
def either_parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "pure":
        monkeypatch.setattr(nodes, "_Loader", yaml.SafeLoader)


def line_of(node: Node | None, *path: Any) -> int:
    assert node is not None
    found = node.at(*path)
    assert found is not None
    return found.line


def test_every_value_has_the_line_of_its_key(folder: Folder) -> None:
    node, findings = reading(folder, "a:\n  b:\n    - x\n    - y\nc:\n  |\n  text\n")
    assert findings == []
    assert [line_of(node, "a"), line_of(node, "a", "b"), line_of(node, "a", "b", 1), line_of(node, "c")] == [1, 2, 4, 5]


def test_a_block_text_begins_on_the_line_after_its_indicator(folder: Folder) -> None:
    node, _ = reading(folder, "a: |\n  text\nb: text\n")
    assert node is not None
    assert [child.text_line for key in "ab" if (child := node.at(key))] == [2, 3]


def test_an_unknown_path_has_no_node(folder: Folder) -> None:
    node, _ = reading(folder, "a: [1]\n")
    assert node is not None
    assert node.at("a", 1) is None
    assert node.at("a", "b") is None
    assert node.at("z", "b") is None


def test_only_unquoted_scalars_are_resolved(folder: Folder) -> None:
    node, _ = reading(folder, "{a: 1, b: '1', c: !!str 1, d: ! 1, e: !!int '1', on: off}")
    assert node is not None
    assert isinstance(node.value, dict)
    assert {key: child.value for key, child in node.value.items()} == {
        "a": 1,
        "b": "1",
        "c": "1",
        "d": "1",
        "e": 1,
        "on": "off",
    }


def test_an_alias_has_the_value_of_its_anchor_and_its_own_line(folder: Folder) -> None:
    node, findings = reading(folder, "a: &x\n  b: 1\nc: *x\n")
    assert findings == []
    assert line_of(node, "c") == 3
    assert line_of(node, "c", "b") == 2


def test_an_empty_file_is_nothing(folder: Folder) -> None:
    node, findings = reading(folder, "# only a comment\n")
    assert node is not None
    assert (node.value, findings) == (None, [])


def test_a_byte_order_mark_is_ignored(folder: Folder) -> None:
    node, findings = reading(folder, b"\xef\xbb\xbfa: 1\n")
    assert findings == []
    assert line_of(node, "a") == 1


@pytest.mark.parametrize(
    ("text", "code", "line"),
    [
        ("a: 1\n\tb: 2\n", "CFG004", 2),
        ("a: 1\nb: 'x\n", "CFG004", 3),
        ("a: 1\nb: c: d\n", "CFG004", 2),
        ("a: 1\nb: \x01\n", "CFG004", 2),
        ("a: 1\rb: c: d\r", "CFG004", 2),
        ("a: 1\x85b: c: d", "CFG004", 2),
        ("a: 1\u2028\u2028 b: c: d\n", "CFG004", 3),
        ("a: 1\n---\nb: 1\n", "CFG005", 2),
        (b"a: 1\nb: \xff\n", "CFG003", 2),
        ("a: 1\n".encode("utf-16"), "CFG003", 1),
        ("a: &x [*x]\n", "CFG009", 1),
        ("a: 1\nb: *nowhere\n", "CFG009", 2),
        ("a: 1\nb: !!python/object:os.system x\n", "CFG009", 2),
        ("a: !!set {x}\n", "CFG009", 1),
        ("a: !!int x\n", "CFG009", 1),
        ("a: " + "[" * 70 + "]" * 70, "CFG008", 1),
        ("[" * 1_000_000, "CFG008", 1),
        ("a: [" + "x," * 100_001 + "]", "CFG008", 1),
    ],
    ids=lambda value: str(value)[:20],
)
def test_invalid_yaml_is_reported_at_its_line(folder: Folder, text: str | bytes, code: str, line: int) -> None:
    assert refused(folder, text) == (code, line)


def test_a_tab_is_called_a_tab(folder: Folder) -> None:
    _, (found,) = reading(folder, "a:\n\tb: 1\n")
    assert found.message == "the line is indented with a tab; use spaces"


def test_aliases_cannot_grow_a_small_file_without_bound(folder: Folder) -> None:
    lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x,x]"]
    lines += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    assert refused(folder, "\n".join(lines))[0] == "CFG008"


def test_aliases_cannot_nest_a_file_without_bound(folder: Folder) -> None:
    lines = ["a0: &a0 x", *(f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 100))]
    assert refused(folder, "\n".join(lines))[0] == "CFG008"


def test_a_key_that_is_given_twice_is_reported_and_the_first_kept(folder: Folder) -> None:
    node, (found,) = reading(folder, "a: 1\nb: 2\na: 3\n")
    assert (found.code, found.line, found.key) == ("CFG006", 3, "a")
    assert "line 1" in found.message
    assert line_of(node, "a") == 1


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: [-y, @scope/package]\n", "text that begins with `@` must be in quotes"),
        ("a:\n  - `x`\n", "text that begins with ``` must be in quotes"),
        ("a: %x\n", "text that begins with `%` must be in quotes"),
        ("a: [*]\n", "text that begins with `*` must be in quotes"),
        ("a: & b\n", "text that begins with `&` must be in quotes"),
        ("a: >= 1\n", "text that begins with `>` must be in quotes"),
        ('a: "\\d"\n', "put text with backslashes in single quotes"),
        ("a: - b\n", "put each `- ` on a line of its own, below the key"),
    ],
)
def test_characters_with_a_meaning_are_explained(folder: Folder, text: str, sentence: str) -> None:
    _, findings = reading(folder, text)
    assert [(found.code, found.line) for found in findings] == [("CFG004", text.count("\n"))]
    assert findings[0].message.endswith(sentence)


@pytest.mark.parametrize("key", ["1", "true", "~", "[a]", "{a: b}", "<<"])
def test_a_key_that_is_not_text_is_reported(folder: Folder, key: str) -> None:
    _, findings = reading(folder, f"a:\n  ? {key}\n  : x\n")
    assert [(found.code, found.line, found.key) for found in findings] == [("CFG007", 2, "a")]


def test_a_quoted_number_is_a_valid_key(folder: Folder) -> None:
    node, findings = reading(folder, "'1': x\n")
    assert findings == []
    assert line_of(node, "1") == 1


def test_a_missing_file_is_reported(folder: Folder) -> None:
    findings: list[Finding] = []
    assert read(folder.path / "missing.yaml", Snapshot(), findings) is None
    assert [found.code for found in findings] == ["CFG001"]


@pytest.mark.parametrize("name", ["nul\0l", "x" * 5000])
def test_an_impossible_name_is_reported(folder: Folder, name: str) -> None:
    findings: list[Finding] = []
    assert read(folder.path / name, Snapshot(), findings) is None
    assert [found.code for found in findings] == ["CFG001"]


def test_a_directory_is_reported(folder: Folder) -> None:
    findings: list[Finding] = []
    assert read(folder.path, Snapshot(), findings) is None
    assert [(found.code, "directory" in found.message) for found in findings] == [("CFG002", True)]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_refused_without_waiting(folder: Folder) -> None:
    pipe = folder.path / "pipe.yaml"
    os.mkfifo(pipe)
    findings: list[Finding] = []
    assert read(pipe, Snapshot(), findings) is None
    assert [found.code for found in findings] == ["CFG002"]


def test_a_file_that_is_too_large_is_reported(folder: Folder) -> None:
    assert refused(folder, b"#" * (MAX_FILE_BYTES + 1)) == ("CFG002", 1)


def test_a_file_of_the_largest_size_is_read(folder: Folder) -> None:
    assert reading(folder, b"#" * MAX_FILE_BYTES)[1] == []


def test_a_file_without_permission_is_reported(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    path: Path = folder.write("file.yaml", "a: 1")
    monkeypatch.setattr("builtins.open", forbidden)
    findings: list[Finding] = []
    assert read(path, Snapshot(), findings) is None
    monkeypatch.undo()
    assert "Permission denied" in findings[0].message
