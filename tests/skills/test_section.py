"""The configured limits apply to the processes of skills."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.contract.conftest import asynchronous
from waypost import Hub
from waypost.testing import TestClient, connect


@asynccontextmanager
async def limited(path: Path, limits: str, source: str) -> AsyncIterator[TestClient]:
    """A client of a hub whose file sets limits, with one skill."""
    (path / "skills").mkdir()
    (path / "skills" / "greedy.py").write_text(source)
    (path / "waypost.yaml").write_text(
        f"server: {{surface: full}}\nskills: {{dynamic: ./skills, core: [], limits: {{{limits}}}}}\n"
    )
    hub = Hub.from_config(path / "waypost.yaml")
    try:
        async with connect(hub) as client:
            yield client
    finally:
        await hub.stop()


@pytest.mark.parametrize(
    ("limits", "line", "said"),
    [
        ("cpuSeconds: 1", "while True: pass", "it used up its CPU time of 1 s"),
        ("memoryBytes: 100663296", "return len(bytearray(96 * 2**20))", "reached its memory limit of 96 MiB"),
        ("files: 16", "return len([open('/dev/null') for _ in range(16)])", "Too many open files"),
        ("fileBytes: 1000", "return open('f', 'wb', buffering=0).write(b'x' * 1001)", "1000"),
        ("resultBytes: 1024", "return 'x' * 1024", "bytes, and skills.limits.resultBytes is 1,024."),
    ],
)
@asynchronous
async def test_a_skill_has_the_limits_of_the_file(tmp_path: Path, limits: str, line: str, said: str) -> None:
    async with limited(tmp_path, limits, f"def run(args):\n    {line}\n") as client:
        assert said in (await client.call_tool("skill:greedy")).text


@asynchronous
async def test_the_import_of_a_skill_has_the_timeout_of_the_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = "import time\ntime.sleep(600)\ndef run(args):\n    return 1\n"
    async with limited(tmp_path, "startMs: 300", source) as client:
        assert await client.list_tools() == []
    assert "the skill was not imported within 0.3 s" in caplog.text
