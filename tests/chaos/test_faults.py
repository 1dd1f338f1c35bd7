"""The machine below a hub fails: a full disk, a read-only directory, a locked file, a clock that jumps, no descriptors.

The hub says so in a sentence, serves what it can, and goes on without a restart when the fault is over; nothing that it
acknowledged is lost.
"""

from __future__ import annotations

import errno
import json
import mmap
import resource
import shutil
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.chaos.test_every_write_killed import Client, Fact, build_lasting_hub, holds
from tests.cli.shell import serving, waypost
from tests.fuzz.hub_under_test import HubUnderTest, build_hub
from tests.fuzz.senders import Gone, HttpSender, Silent, http_request
from tests.locks import hold_lock

PATIENCE_S: Final = 60.0
SIZE: Final = "16m"
JUMP_S: Final = 3600


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of a few megabytes; only root can mount one."""
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode().strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@contextmanager
def hub_on(folder: Path, data: Path, **env: str) -> Iterator[HubUnderTest]:
    """A hub with its data in a directory of its own."""
    if not folder.exists():
        build_lasting_hub(folder)
    with serving(folder / "waypost.yaml", "--port", "0", "--data", data, cwd=folder, **env) as hub:
        yield HubUnderTest(hub)


@contextmanager
def client_of(under_test: HubUnderTest) -> Iterator[Client]:
    """A client that is closed when the block ends."""
    client = Client(under_test.port, "fault", [])
    try:
        yield client
    finally:
        client.close()


def health(under_test: HubUnderTest) -> dict[str, Any]:
    """The response of `/health`."""
    with closing(HttpSender(under_test.port)) as sender:
        [answer] = sender.send([http_request("GET", "/health", {}, b"", under_test.port)])
    found: dict[str, Any] = json.loads(answer.body)
    return found


def add_document(client: Client, id: str) -> tuple[int, str]:
    """Add a document; return the status, and the error message if it was refused."""
    answer = client.operate("POST", "documents", {"id": id, "skill": "# A\n\n" + "text " * 1_000})
    return answer.status, json.loads(answer.body).get("error", "")


def eventually(look: Callable[[], bool], otherwise: str) -> None:
    """Wait until a condition holds."""
    until = time.monotonic() + PATIENCE_S
    while not look():
        assert time.monotonic() < until, otherwise
        time.sleep(0.2)


def assert_all_there(client: Client, ids: list[str]) -> None:
    """Check that every acknowledged document can be read and that the audit is intact."""
    assert [id for id in ids if client.operate("GET", f"document?id={id}").status != 200] == []
    assert json.loads(client.operate("GET", "audit/verify").body)["problems"] == []


def fill(folder: Path) -> Path:
    """Fill a disk to the last byte."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            try:
                while True:
                    file.write(b"b" * size)
            except OSError as error:
                assert error.errno == errno.ENOSPC
    return ballast


