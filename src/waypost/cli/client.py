"""A running hub as commands reach it: by URL and key, or by what it left in its data directory."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from waypost.cli.arguments import WrongUsage
from waypost.errors import WaypostError
from waypost.stores.directory import data_directory

NOTE: Final = "hub.json"
KEY: Final = "WAYPOST_KEY"
"""The variable of the environment that has the key for hubs at a URL."""

_PATIENCE: Final = 30.0
_SHORT_PATIENCE: Final = 2.0
_HERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # where a hub that listens everywhere is near


class Note(msgspec.Struct, frozen=True):
    """What a hub leaves in its data directory for programs of the same user."""

    url: str
    key: str
    pid: int
    workers: str | None = None


class Remote:
    """The API of a running hub."""

    def __init__(self, url: str, key: str | None, patience: float = _PATIENCE) -> None:
        try:
            parts = urlsplit(url)
            host, self._port = parts.hostname, parts.port
        except ValueError:
            host = None
        if not host or parts.scheme not in ("http", "https"):
            raise _no_address(url)
        self.url = url.rstrip("/").removesuffix("/mcp")
        self._secure = parts.scheme == "https"
        self._host = _HERE.get(host, host)
        self._prefix = parts.path.rstrip("/").removesuffix("/mcp")
        self._key = key
        self._patience = patience

    def get(self, path: str, **query: Any) -> Any:
        """Ask for something."""
        given = {name: value for name, value in query.items() if value is not None}
        return self._ask("GET", f"{path}?{urlencode(given)}" if given else path)

    def post(self, path: str, body: Any = None) -> Any:
        """Have something done."""
        return self._ask("POST", path, body)

    def delete(self, path: str, **query: Any) -> Any:
        """Have something taken away."""
        return self._ask("DELETE", f"{path}?{urlencode(query)}" if query else path)

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        headers = {"Accept": "application/json", "Content-Type": "application/json", "Waypost-Via": "cli"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        kind = HTTPSConnection if self._secure else HTTPConnection
        connection = kind(self._host, self._port, timeout=self._patience)
        try:
            data = None if body is None else msgspec.json.encode(body)
            connection.request(method, f"{self._prefix}/api/v1/{path}", data, headers)
            response = connection.getresponse()
            return self._answer(response.status, response.read())
        except (OSError, HTTPException) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise WaypostError(f"No hub answers at {self.url}: {reason}.") from None
        except ValueError:  # what cannot be in a header; the message would show it
            raise WaypostError("The key cannot be sent: it holds characters that no key has.") from None
        finally:
            connection.close()

    def _answer(self, status: int, body: bytes) -> Any:
        try:
            answer = msgspec.json.decode(body)
        except msgspec.DecodeError:
            raise WaypostError(f"{self.url} answered {status} and no JSON; is it a Waypost hub?") from None
        if status < 400:
            return answer
        told = answer.get("error") if isinstance(answer, dict) else None
        sentence = told.get("message") if isinstance(told, dict) else told
        if status in (401, 403):
            told = str(sentence).removesuffix(".")
            raise WaypostError(f"{self.url} refuses: {told}; give it a key of the role admin with --key.")
        raise WaypostError(str(sentence or f"{self.url} answered {status}."))


def is_same_place(one: str, other: str) -> bool:
    """Whether two addresses are of the same hub."""
    return _place(one) == _place(other)


def _place(url: str) -> tuple[str, str, int | None, str]:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        raise _no_address(url) from None
    near = "127.0.0.1" if host == "localhost" else _HERE.get(host, host)
    return parts.scheme, near, port, parts.path.rstrip("/").removesuffix("/mcp")


def _no_address(url: str) -> WrongUsage:
    return WrongUsage(f"{url} is no address of a hub; use http://127.0.0.1:8420 or the like.")


Action = Callable[[Remote, argparse.Namespace], int]


def segment(text: str) -> str:
    """A text as one part of a path."""
    if text in ("", ".", ".."):
        raise WaypostError(f"{text!r} is no name.")
    return quote(text, safe="")


def group(commands: Any, name: str, text: str, description: str, example: str, dest: str = "action") -> Any:
    """A command that has actions."""
    command = commands.add_parser(name, help=text, description=description, epilog=f"example: {example}")
    return command.add_subparsers(dest=dest, metavar="ACTION", required=True)


def add_action(actions: Any, name: str, action: Action, text: str, example: str) -> argparse.ArgumentParser:
    """An action on a running hub, with the options that say which one."""
    command: argparse.ArgumentParser = actions.add_parser(
        name, help=text, description=f"{text[0].upper()}{text[1:]}.", epilog=f"example: {example}"
    )
    add_options(command)
    command.set_defaults(run=lambda given: action(find(given), given))
    return command


def add_options(command: argparse.ArgumentParser) -> None:
    """The options that say which hub is meant, and how to print."""
    command.add_argument(
        "--url", help="the hub, such as http://127.0.0.1:8420 (default: the one in the data directory)"
    )
    command.add_argument("--key", help="a key of the role admin (default: the one in the data directory)")
    command.add_argument("--data", type=Path, metavar="DIR", help="the data directory of the hub (default: .waypost)")
    command.add_argument("--json", action="store_true", help="print JSON")


def find(given: argparse.Namespace) -> Remote:
    """The hub that is meant; the key in a data directory goes only to the hub that left it there."""
    if given.url is not None:
        return Remote(given.url, given.key or os.environ.get(KEY) or None)
    note = read_note((given.data or data_directory(Path(NOTE))) / NOTE)
    return Remote(note.url, given.key or note.key)


def read_note(file: Path) -> Note:
    """What a hub that is running left."""
    try:
        note = msgspec.json.decode(file.read_bytes(), type=Note)
    except FileNotFoundError:
        raise WaypostError(
            f"No hub is running here: there is no {file}; "
            "start one with `waypost serve`, or name it with --url and --key."
        ) from None
    except (OSError, msgspec.DecodeError) as error:
        raise WaypostError(f"{file} cannot be read: {getattr(error, 'strerror', None) or error}.") from None
    if not _is_alive(note.pid):
        raise WaypostError(f"The hub that left {file} is gone (process {note.pid}); start it with `waypost serve`.")
    return note


def write_note(file: Path, note: Note) -> None:
    """Leave a note that only the same user can read."""
    fresh = file.with_name(f"{file.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as written:
        written.write(msgspec.json.encode(note))
    fresh.replace(file)


def neighbour(file: Path) -> Note | None:
    """The note of another hub that runs, if it is one: it knows the key in it."""
    try:
        note = read_note(file)
        if note.pid == os.getpid():  # of an earlier process with our number, as in a container
            return None
        Remote(note.url, note.key, _SHORT_PATIENCE).get("policies")
    except WaypostError:
        return None
    return note


def remove_note(file: Path, note: Note) -> None:
    """Take a note away, unless it is another hub's by now."""
    try:
        if msgspec.json.decode(file.read_bytes(), type=Note) == note:
            file.unlink()
    except (OSError, msgspec.DecodeError):
        return


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return pid > 0


def print_json(value: Any) -> None:
    """Print data for programs."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def print_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print data for people; control characters are shown as what they are."""
    table = [tuple(heads), *(tuple(visible(cell) for cell in row) for row in rows)]
    if len(table) == 1:
        sys.stdout.write("none\n")
        return
    widths = [max(len(row[column]) for row in table) for column in range(len(heads))]
    for row in table:
        line = "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
        sys.stdout.write(line.rstrip() + "\n")


def visible(text: str) -> str:
    """A text in which control characters are shown as what they are."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
