"""Every example file runs, in every version of the protocol, and does what the pages say it does."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.docs import exercises_capabilities, exercises_gateway, exercises_policy, exercises_proxy, exercises_running
from tests.docs.exercises import EXERCISES
from tests.docs.pages import EXAMPLE_FILES, EXAMPLES, name
from waypost.cli.target import load_hub
from waypost.testing import connect
from waypost.wire.versions import ALL

MODULES: Final = (exercises_capabilities, exercises_gateway, exercises_policy, exercises_proxy, exercises_running)
"""Their exercises are registered once they are imported."""

OTHERWISE: Final = {
    "test_counter.py": "run by pytest, below",
    "test_asking.py": "run by pytest, below",
    "test_tour.py": "run by pytest, below",
    "configuration/tools.py": "used by configuration/waypost.yaml",
    "policies_tools.py": "used by policies.yaml",
    "clients/official.py": "run beside a hub by test_connecting_page.py",
    "clients/started.py": "run by test_connecting_page.py",
    "clients/fast.py": "run beside a hub by test_connecting_page.py",
    "coming_from/temporal_tools.py": "used by coming_from/temporal.yaml",
    "mailer.py": "run beside a hub by test_content_page.py",
    "mcp-servers.yaml": "run by the commands of upstreams.md, which find `waypost` on the path",
    "upstreams.yaml": "run by the commands of its page, which find `waypost` on the path",
    "skills/longer.py": "loaded by skills.yaml",
    "skills/word_count.py": "loaded by skills.yaml",
    "workflows/skills/shorten.py": "loaded by workflows/steps.yaml",
    "workflows/skills/triage.py": "loaded by workflows/steps.yaml",
    "configuration/admin.py": "used by configuration/waypost.yaml",
    "configuration/base.yaml": "included by configuration/includes.yaml",
    "configuration/team/prompts.yaml": "included by configuration/includes.yaml",
}
SERVED: Final = [path for path in EXAMPLE_FILES if name(path) not in OTHERWISE]


@pytest.mark.parametrize("version", ALL)
@pytest.mark.parametrize("path", SERVED, ids=name)
def test_the_example_does_what_its_page_says(
    path: Path, version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAYPOST_DATA", str(tmp_path))
    hub = load_hub(str(path) if path.suffix == ".yaml" else f"{path}:hub")

    async def play() -> None:
        try:
            async with connect(hub, version) as client:
                await EXERCISES[name(path)](client, hub)
        finally:
            await hub.stop()

    asyncio.run(play())


@pytest.mark.parametrize(("file", "count"), [("test_counter.py", 8), ("test_asking.py", 4), ("test_tour.py", 1)])
def test_a_test_example_passes(file: str, count: int) -> None:
    options = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist")
    run = subprocess.run([sys.executable, "-m", "pytest", *options, file], cwd=EXAMPLES, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"{count} passed" in run.stdout


def test_every_exercise_belongs_to_a_file() -> None:
    assert sorted(EXERCISES) == sorted(map(name, SERVED))
