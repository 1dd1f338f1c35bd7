"""The OpenAPI document against the running API: generated requests get only the answers that it describes.

Two checks of schemathesis are left out. Not everything that fits the schema is accepted: a cursor, a name that is taken
or a workflow without an end are refused with 400 and a sentence. That every path needs a key is in `test_api.py`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis.specs.openapi.checks import ignored_auth, positive_data_acceptance

from waypost.api.api import ROUTES
from waypost.cli.client import RunningHub, read_hub_file

ROOT = Path(__file__).parents[2]
EXAMPLES = int(os.environ.get("WAYPOST_API_EXAMPLES", "4"))
"""How many requests of each operation; `make soak` sends more."""
LEFT_OUT = [ignored_auth, positive_data_acceptance]
STREAMS = {route.path for route in ROUTES.all if route.streams}
PLACES = [(route.method, route.path) for route in ROUTES.all if route.path not in STREAMS]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    """A hub that listens."""
    data = tmp_path_factory.mktemp("data")
    command = [sys.executable, "-m", "waypost", "serve", "tests/api/served.py:hub", "--port", "0", "--data", str(data)]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        while " is ready at " not in process.stderr.readline():
            assert process.poll() is None, "the hub did not start"
        yield read_hub_file(data / "hub.json")
    finally:
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
    assert "Traceback" not in said, said


@pytest.fixture(scope="module")
def document(served: RunningHub) -> Any:
    """The document as schemathesis reads it."""
    return schemathesis.openapi.from_url(f"{served.url}/api/openapi.json", timeout=60)


@pytest.mark.parametrize(("method", "path"), PLACES, ids=[f"{method} {path}" for method, path in PLACES])
def test_generated_requests_get_the_answers_of_the_document(
    served: RunningHub, document: Any, method: str, path: str
) -> None:
    key = {"authorization": f"Bearer {served.key}"}

    @seed(1)
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=document[path][method].as_strategy())
    def send(case: Any) -> None:
        case.call_and_validate(headers=key, timeout=60, excluded_checks=LEFT_OUT)

    send()
