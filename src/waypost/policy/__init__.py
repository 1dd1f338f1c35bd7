"""What callers may do: rules, decisions, capability tokens, the audit."""

import warnings
from typing import Any

from waypost.policy.rules import Rule

__all__ = ["Rule"]


def __getattr__(name: str) -> Any:
    from waypost import identity

    if name in identity.__all__:
        warnings.warn(f"waypost.policy.{name} is waypost.identity.{name}", DeprecationWarning, stacklevel=2)
        return getattr(identity, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
