"""`waypost read`, on every kind of target."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.operated import Captured, complaint, printed
from tests.cli.shell import waypost
from tests.cli.targets import on
from waypost.cli import main


@on("server.py:hub", "deskpackage.server:hub", "URL", "URL/mcp")
@pytest.mark.parametrize(("uri", "text"), [("docs://readme", "# Grüße\n"), ("notes://7", "note 7\n")])
def test_a_resource_is_read(target: str, uri: str, text: str, capsys: Captured) -> None:
    assert main(["read", target, uri]) == 0
    assert printed(capsys) == text


@on("server.py:hub", "URL")
def test_contents_are_printed_as_json(target: str, capsys: Captured) -> None:
    assert main(["read", target, "docs://readme", "--json"]) == 0
    expected = [{"uri": "docs://readme", "text": "# Grüße", "mimeType": "text/markdown"}]
    assert json.loads(printed(capsys)) == expected


@on("server.py:hub", "URL")
def test_bytes_are_printed_unchanged(target: str, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["read", target, "docs://logo"]) == 0
    assert capsysbinary.readouterr().out == b"\x89PNG\r\n\x00\xff"


@on("server.py:hub", "URL")
def test_an_unknown_resource_is_an_error(target: str, capsys: Captured) -> None:
    assert main(["read", target, "docs://gone"]) == 1
    assert complaint(capsys) == "waypost: Resource not found: docs://gone"


def test_reading_from_a_hub_without_resources_is_an_error(project: Path, capsys: Captured) -> None:
    assert main(["read", "waypost.yaml", "docs://readme"]) == 1
    assert complaint(capsys).startswith("waypost: ")


def test_contents_of_several_parts_keep_their_order(project: Path) -> None:
    (project / "parts.py").write_text(
        "from waypost import Hub\n"
        "from waypost.wire.content import BlobContents, TextContents\n"
        "hub = Hub('parts', version='1')\n"
        "@hub.resource('docs://parts')\n"
        "async def parts() -> list:\n"
        "    first = TextContents('docs://1', 'first')\n"
        "    return [first, BlobContents('docs://2', b'second\\n'), TextContents('docs://3', 'third')]\n"
    )
    done = waypost("read", "parts.py:hub", "docs://parts", cwd=project)

    assert (done.returncode, done.stdout) == (0, "first\nsecond\nthird\n")
