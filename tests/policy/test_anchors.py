"""Anchors of the audit: timestamps of a real authority (`openssl ts`), and the detection of wrong ones."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.policy.records import SECRET, record
from tests.protocol.conftest import asynchronous
from waypost import Hub
from waypost.policy.anchors import Anchors
from waypost.policy.audit import AuditChains, Verdict
from waypost.settings import Anchor
from waypost.stores.database import TEXT, Change, delete_where
from waypost.stores.schema import AUDIT
from waypost.stores.sqlite import SqliteDatabase
from waypost.stores.store import Store

pytest.importorskip("rfc3161_client")
pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is the authority")

CONFIG = """\
[tsa]
serial = serial
crypto_device = builtin
signer_cert = tsa.pem
signer_key = tsa.key
signer_digest = sha256
default_policy = 1.2.3.4
digests = sha256
ess_cert_id_alg = sha256
"""
REMOVE = Change(delete_where(AUDIT, "chain = ?", [TEXT]))
EXTENSIONS = "extendedKeyUsage=critical,timeStamping\nkeyUsage=critical,digitalSignature\nbasicConstraints=CA:FALSE\n"


class Authority(NamedTuple):
    """Where an authority answers, and its root certificate."""

    url: str
    root: Path


def run(folder: Path, *words: str, given: bytes = b"") -> bytes:
    """What `openssl` prints."""
    done = subprocess.run(["openssl", *words], cwd=folder, input=given, capture_output=True, check=True, timeout=90)
    return done.stdout


def make_root(folder: Path) -> Path:
    """A root certificate of its own."""
    folder.mkdir(exist_ok=True)
    own = ("-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=Root", "-days", "2")
    purpose = ("-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign")
    run(folder, "req", "-x509", "-newkey", "rsa:2048", "-nodes", *own, *purpose)
    return folder / "ca.pem"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Authority]:
    """An authority on loopback."""
    folder = tmp_path_factory.mktemp("tsa")
    root = make_root(folder)
    run(folder, "req", "-newkey", "rsa:2048", "-nodes", "-keyout", "tsa.key", "-out", "tsa.csr", "-subj", "/CN=TSA")
    (folder / "extensions").write_text(EXTENSIONS)
    signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-out", "tsa.pem", "-days", "2")
    run(folder, "x509", "-req", "-in", "tsa.csr", *signed, "-extfile", "extensions")
    (folder / "tsa.cnf").write_text(CONFIG)
    (folder / "serial").write_text("01\n")
    turn = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            query = self.rfile.read(int(self.headers["Content-Length"]))
            with turn:
                (folder / "query").write_bytes(query)
                options = ("-config", "tsa.cnf", "-section", "tsa", "-queryfile", "query", "-out", "answer")
                run(folder, "ts", "-reply", *options)
                answer = (folder / "answer").read_bytes()
            self.send_response(200)
            self.send_header("Content-Type", "application/timestamp-reply")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield Authority(f"http://127.0.0.1:{server.server_port}/", root)
    server.shutdown()
    server.server_close()
    thread.join()


async def stamped(store: Store, settings: Anchor) -> None:
    """Write a chain and timestamp its end at once."""
    waiting: list[Any] = []

    class Now(Anchors):
        def _begin(self) -> None:
            raise AssertionError("the interval is an hour")

    anchors = Now(store, settings, waiting.append)  # type: ignore[arg-type]
    chains = AuditChains(store, SECRET, None, anchors)
    await chains.write([record(1), record(2)])
    assert anchors._timer is not None
    anchors._timer.cancel()
    assert anchors._latest is not None
    await anchors._stamp(anchors._latest)


async def verified(store: Store, authority: Path | None) -> Verdict:
    settings = Anchor(url="http://127.0.0.1:1/", authority=None if authority is None else str(authority))
    return await AuditChains(store, SECRET, None, Anchors(store, settings)).verify()


@asynchronous
async def test_the_end_of_a_chain_is_stamped_and_the_stamp_is_checked(authority: Authority, tmp_path: Path) -> None:
    store = Store(SqliteDatabase(tmp_path / "store.db"))
    await stamped(store, Anchor(url=authority.url))

    for root in (authority.root, None):
        assert await verified(store, root) == Verdict(1, 3, [], 1)
    [problem] = (await verified(store, make_root(tmp_path / "another"))).problems
    assert "is not valid: the authority did not sign it" in problem
    await store.close()


@asynchronous
async def test_a_chain_that_was_rewritten_with_the_secret_does_not_match_its_timestamp(
    authority: Authority, tmp_path: Path
) -> None:
    store = Store(SqliteDatabase(tmp_path / "store.db"))
    await stamped(store, Anchor(url=authority.url))
    [anchor] = await Anchors(store, None).read()
    [entry] = await store.state.page("audit anchors")
    for name, value in (("digest", "0" * 64), ("number", 2), ("response", "AAAA")):
        changed = await store.state.put("audit anchors", entry.key, {**entry.value, name: value}, entry.version)
        problems = (await verified(store, authority.root)).problems
        assert any(f"of chain {anchor.chain} is not valid" in problem for problem in problems), name
        entry = await store.state.put("audit anchors", entry.key, entry.value, changed.version)
    assert (await verified(store, authority.root)).problems == []

    forged = AuditChains(store, SECRET)
    forged._chain = anchor.chain
    await store.database.write(REMOVE, (anchor.chain,))
    await forged.write([record(1), record(3)])
    [problem] = (await verified(store, authority.root)).problems
    assert problem.startswith(f"Entry 3 of chain {anchor.chain} is not the one that the head")

    shorter = AuditChains(store, SECRET)
    shorter._chain = anchor.chain
    await store.database.write(REMOVE, (anchor.chain,))
    await shorter.write([record(1)])
    assert (await verified(store, authority.root)).problems == [
        f"Entry 3 of chain {anchor.chain} is missing: a time stamp names it."
    ]
    await store.close()


@asynchronous
async def test_an_authority_that_does_not_answer_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = Store(SqliteDatabase(tmp_path / "store.db"))
    await stamped(store, Anchor(url="http://127.0.0.1:1/"))

    assert "the audit was not anchored" in caplog.text
    assert await verified(store, None) == Verdict(1, 3, [])
    await store.close()


@asynchronous
async def test_a_hub_has_its_chain_stamped_in_the_interval(authority: Authority, tmp_path: Path) -> None:
    (tmp_path / "waypost.yaml").write_text(
        f"audit: {{anchor: {{url: '{authority.url}', intervalMs: 1000, authority: '{authority.root}'}}}}\n"
    )
    hub = Hub.from_config(tmp_path / "waypost.yaml")
    await hub.start()
    try:
        hub.guard.record_act("key.created", "root", "api", "ci")
        found: list[Any] = []

        async def look() -> None:
            found[:] = await Anchors(hub.store, None).read()

        async with asyncio.timeout(60):
            while not found:
                await asyncio.sleep(0.05)
                await look()
        assert (await hub.runtime.core.chains.verify()).anchors == 1
    finally:
        await hub.stop()
