"""Reading valid, invalid and hostile documents."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from waypost.errors import DefinitionError
from waypost.imports import openapi
from waypost.imports.openapi import read_document


def written(folder: Path, content: str | bytes) -> str:
    file = folder / "api.yaml"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(file)


@pytest.mark.parametrize(
    "content",
    [
        '{"openapi": "3.1.0", "paths": {}}',
        b'\xef\xbb\xbf{"openapi": "3.1.0", "paths": {}}',
        "openapi: 3.1.0\npaths: {}\n",
        "{openapi: 3.1.0, paths: {}}",
    ],
)
def test_json_and_yaml_are_read(tmp_path: Path, content: str | bytes) -> None:
    assert read_document(written(tmp_path, content)) == {"openapi": "3.1.0", "paths": {}}


@pytest.mark.parametrize("version", ["3.0.4", "3.1.2", "3.2.0"])
def test_openapi_3_0_to_3_2_are_read(tmp_path: Path, version: str) -> None:
    assert read_document(written(tmp_path, f"openapi: {version}\npaths: {{}}\n"))["openapi"] == version


def test_words_and_dates_of_yaml_stay_text(tmp_path: Path) -> None:
    text = "openapi: 3.0.0\nx: {a: [no, on, 2020-01-01, 12:30, true, 3]}\ny: {200: ok}\nz: &z {b: c}\nw: *z\n"
    found = read_document(written(tmp_path, text))
    assert found["x"] == {"a": ["no", "on", "2020-01-01", "12:30", True, 3]}
    assert (found["y"], found["w"]) == ({"200": "ok"}, {"b": "c"})


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "not a mapping"),
        ("[]", "not a mapping"),
        ("just text", "not a mapping"),
        ("a: b", "does not say"),
        ("openapi: 2.0.0", "does not say"),
        ("openapi: 3", "does not say"),
        ("openapi: [3.1.0]", "does not say"),
        ("swagger: '2.0'", "Swagger 2.0"),
        ("openapi: '3.1.0\nx", "the YAML is not valid"),
        ("a: b: c", "line 1 of the document cannot be read: the YAML is not valid: mapping values"),
        (b"\xff\xfe\x00", "not UTF-8"),
        ("a: \x01", "control character"),
        ("a: *b", "alias"),
        ('{"openapi": "3.1.0", "a": ' + "[" * 100_000, "nested too deeply"),
        ("openapi: 3.1.0\na: " + "[" * 500 + "]" * 500, "nested more than 128 levels deep"),
    ],
)
def test_an_invalid_document_is_refused_with_one_line(tmp_path: Path, content: str | bytes, why: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        read_document(written(tmp_path, content))
    assert why in caught.value.message
    assert "\n" not in caught.value.message


def test_nested_yaml_aliases_are_not_expanded(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 30)]
    assert read_document(written(tmp_path, "\n".join(["openapi: 3.1.0", *lines])))["a29"]


def test_a_document_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "api.json"
    with file.open("wb") as stream:
        stream.truncate(openapi.MAX_DOCUMENT_BYTES + 1)
    with pytest.raises(DefinitionError, match="larger than 16 MiB"):
        read_document(str(file))
    monkeypatch.setattr(openapi._Composer, "max_nodes", 100)
    with pytest.raises(DefinitionError, match="more than 100 values"):
        read_document(written(tmp_path, "openapi: 3.1.0\na: [" + "x, " * 200 + "]"))


def test_a_path_that_is_not_a_regular_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, why in (("pipe", "regular file"), (".", "regular file"), ("none", "no such file")):
        with pytest.raises(DefinitionError, match=why):
            read_document(str(tmp_path / name))
