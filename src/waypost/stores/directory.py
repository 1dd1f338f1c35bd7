"""The data directory of a hub: where it is, and the secret in it that the hub encrypts and signs with."""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path
from typing import Final

from waypost.errors import StoreUnavailable, WaypostError

VARIABLE: Final = "WAYPOST_SECRET"
FILE: Final = "secret"
LEAST: Final = 32


class Secret:
    """The secret of one hub: as given, else of the environment or the data directory, read when it is first needed."""

    def __init__(self, data_dir: Path, given: bytes | None = None) -> None:
        self._data_dir = data_dir
        self._value = given

    def read(self) -> bytes:
        """The secret; the first call may read or create its file."""
        if self._value is None:
            self._value = hub_secret(self._data_dir)
        return self._value


def data_directory(file: Path | None = None) -> Path:
    """`WAYPOST_DATA`, else `.waypost` beside a hub's own file, which is the program's when none is named."""
    given = os.environ.get("WAYPOST_DATA")
    if given:
        return Path(given)
    if file is None:
        main = getattr(sys.modules.get("__main__"), "__file__", None)
        file = Path(main) if main else None
    return (Path() if file is None else file.parent) / ".waypost"


def hub_secret(data: Path) -> bytes:
    """`WAYPOST_SECRET`, which hubs that share a store have in common, else a file in the data directory."""
    given = os.environ.get(VARIABLE)
    if given is not None:
        if len(given.encode()) < LEAST:
            raise WaypostError(f"{VARIABLE} takes at least {LEAST} bytes.")
        return given.encode()
    file = data / FILE
    try:
        return _read(file) if file.exists() else _made(file)
    except OSError as error:
        raise StoreUnavailable(f"The secret {file} cannot be used: {error.strerror}.") from None


def _read(file: Path) -> bytes:
    secret = file.read_bytes()
    if len(secret) < LEAST:
        raise WaypostError(f"The secret {file} is too short; remove it, and the hub makes a new one.")
    return secret


def _made(file: Path) -> bytes:
    """Make the secret, whole or not at all; who comes second takes the first one's."""
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_name(f"{file.name}.{secrets.token_hex(4)}")
    with os.fdopen(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as written:
        written.write(secrets.token_bytes(LEAST))
    try:
        os.link(fresh, file)
    except FileExistsError:
        pass
    finally:
        fresh.unlink()
    return _read(file)
