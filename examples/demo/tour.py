"""A guided tour: a hub of releases, an agent that works with it, and you, who decide. Every step must hold."""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, Final

from examples.demo.ideas import HERE, IDEAS, START_WITHIN, Tour
from examples.demo.terminal import BOLD, DIM, GREEN, Terminal
from waypost import WaypostError
from waypost.cli.client import sign_in_url
from waypost.upstreams.client import open_client
from waypost.upstreams.http import HttpTransport

PORT: Final = int(os.environ.get("DEMO_PORT", "8420"))
WORKER_PORT: Final = int(os.environ.get("DEMO_WORKER_PORT", "49134"))
PR_SET_PDEATHSIG: Final = 1
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def follow_parent() -> None:
    """Have the kernel end this child when the tour is gone, even if it was killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def is_free(port: int) -> bool:
    """Whether nothing listens at this port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return True
    return False


@contextmanager
def serving(data: Path, once: bool) -> Iterator[dict[str, Any]]:
    """Serve the hub until the end of the block; its address is the usual one where that is free."""
    port = PORT if not once and is_free(PORT) else 0
    worker_port = WORKER_PORT if not once and is_free(WORKER_PORT) else 0
    # The upstream is a program beside this Python.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    command = [sys.executable, "-m", "waypost", "serve", str(HERE / "waypost.yaml"), "--port", str(port)]
    with (data / "hub.log").open("wb") as log:
        hub = subprocess.Popen(
            [*command, "--data", str(data)],
            env={**os.environ, "PATH": path, "DEMO_WORKER_PORT": str(worker_port)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C reaches the tour alone, which then stops the hub in order.
            preexec_fn=follow_parent,
        )
    try:
        yield wait_for_address(hub, data)
    finally:
        hub.terminate()
        try:
            hub.wait(timeout=10)
        except subprocess.TimeoutExpired:
            hub.kill()
            hub.wait()


def wait_for_address(hub: subprocess.Popen[bytes], data: Path) -> dict[str, Any]:
    """What the hub writes to its data directory once it serves."""
    note = data / "hub.json"
    until = time.monotonic() + START_WITHIN
    while time.monotonic() < until and hub.poll() is None:
        if note.exists() and (text := note.read_text()):
            found: dict[str, Any] = json.loads(text)
            return found
        time.sleep(0.02)
    raise SystemExit(f"The demo hub did not start:\n{(data / 'hub.log').read_text()}")


async def play_until_stopped(terminal: Terminal, note: dict[str, Any], data: Path) -> int | None:
    """Show the tour; the number of the signal that stopped it."""
    # An exception in the middle of the loop's own work could lose what wakes the tour up again, and it would hang.
    loop = asyncio.get_running_loop()
    playing = loop.create_task(play(terminal, note, data))
    signals: list[int] = []

    def stop_playing(number: int) -> None:
        if not signals:
            playing.cancel()
        signals.append(number)

    for number in SIGNALS:
        loop.add_signal_handler(number, stop_playing, number)
    with suppress(asyncio.CancelledError):
        await playing
    return signals[0] if signals else None


async def play(terminal: Terminal, note: dict[str, Any], data: Path) -> None:
    """Show one idea after the other; children of the tour end with it."""
    children: list[asyncio.subprocess.Process] = []

    async def start(*command: str, stdout: int | None = None) -> asyncio.subprocess.Process:
        child = await asyncio.create_subprocess_exec(
            *command, stdin=subprocess.DEVNULL, stdout=stdout, start_new_session=True, preexec_fn=follow_parent
        )
        children.append(child)
        return child

    url = f"{note['url']}/mcp"
    client = await open_client(HttpTransport(url))
    tour = Tour(terminal, client, url, data, note["workers"], note["key"], start)
    try:
        for number, (title, idea) in enumerate(IDEAS.items(), 1):
            terminal.open(f"{number}/{len(IDEAS)}  {title}", idea.__doc__ or "")
            await idea(tour)
            await terminal.go_on()
    finally:
        for child in children:
            with suppress(ProcessLookupError):
                child.terminate()
            await child.wait()
        await client.close()


def say_goodbye(terminal: Terminal, note: dict[str, Any], data: Path) -> None:
    """What to try now: commands to paste, the Inspector, entries for clients."""
    url = note["url"]
    command = Path(sys.executable).with_name("waypost")
    entry = {"mcpServers": {"release-desk": {"url": f"{url}/mcp"}}}
    terminal.open("Your turn", f"The hub keeps serving at {url}/mcp, its data is in {data}. Stop it with Ctrl-C.")
    terminal.line(f"{terminal.paint('The console, signed in', BOLD)} (once, within ten minutes)")
    terminal.line(f"  {sign_in_url(url, note['key'])}\n")
    terminal.line(terminal.paint("Paste into another terminal", BOLD))
    for line in (
        f"{command} list {url}",
        f"{command} call {url} release.status release=2.2",
        f"{command} search {url} 'what time is it in Tokyo'",
        f"{command} runs list --data {data}",
        f"{command} audit tail --limit 5 --data {data}",
    ):
        terminal.line(f"  {terminal.paint(line, GREEN)}")
    terminal.line(f"\n{terminal.paint('MCP Inspector', BOLD)} (needs Node.js)")
    terminal.line(f"  npx @modelcontextprotocol/inspector --cli {url}/mcp --method tools/list")
    terminal.line(f"\n{terminal.paint('Your client', BOLD)} (claude-code, cursor, vscode, codex, gemini and others)")
    terminal.line(f"  {command} install claude-code --url {url}")
    terminal.line(f"  {json.dumps(entry)}")
    terminal.line(terminal.paint("\nEvery client: docs/connecting.md. Your own hub: docs/quick-start.md.", DIM))


def stop(number: int, frame: FrameType | None) -> None:
    """Leave in order, with the status that a shell expects of a signal; what is stopped twice still ends."""
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    raise SystemExit(0 if number == signal.SIGINT else 128 + number)


def handle_signals() -> None:
    """Leave in order when a signal comes; the event loop of the tour had its own handlers."""
    for number in SIGNALS:
        signal.signal(number, stop)


def main() -> None:
    """Serve, show the tour, and keep serving unless `--once` is given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--once", action="store_true", help="do not wait for keys, and stop after the tour")
    once = parser.parse_args().once
    handle_signals()
    terminal = Terminal(once)
    data = Path(tempfile.mkdtemp(prefix="waypost-demo-"))
    try:
        with serving(data, once) as note:
            stopped_by = asyncio.run(play_until_stopped(terminal, note, data))
            handle_signals()
            if stopped_by is not None:
                stop(stopped_by, None)
            terminal.line("Every step held.")
            if not once:
                say_goodbye(terminal, note, data)
                while True:
                    signal.pause()
    except (AssertionError, WaypostError) as error:
        log = (data / "hub.log").read_text(errors="replace").splitlines()  # the directory is deleted below
        lines = "\n".join(["The last lines of the hub's log:", *log[-10:]]) if log else "The hub logged nothing."
        raise SystemExit(f"A step did not hold: {error}\n{lines}") from error
    finally:
        shutil.rmtree(data, ignore_errors=True)


if __name__ == "__main__":
    main()
