"""The worked examples of the iii project's registry: a tree of skills with a live page, a worker in two languages."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.shell import PATIENCE, environment
from tests.interop.iii_clients import Client
from tests.interop.iii_desk import Publisher, Registry, publishing
from tests.interop.iii_desk import connected as connected
from tests.interop.iii_desk import hub as hub
from tests.interop.iii_desk import publisher as publisher
from tests.interop.iii_peers import LANGUAGES, Language
from tests.interop.npm import HERE, install, node

pytestmark = pytest.mark.timeout(120)

EXAMPLES = HERE.parents[1] / "examples" / "workers"
ROUTER = """\
# resend

Email provider integration.

- [`email`](iii://resend/email) — sending and tracking
- [`contacts`](iii://resend/contacts) — audience management

Live status check: [`health`](iii://fn/resend/health)
"""
EMAIL = """\
# resend/email

Email flows.

- [`send`](iii://resend/email/send) — outbound
- [`track`](iii://resend/email/track) — webhooks + status
"""
SEND = "# Sending\n\nHow to send one email, or many.\n"
TRACK = "# Tracking\n\nHow to follow what was sent.\n"
HEALTH = "# Resend health\n\nAPI: ok. Quota: 73% remaining."
DEMO = "# demo\n\nA demo worker.\n\nSee [`guide`](iii://fn/demo/guide) for the long version.\n"
GUIDE = "# Demo guide\n\nThe long-form docs for the demo worker."


def test_an_agent_drills_down_from_the_index_to_a_leaf_and_a_live_page(publisher: Publisher) -> None:
    publisher.give(resend__health={"content": HEALTH})
    for skill_id, body in (
        ("resend", ROUTER),
        ("resend/email", EMAIL),
        ("resend/email/send", SEND),
        ("resend/email/track", TRACK),
        ("resend/contacts", "# Contacts\n"),
    ):
        publisher.call("skills::register", id=skill_id, skill=body)
    index = publisher.call("skill::fetch", uri="iii://skills")
    assert "- [`resend`](iii://resend) — resend — Email provider integration.\n" in index
    assert "    - [`resend/email/send`](iii://resend/email/send) — Sending — How to send one email, or many." in index
    assert publisher.call("skill::fetch", uri="iii://resend") == f"# iii://resend\n\n{ROUTER.rstrip()}"
    assert publisher.payloads_of("resend::health") == []
    leaves = ["iii://resend/email/send", "iii://resend/email/track", "iii://fn/resend/health"]
    pages = zip(leaves, (SEND, TRACK, HEALTH), strict=True)
    fetched = publisher.call("skill::fetch", uris=leaves)
    assert fetched == "\n\n---\n\n".join(f"# {uri}\n\n{text.rstrip()}" for uri, text in pages)
    assert publisher.payloads_of("resend::health") == [{}]
    publisher.call("skills::register", id="resend/email", skill="# Other")
    assert publisher.call("skills::resources-read", uri="iii://resend/email/send")["contents"][0]["text"] == SEND


def test_dead_links_are_warnings_in_the_answer_to_a_registration(publisher: Publisher) -> None:
    warnings = publisher.call("skills::register", id="resend", skill=ROUTER)["warnings"]
    assert [one.partition(": ")[0] for one in warnings] == ["iii://resend/email", "iii://resend/contacts"]
    old = publisher.call("skills::register", id="demo", skill="See iii://demo/demo::guide.")["warnings"]
    assert "iii://fn/demo/guide" in old[0]


@contextmanager
def demo(language: Language, address: str, folder: Path) -> Iterator[None]:
    """The example of a worker, run until the block ends."""
    if language == "node":
        install()
        program = folder / "demo.mjs"
        program.write_text((EXAMPLES / "demo.mjs").read_text())
        (folder / "node_modules").symlink_to(HERE / "node_modules")
        command = [node(), str(program)]
    else:
        command = [sys.executable, str(EXAMPLES / "demo_sdk.py")]
    process = subprocess.Popen(command, env=environment(III_URL=address, HOME=str(folder)))
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE)


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_worker_of_the_page_publishes_a_skill_a_page_and_a_slash_command(
    hub: Registry, language: Language, tmp_path: Path
) -> None:
    with publishing("python", hub.workers, tmp_path, "watcher") as watcher:
        watcher.follow("prompts::on-change", "watcher::prompts")
        with demo(language, hub.workers, tmp_path):
            assert watcher.wait_for("watcher::prompts") == {"op": "register", "name": "greet"}
            client = Client(hub.url)
            assert client.ask("resources/read", {"uri": "iii://demo"})["contents"][0]["text"] == DEMO
            fetched = client.use("skill__fetch", uris=["iii://demo", "iii://fn/demo/guide"])
            text = f"# iii://demo\n\n{DEMO.rstrip()}\n\n---\n\n# iii://fn/demo/guide\n\n{GUIDE}"
            assert fetched["content"][0]["text"] == text
            written = client.ask("prompts/get", {"name": "greet", "arguments": {"name": "Ada"}})
            assert written["messages"][0]["content"]["text"] == "Greet Ada warmly."
            written = client.ask("prompts/get", {"name": "greet"})
            assert written["messages"][0]["content"]["text"] == "Greet world warmly."
