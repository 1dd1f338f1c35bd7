"""Kinds of values that several sections use."""

from typing import Annotated

from msgspec import Meta

DAY_MS = 86_400_000

Name = Annotated[str, Meta(min_length=1)]
Command = Annotated[str, Meta(min_length=1, extra={"path": "command"})]
Directory = Annotated[str, Meta(min_length=1, extra={"path": "directory"})]
