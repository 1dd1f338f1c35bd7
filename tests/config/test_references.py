from pathlib import Path

import pytest

from waypost.config.rules import absolute, file_of, is_module, split


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("./tools.py", "/base/tools.py"),
        ("./tools.py:Kit", "/base/tools.py:Kit"),
        ("tools.py:Kit", "/base/tools.py:Kit"),
        ("../x/tools.py", "/x/tools.py"),
        ("./folder", "/base/folder"),
        ("/else/tools.py:Kit", "/else/tools.py:Kit"),
        ("package.module:Kit", "package.module:Kit"),
        ("package", "package"),
    ],
)
def test_only_files_become_absolute(reference: str, expected: str) -> None:
    assert absolute(reference, "/base") == expected


def test_a_reference_is_split_at_its_last_name() -> None:
    assert split("./a:b/tools.py:Kit") == ("./a:b/tools.py", "Kit")
    assert split("package.module") == ("package.module", None)


def test_the_file_of_a_reference_is_known() -> None:
    assert file_of("/x/tools.py:Kit") == Path("/x/tools.py")
    assert file_of("package.module:Kit") is None


@pytest.mark.parametrize("reference", ["a b", "1a", "a..b", "a:", ":A", "a:b:c", "http://x"])
def test_an_invalid_module_name_is_recognised(reference: str) -> None:
    assert not is_module(reference)
