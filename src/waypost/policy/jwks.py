"""JSON Web Key Sets: which key may check a signature, and with which algorithm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from jwt import PyJWK

_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_FITTING: Final[Mapping[tuple[Any, Any], tuple[str, ...]]] = {
    ("RSA", None): _RSA,
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
    ("OKP", "Ed448"): ("EdDSA",),
}
ALGORITHMS: Final = (*_RSA, "ES256", "ES384", "ES512", "EdDSA")
"""All signatures that a public key can check; there is no way to add a shared secret or none."""

_MOST: Final = 100
_SMALLEST_RSA: Final = 2048

Jwk: TypeAlias = dict[str, Any]


class KeySet:
    """The public signing keys of one issuer, by their `kid`; anything else in the set is left aside."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        listed = document.get("keys")
        keys = listed[:_MOST] if isinstance(listed, list) else []
        self._keys: list[Jwk] = [key for key in keys if _algorithms(key)]
        self._ready: dict[tuple[int, str], PyJWK | None] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def find(self, kid: str | None, algorithm: str) -> PyJWK | None:
        """The key with this id; a token that names none is checked with the only key that fits."""
        fitting = [
            number
            for number, key in enumerate(self._keys)
            if algorithm in _algorithms(key) and (kid is None or key.get("kid") == kid)
        ]
        if not fitting or (kid is None and len(fitting) > 1):
            return None
        place = fitting[0], algorithm
        if place not in self._ready:
            self._ready[place] = _load(self._keys[fitting[0]], algorithm)
        return self._ready[place]


def _algorithms(key: Any) -> tuple[str, ...]:
    """The algorithms that a key of a set may be used with."""
    if not isinstance(key, dict) or "d" in key or key.get("use", "sig") != "sig":
        return ()
    operations = key.get("key_ops", ["verify"])
    if not isinstance(operations, list) or "verify" not in operations:
        return ()
    kind, curve = key.get("kty"), key.get("crv")
    if not isinstance(kind, str) or not isinstance(curve, str | None):
        return ()
    fitting = _FITTING.get((kind, curve), ())
    return fitting if "alg" not in key else tuple(name for name in fitting if name == key["alg"])


def _load(key: Jwk, algorithm: str) -> PyJWK | None:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from jwt import PyJWK, PyJWTError

    try:
        loaded = PyJWK(key, algorithm)
    except (PyJWTError, ValueError, TypeError, KeyError):
        return None
    too_small = isinstance(loaded.key, RSAPublicKey) and loaded.key.key_size < _SMALLEST_RSA
    return None if too_small else loaded
