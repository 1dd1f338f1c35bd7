import asyncio
import os
import subprocess
import sys

import pytest

from waypost import Hub
from waypost.transports import stdio

BIG = 1024 * 1024


def test_a_client_that_never_reads_is_disconnected(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(stdio, "_MAX_UNREAD_BYTES", 4 * BIG)
    hub = Hub("talker", version="1.0.0")

    @hub.tool
    async def talk() -> str:
        return "x" * BIG

    async def scenario() -> bool:
        await hub.start()
        client_reads, hub_writes = os.pipe()
        hub_reads, client_writes = os.pipe()
        with os.fdopen(hub_reads, "rb") as stdin, os.fdopen(hub_writes, "wb", buffering=0) as stdout:
            serving = asyncio.create_task(stdio.serve(hub.engine, stdin, stdout, max_line=BIG))
            meta = (
                '{"io.modelcontextprotocol/protocolVersion": "2026-07-28",'
                ' "io.modelcontextprotocol/clientCapabilities": {}}'
            )
            for number in range(8):
                call = f'{{"jsonrpc": "2.0", "id": {number}, "method": "tools/call",'
                os.write(client_writes, f'{call} "params": {{"name": "talk", "_meta": {meta}}}}}\n'.encode())
            async with asyncio.timeout(60):
                stopped = await serving
        os.close(client_reads)
        os.close(client_writes)
        await hub.stop()
        return stopped

    assert asyncio.run(scenario())
    assert "does not read" in caplog.text


def test_a_real_process_ends_when_its_client_is_gone() -> None:
    code = "from waypost import Hub; Hub('x', version='1').run()"
    ended = subprocess.run([sys.executable, "-c", code], input=b"", capture_output=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (0, b"")
