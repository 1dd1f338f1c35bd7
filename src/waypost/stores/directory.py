"""The data directory of a hub: where it is, and the secret in it that the hub encrypts and signs with."""

from __future__ import annotations

import hmac
import os
import secrets
import sys
from pathlib import Path
from typing import Final

from waypost.errors import StoreUnavailable, WaypostError

_VARIABLE: Final = "WAYPOST_SECRET"
_FILE: Final = "secret"
MIN_SECRET_BYTES: Final = 32


class Secret:
    """The secret of one hub: as given, else of the environment or the data directory, read when it is first needed."""

    def __init__(self, data_dir: Path, given: bytes | None = None) -> None:
        self._data_dir = data_dir
        self._value = given

    @property
    def exists(self) -> bool:
        """Whether it can be read without being created."""
        return self._value is not None or _VARIABLE in os.environ or (self._data_dir / _FILE).exists()

    def read(self) -> bytes:
        """The secret; the first call may read or create its file."""
        if self._value is None:
            self._value = hub_secret(self._data_dir)
        return self._value


def derive_key(secret: bytes, purpose: str) -> bytes:
    """The key of a hub's secret for one purpose and no other: HKDF (RFC 5869) with SHA-256 and without a salt.

    32 bytes are the first block of the output, so that one round of its second step is all that is needed.
    """
    return hmac.digest(hmac.digest(bytes(32), secret, "sha256"), f"waypost {purpose}\x01".encode(), "sha256")


DATA_VARIABLE: Final = "WAYPOST_DATA"
"""The environment variable that names the data directory."""


def data_directory(file: Path | None = None) -> Path:
    """`WAYPOST_DATA`, else `.waypost` beside the file that defines the hub; without one, beside the program."""
    given = os.environ.get(DATA_VARIABLE)
    if given:
        return Path(given)
    if file is None:
        main = getattr(sys.modules.get("__main__"), "__file__", None)
        file = Path(main) if main else None
    return (Path() if file is None else file.parent) / ".waypost"


def hub_secret(data: Path) -> bytes:
    """`WAYPOST_SECRET`, which replicas on one database share, else a file in the data directory, created if missing."""
    given = os.environ.get(_VARIABLE)
    if given is not None:
        if len(given.encode()) < MIN_SECRET_BYTES:
            raise WaypostError(f"{_VARIABLE} takes at least {MIN_SECRET_BYTES} bytes.")
        return given.encode()
    file = data / _FILE
    try:
        return _read_secret(file) if file.exists() else _create_secret(file)
    except OSError as error:
        raise StoreUnavailable(f"{{where}} cannot be used: {error.strerror}.", f"The secret {file}") from None


def _read_secret(file: Path) -> bytes:
    secret = file.read_bytes()
    if len(secret) < MIN_SECRET_BYTES:
        raise WaypostError(f"The secret {file} is too short; remove it, and the hub makes a new one.")
    return secret


def _create_secret(file: Path) -> bytes:
    """Create the secret file atomically; of two processes at once, the second uses the file of the first."""
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_name(f"{file.name}.{secrets.token_hex(4)}")
    with os.fdopen(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as written:
        written.write(secrets.token_bytes(MIN_SECRET_BYTES))
    # A link fails where a rename would replace: the secret that another process has read already must stay.
    try:
        os.link(fresh, file)
    except FileExistsError:
        pass
    finally:
        fresh.unlink()
    return _read_secret(file)
