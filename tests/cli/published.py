"""A hub with a port for workers, served by a real process, and a worker that is connected to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.shell import serving
from waypost.worker import Worker, register_worker

SETTINGS = """\
version: "1"
server: {name: desk, surface: full}
workers: {port: 0}
prompts:
  summarise:
    description: Summarise a text.
    arguments: [{name: text, description: What to summarise, required: true}, {name: words}]
    template: "Summarise {{text}} in {{words}} words."
"""


@pytest.fixture(scope="module")
def mailer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """A worker with a skill and a prompt; commands find its hub by the data directory."""
    folder = tmp_path_factory.mktemp("published")
    (folder / "hub.yaml").write_text(SETTINGS)
    with serving("hub.yaml", "--port", "0", cwd=folder) as hub, pytest.MonkeyPatch.context() as patch:
        patch.setenv("WAYPOST_DATA", str(folder / ".waypost"))
        worker = register_worker(hub.wait_for(" is ready at ").rpartition(" ")[2], name="mailer")
        worker.register_function("mail::write", lambda: "Write.")
        worker.publish_skill("mail", "# Mail\n\nSends it.").result(60)
        worker.publish_prompt("send-email", "Write an email.", function_id="mail::write").result(60)
        yield worker
        worker.shutdown().result(60)
