"""What the engine tells the owner of a function about its observers."""

from __future__ import annotations

from typing import Any, TypeAlias

from msgspec import Struct


class Known(Struct):
    """An observer, as the engine tells of it to the owner of the function."""

    id: str
    args: dict[str, Any] = {}
    filters: Any = None
    target: str = ""
    capture: list[str] = []
    on: str = "success"
    legacy: dict[str, Any] | None = None


class Announced(Struct, tag="functionregistered"):
    """The engine has a function, and these are its observers."""

    id: str
    revision: int
    namespace: str | None = None
    observers: list[Known] = []


class Added(Struct, tag="observeradded"):
    """A function has one more observer."""

    function_id: str
    revision: int
    observer: Known
    namespace: str | None = None


class Removed(Struct, tag="observerremoved"):
    """A function has one observer less."""

    function_id: str
    revision: int
    id: str
    namespace: str | None = None


News: TypeAlias = Announced | Added | Removed
