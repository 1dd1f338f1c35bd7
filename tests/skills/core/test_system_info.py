"""Facts about the machine, and nothing that names it or its users."""

from __future__ import annotations

import getpass
import os
import platform
import socket
from pathlib import Path

import pytest

from tests.protocol.conftest import asynchronous
from tests.skills.core.calling import calling


@asynchronous
async def test_the_facts_are_returned(tmp_path: Path) -> None:
    async with calling(data_directory=tmp_path) as call:
        facts = (await call("system_info")).structured

    assert facts["python"] == platform.python_version()
    assert facts["cpu_count"] == os.cpu_count()
    assert facts["disk"]["total_bytes"] >= facts["disk"]["free_bytes"] > 0
    assert facts["memory"]["total_bytes"] >= facts["memory"]["available_bytes"] > 0
    assert len(facts["load"]) == 3
    assert facts["uptime_seconds"] > 0


@asynchronous
async def test_no_host_name_path_or_variable_is_returned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAYPOST_SECRET", "hunter2-hunter2")
    async with calling(data_directory=tmp_path) as call:
        said = (await call("system_info", config={"environment": True})).text

    secrets = ["hunter2", str(tmp_path), os.getcwd(), *(v for v in os.environ.values() if len(v) > 12)]
    assert [secret for secret in secrets if secret in said] == []
    assert socket.gethostname() not in said or socket.gethostname() in platform.platform()
    assert f'"{getpass.getuser()}"' not in said


@asynchronous
async def test_a_missing_directory_does_not_affect_the_other_facts() -> None:
    async with calling(data_directory=Path("/nowhere/at/all")) as call:
        facts = (await call("system_info")).structured

    assert facts["disk"] is None
    assert facts["platform"]["system"]
