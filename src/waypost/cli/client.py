"""The API of a running hub, reached by URL and key or by the `hub.json` that the hub writes to its data directory."""

from __future__ import annotations

import os
import time
from argparse import Namespace
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

import msgspec
from msgspec import UNSET, UnsetType

from waypost.cli.command import JSON, Argument, Columns, Command, OneOf, Output, WrongUsage, format_table
from waypost.errors import WaypostError
from waypost.settings import is_loopback
from waypost.stores.directory import data_directory

HUB_FILE: Final = "hub.json"
KEY_VARIABLE: Final = "WAYPOST_KEY"
"""The environment variable with the key for hubs at a URL."""
PAGE_SIZE: Final = 1000
"""Rows per request; the maximum of the API."""

_TIMEOUT_S: Final = 30.0
_PROBE_TIMEOUT_S: Final = 5.0
_PORTS: Final = {"http": 80, "https": 443}
# A hub that listens on all addresses is reached on loopback.
_LOOPBACK: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104


class RunningHub(msgspec.Struct, frozen=True, rename="camel"):
    """What a hub writes to its data directory for programs of the same user."""

    url: str
    key: str
    pid: int
    workers: str | None = None
    worker_token: str | UnsetType = UNSET


class HubClient:
    """A client of the HTTP API of a running hub."""

    def __init__(self, url: str, key: str | None, timeout_s: float = _TIMEOUT_S) -> None:
        try:
            parts = urlsplit(url)
            host, self._port = parts.hostname, parts.port
        except ValueError:
            host = None
        if not host or parts.scheme not in ("http", "https"):
            raise _invalid_address(url)
        self.url = url.rstrip("/").removesuffix("/mcp")
        self._scheme = parts.scheme
        self._host = _LOOPBACK.get(host, host)
        self._prefix = parts.path.rstrip("/").removesuffix("/mcp")
        self._key = key
        self._timeout_s = timeout_s

    def get(self, path: str, **query: Any) -> Any:
        """Send a GET request; parameters that are None are left out."""
        return self._request("GET", path, query)

    def post(self, path: str, body: Any = None) -> Any:
        """Send a POST request."""
        return self._request("POST", path, {}, body)

    def delete(self, path: str, **query: Any) -> Any:
        """Send a DELETE request."""
        return self._request("DELETE", path, query)

    def get_pages(self, path: str, key: str, limit: int, **query: Any) -> list[Any]:
        """The first `limit` rows of a listing that comes in pages, each with its rows under `key`."""
        rows: list[Any] = []
        before: str | None = None
        while len(rows) < limit:
            page = self.get(path, limit=min(PAGE_SIZE, limit - len(rows)), before=before, **query)
            rows += page[key]
            before = page["next"]
            if before is None:
                break
        return rows

    def _request(self, method: str, path: str, query: dict[str, Any], body: Any = None) -> Any:
        given = {name: value for name, value in query.items() if value is not None}
        target = f"{self._prefix}/api/v1/{path}" + (f"?{urlencode(given)}" if given else "")
        headers = {"Accept": "application/json", "Content-Type": "application/json", "Waypost-Via": "cli"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        connection = self._connect()
        try:
            connection.request(method, target, None if body is None else msgspec.json.encode(body), headers)
            response = connection.getresponse()
            return self._decode(response.status, response.read())
        except (OSError, HTTPException) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise WaypostError(f"No hub answers at {self.url}: {reason}.") from None
        except ValueError:  # raised for a header value that cannot be sent; its message would show the key
            raise WaypostError("The key cannot be sent: it has characters that no key has.") from None
        finally:
            connection.close()

    def _connect(self) -> HTTPConnection:
        """A connection, through a tunnel of the proxy that the environment names for this hub, if there is one."""
        kind = HTTPSConnection if self._scheme == "https" else HTTPConnection
        if is_loopback(self._host):
            return kind(self._host, self._port, timeout=self._timeout_s)
        from waypost.outbound.http1 import HttpError, find_proxy, parse_address

        try:
            proxy = find_proxy(parse_address(self.url))
        except HttpError as error:
            raise WaypostError(f"No hub can be reached at {self.url}: {error}.") from None
        if proxy is None:
            return kind(self._host, self._port, timeout=self._timeout_s)
        connection = kind(proxy.host, proxy.port, timeout=self._timeout_s)
        login = {"Proxy-Authorization": f"Basic {proxy.credentials}"} if proxy.credentials else {}
        connection.set_tunnel(self._host, self._port or _PORTS[self._scheme], login)
        return connection

    def _decode(self, status: int, body: bytes) -> Any:
        try:
            answer = msgspec.json.decode(body)
        except msgspec.DecodeError:
            raise WaypostError(f"{self.url} answered {status} without JSON; is it a Waypost hub?") from None
        if status < 400:
            return answer
        error = answer.get("error") if isinstance(answer, dict) else None
        message = error.get("message") if isinstance(error, dict) else error
        if status in (401, 403):
            reason = str(message).removesuffix(".")
            key = "another key" if status == 403 else "a key with the role admin"
            raise WaypostError(f"{self.url} refuses: {reason}; pass {key} with --key.")
        raise WaypostError(str(message or f"{self.url} answered {status}."))


def _invalid_address(url: str) -> WrongUsage:
    return WrongUsage(f"{url} is not the address of a hub; use one such as http://127.0.0.1:8420.")


def is_same_hub(one: str, other: str) -> bool:
    """Whether two URLs are addresses of the same hub."""
    return _parse_address(one) == _parse_address(other)


def _parse_address(url: str) -> tuple[str, str, int | None, str]:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        raise _invalid_address(url) from None
    host = "127.0.0.1" if host == "localhost" else _LOOPBACK.get(host, host)
    return parts.scheme, host, port, parts.path.rstrip("/").removesuffix("/mcp")


def quote_segment(text: str) -> str:
    """A name as one segment of a path."""
    # As segments of a path these would lead to another one.
    if text in ("", ".", ".."):
        raise WaypostError(f"{text!r} is not a name.")
    return quote(text, safe="")


# Commands on a running hub


DATA: Final = Argument("--data", type=Path, metavar="DIR", help="the data directory of the hub (default: .waypost)")
HUB_OPTIONS: Final = (
    Argument("--url", help="the hub, such as http://127.0.0.1:8420 (default: the one in the data directory)"),
    Argument("--key", help="a key with the role admin (default: the one in the data directory)"),
    DATA,
    JSON,
)


def hub_command(
    run: Callable[[HubClient, Namespace], Output], description: str, example: str, *arguments: Argument | OneOf
) -> Command:
    """A command on a running hub, with the options that say which hub is meant."""
    return Command(lambda args: run(find_hub(args), args), description, example, *arguments, *HUB_OPTIONS)


def list_command(path: str, description: str, example: str, columns: Columns) -> Command:
    """A command that prints all rows of a listing of the API, which is named like its path."""

    def run(hub: HubClient, _args: Namespace) -> Output:
        rows = hub.get(path)[path]
        return Output(rows, format_table(columns, rows))

    return hub_command(run, description, example)


def find_hub(args: Namespace) -> HubClient:
    """The hub that the options name; the key in a data directory is sent only to the hub that wrote it."""
    if args.url is not None:
        return HubClient(args.url, args.key or os.environ.get(KEY_VARIABLE) or None)
    hub = find_running_hub(args)
    return HubClient(hub.url, args.key or hub.key)


def find_running_hub(args: Namespace) -> RunningHub:
    """The hub that wrote the file in the data directory that the options name."""
    return read_hub_file((args.data or data_directory(Path(HUB_FILE))) / HUB_FILE)


def sign_in_url(url: str, key: str) -> str:
    """A link that signs its first visitor on this machine in to the console, with the key of `hub.json`."""
    from waypost.identity.keys import make_sign_in_token

    return f"{url}/console/sign-in?token={make_sign_in_token(key, time.time())}"


# The file in the data directory


def read_hub_file(file: Path) -> RunningHub:
    """The hub that wrote the file; raises a `WaypostError` when there is none or its process has ended."""
    try:
        hub = msgspec.json.decode(file.read_bytes(), type=RunningHub)
    except FileNotFoundError:
        raise WaypostError(
            f"No hub is running here: there is no {file}; "
            "start one with `waypost serve`, or name it with --url and --key."
        ) from None
    except (OSError, msgspec.DecodeError) as error:
        raise WaypostError(f"{file} cannot be read: {getattr(error, 'strerror', None) or error}.") from None
    if not _is_alive(hub.pid):
        raise WaypostError(f"The hub that wrote {file} has ended (process {hub.pid}); start it with `waypost serve`.")
    return hub


def write_hub_file(file: Path, hub: RunningHub) -> None:
    """Write the file in one step; only the same user can read it."""
    fresh = file.with_name(f"{file.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    # O_EXCL neither opens a file that exists nor follows a link.
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as written:
        written.write(msgspec.json.encode(hub))
    fresh.replace(file)


def find_other_hub(file: Path) -> RunningHub | None:
    """Another running hub that wrote the file; it proves that it is one by accepting the key in it."""
    try:
        hub = read_hub_file(file)
        if hub.pid == os.getpid():  # of an earlier process with the same number, as in a container
            return None
        HubClient(hub.url, hub.key, _PROBE_TIMEOUT_S).get("policies")
    except WaypostError:
        return None
    return hub


def remove_hub_file(file: Path, hub: RunningHub) -> None:
    """Remove the file, unless another hub has written it since."""
    try:
        if msgspec.json.decode(file.read_bytes(), type=RunningHub) == hub:
            file.unlink()
    except (OSError, msgspec.DecodeError):
        return


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    # The process exists, and belongs to another user.
    except PermissionError:
        return True
    # 0 and negative numbers are groups of processes.
    return pid > 0