def test_a_full_disk_is_named_and_the_hub_goes_on_when_there_is_room_again(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk, hub_on(tmp_path / "hub", disk / "data") as under_test:
        with client_of(under_test) as client:
            kept = [f"a/{number}" for number in range(20)]
            assert [add_document(client, id)[0] for id in kept] == [201] * 20
            ballast = fill(disk)
            statuses = {}
            for number in range(200):  # pages that are allocated already can still be written
                status, sentence = add_document(client, f"b/{number}")
                if status != 201:
                    break
                kept.append(f"b/{number}")
                statuses[status] = number
            assert status == 503, f"it is not full: {statuses}"
            assert "full" in sentence
            assert health(under_test)["db"] == "unavailable"
            assert client.call("add", {"a": 1, "b": 2})["structuredContent"] == {"result": 3}
            ballast.unlink()
            eventually(lambda: add_document(client, "c/1")[0] == 201, "it does not write again")
            eventually(lambda: health(under_test)["db"] == "ok", "it is not healthy again")
            assert_all_there(client, [*kept, "c/1"])
        assert under_test.crashes == []


def test_a_hub_does_not_start_on_a_read_only_directory_and_says_why(tmp_path: Path) -> None:
    file = build_hub(tmp_path / "hub")
    with small_disk(tmp_path / "disk") as disk:
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        ended = waypost("serve", file, "--port", "0", "--data", disk / "data", cwd=file.parent)
    assert ended.returncode == 1
    assert "read-only" in ended.stderr.lower()
    assert "Traceback" not in ended.stderr


READ_ONLY: Final = """\
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

static int refuses(void) {
    int before = errno, is_there = access(getenv("READ_ONLY_WHILE"), F_OK) == 0;
    errno = is_there ? EROFS : before;
    return is_there;
}
ssize_t pwrite64(int file, const void *data, size_t size, off64_t offset) {
    static ssize_t (*real)(int, const void *, size_t, off64_t);
    if (!real) real = dlsym(RTLD_NEXT, "pwrite64");
    return refuses() ? -1 : real(file, data, size, offset);
}
ssize_t pwrite(int file, const void *data, size_t size, off_t offset) {
    static ssize_t (*real)(int, const void *, size_t, off_t);
    if (!real) real = dlsym(RTLD_NEXT, "pwrite");
    return refuses() ? -1 : real(file, data, size, offset);
}
"""


def compile_library(folder: Path, name: str, source: str) -> Path:
    """A library to load before all others."""
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler here")
    (folder / f"{name}.c").write_text(source)
    library = folder / f"{name}.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, folder / f"{name}.c", "-ldl"], check=True)
    return library


def test_a_file_system_that_becomes_read_only_is_named_and_used_again_when_it_is_not(tmp_path: Path) -> None:
    # Files that are open for writing keep a file system from being remounted; the kernel does so after an error only.
    library, mark = compile_library(tmp_path, "read_only", READ_ONLY), tmp_path / "is-read-only"
    env = {"LD_PRELOAD": str(library), "READ_ONLY_WHILE": str(mark)}
    with hub_on(tmp_path / "hub", tmp_path / "data", **env) as under_test, client_of(under_test) as client:
        assert add_document(client, "a/1")[0] == 201
        mark.touch()
        status, sentence = add_document(client, "a/2")
        assert (status, "is read-only; nothing was written" in sentence) == (503, True), sentence
        assert health(under_test)["db"] == "unavailable"
        assert client.call("add", {"a": 1, "b": 2})["structuredContent"] == {"result": 3}
        mark.unlink()
        eventually(lambda: health(under_test)["db"] == "ok", "it is not healthy again")
        assert add_document(client, "a/3")[0] == 201
        assert_all_there(client, ["a/1", "a/3"])
        assert under_test.crashes == []


def test_a_locked_database_is_named_in_time_and_used_again_when_it_is_free(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with hub_on(tmp_path / "hub", data) as under_test, client_of(under_test) as client:
        assert add_document(client, "a/1")[0] == 201
        with hold_lock(data / "waypost.db"):
            began = time.monotonic()
            status, sentence = add_document(client, "a/2")
            waited = time.monotonic() - began
            assert (status, "locked" in sentence) == (503, True), sentence
            assert health(under_test)["db"] == "unavailable"
            assert waited < 15, "it waits 5 s, and a loaded machine longer"
            assert client.call("add", {"a": 1, "b": 2})["structuredContent"] == {"result": 3}
        eventually(lambda: add_document(client, "a/3")[0] == 201, "it does not write again")
        assert_all_there(client, ["a/1", "a/3"])
        assert under_test.crashes == []


CLOCK: Final = """\
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static volatile long *offset(void) {
    static volatile long *seconds;
    if (!seconds) {
        int file = open(getenv("CLOCK_OFFSET"), O_RDONLY);
        seconds = mmap(0, sizeof(long), PROT_READ, MAP_SHARED, file, 0);
    }
    return seconds;
}
int clock_gettime(clockid_t id, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(id, now);
    if (!failed && id == CLOCK_REALTIME) now->tv_sec += *offset();
    return failed;
}
"""


class Clock:
    """The time of day of another process, which can jump."""

    def __init__(self, folder: Path) -> None:
        self.library, self._file = compile_library(folder, "clock", CLOCK), folder / "offset"
        self._file.write_bytes(bytes(8))

    def jump(self, seconds: int) -> None:
        """Set the clock so many seconds from the true time."""
        with self._file.open("r+b") as file, mmap.mmap(file.fileno(), 8) as memory:
            memory[:] = struct.pack("l", seconds)

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a process that uses this clock."""
        return {"LD_PRELOAD": str(self.library), "CLOCK_OFFSET": str(self._file)}


@pytest.mark.parametrize("seconds", [JUMP_S, -JUMP_S])
def test_a_clock_that_jumps_by_an_hour_ends_nothing_that_runs_and_loses_nothing(tmp_path: Path, seconds: int) -> None:
    clock = Clock(tmp_path)
    folder = tmp_path / "hub"
    rules = "policies: [{name: few, type: rate_limit, config: {max_calls: 3, window_seconds: 2}, capabilities: [echo]}]"
    build_lasting_hub(folder, rules)
    with hub_on(folder, tmp_path / "data", **clock.environment) as under_test, client_of(under_test) as client:
        facts = write_one_of_each(client)
        use_up(client)
        clock.jump(seconds)
        assert client.call("add", {"a": 1, "b": 2})["structuredContent"] == {"result": 3}
        # The result of a task is kept for an hour, by the clock.
        facts = [*(fact for fact in facts if fact.kind != "task"), *write_one_of_each(client)]
        assert [fact for fact in facts if not holds(client, fact, is_ended=False)] == []
        eventually(lambda: not is_limited(client), "the rate limit holds beyond its window")
        clock.jump(0)
        facts = [*(fact for fact in facts if fact.kind != "task"), *write_one_of_each(client)]
        assert [fact for fact in facts if not holds(client, fact, is_ended=False)] == []
        assert json.loads(client.operate("GET", "audit/verify").body)["problems"] == []
        assert under_test.crashes == []


def is_limited(client: Client) -> bool:
    """Whether a call is refused by the rate limit."""
    body = client.ask("tools/call", {"name": "echo", "arguments": {"text": "x"}}).body
    return b"few" in body or b"rate" in body.lower()


def use_up(client: Client) -> None:
    """Call until the rate limit refuses."""
    eventually(lambda: is_limited(client), "there is no rate limit")


def write_one_of_each(client: Client) -> list[Fact]:
    """A session, a task, an instance, a document and a key, acknowledged."""
    id = f"f/{time.monotonic_ns()}"
    assert add_document(client, id)[0] == 201
    key = json.loads(client.operate("POST", "keys", {"id": id.replace("/", "-")}).body)["key"]
    stands = client.call("workflow.start", {"definitionId": "release", "input": {"service": "web"}})[
        "structuredContent"
    ]
    return [
        Fact("session", client.open_session()),
        Fact("task", client.call("work", {"text": "x"})["taskId"], "x"),
        Fact("instance", stands["workflowId"], "1 draft"),
        Fact("document", id),
        Fact("key", id, key),
    ]


def test_a_hub_without_descriptors_serves_its_clients_and_accepts_new_ones_when_there_are_some(tmp_path: Path) -> None:
    with hub_on(tmp_path / "hub", tmp_path / "data") as under_test, client_of(under_test) as client:
        assert add_document(client, "a/1")[0] == 201
        resource.prlimit(under_test.hub.process.pid, resource.RLIMIT_NOFILE, (256, 256))
        held = []
        for _ in range(400):
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", under_test.port))
            held.append(one)
        time.sleep(1)
        assert add_document(client, "a/2")[0] == 201
        assert client.call("add", {"a": 1, "b": 2})["structuredContent"] == {"result": 3}
        for one in held:
            one.close()

        def is_served() -> bool:
            try:
                return bool(health(under_test)["status"] == "ok")
            except (OSError, Gone, Silent):
                return False

        eventually(is_served, "no new client is accepted")
        assert_all_there(client, ["a/1", "a/2"])
        assert under_test.crashes == []
        assert len(under_test.hub.lines) < 100, "the log is full of it"
