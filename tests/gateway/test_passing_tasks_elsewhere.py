"""A tool of the protocol's own example server that only runs as a task, called through a hub."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gateway.importers import Json, write
from tests.gateway.passers import started
from tests.interop.behind import everything
from tests.protocol.conftest import asynchronous
from waypost.testing import connect


@pytest.mark.timeout(300)
def test_a_task_is_awaited_with_its_elicitation_and_progress(tmp_path: Path) -> None:
    server = everything()

    def clarify(params: Json) -> Json:
        choices = params["requestedSchema"]["properties"]["interpretation"]
        assert "could have multiple interpretations" in params["message"]
        return {"action": "accept", "content": {"interpretation": choices["oneOf"][0]["const"]}}

    @asynchronous
    async def researched() -> None:
        file = write(tmp_path, {"every": server}, [{"connection": "every"}])
        async with started(file) as hub, connect(hub, elicitation=clarify) as client:
            report = await client.call_with_progress(
                "every.simulate-research-query", {"topic": "python", "ambiguous": True}
            )
            assert "# Research Report: python (" in report.text
            assert "unavailable" not in report.text
            await client.assert_notification("progress", message="Analyzing content...")

    researched()
