"""The methods of the skills extension."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

from waypost.capabilities.capability import Kind
from waypost.capabilities.resources import MAX_URI_CHARACTERS
from waypost.errors import InvalidParams, shorten
from waypost.protocol.engine import Engine
from waypost.protocol.exchange import Exchange
from waypost.protocol.profile import SkillSource
from waypost.protocol.responses import Answer
from waypost.wire import downgrade, params
from waypost.wire.definitions import DIRECTORY, ResourceDefinition, SkillEntry
from waypost.wire.messages import encode
from waypost.wire.params import decode_cursor, encode_cursor

Item = TypeVar("Item", SkillEntry, ResourceDefinition)


async def list_skills(engine: Engine, given: params.List, exchange: Exchange) -> Answer:
    """`skills/list`"""
    rows, more = _page(engine, _source(engine).entries(), given.cursor, exchange)
    return Answer(
        encode({"skills": [_filter_files(engine, row, exchange) for row in rows], **more}), private=_is_private(engine)
    )


async def get_skill(engine: Engine, given: params.SkillUri, exchange: Exchange) -> Answer:
    """`skills/get`"""
    entry = _source(engine).entry(given.uri)
    if entry is None or not _can_see(engine, entry.uri, exchange):
        raise _unknown("Unknown skill", given.uri)
    return Answer(encode({"skill": _filter_files(engine, entry, exchange)}), private=_is_private(engine))


async def read_directory(engine: Engine, given: params.ReadDirectory, exchange: Exchange) -> Answer:
    """`resources/directory/read`"""
    children = _source(engine).children(given.uri)
    if children is None or not _can_see(engine, given.uri, exchange):
        raise _unknown("Not a directory", given.uri)
    rows, more = _page(engine, children, given.cursor, exchange)
    listed = [downgrade.definition(row, exchange.version) for row in rows]
    return Answer(encode({"resources": listed, **more}), private=_is_private(engine))


def _unknown(reason: str, uri: str) -> InvalidParams:
    return InvalidParams(f"{reason}: {shorten(uri)}", {"uri": shorten(uri, MAX_URI_CHARACTERS)})


def _page(
    engine: Engine, items: Iterable[Item], cursor: str | None, exchange: Exchange
) -> tuple[list[Item], dict[str, Any]]:
    """A page of the items that the caller may see, and the cursor of the next."""
    after = decode_cursor(cursor) or ""
    shown = (item for item in items if item.uri > after and _can_see(engine, item.uri, exchange))
    size = engine.settings.page_size
    page = list(islice(shown, size + 1))
    if len(page) <= size:
        return page, {}
    return page[:size], {"nextCursor": encode_cursor(page[size - 1].uri)}


def _source(engine: Engine) -> SkillSource:
    assert engine.profile.skills is not None
    return engine.profile.skills


def _is_private(engine: Engine) -> bool:
    return engine.hides or engine.registry[Kind.RESOURCE].scoped > 0


def _filter_files(engine: Engine, entry: SkillEntry, exchange: Exchange) -> SkillEntry:
    """A skill with the files that the caller may see."""
    if not _is_private(engine):
        return entry
    shown = [file for file in entry.resources if _can_see(engine, file.uri, exchange)]
    return SkillEntry(entry.uri, entry.frontmatter, shown)


def _can_see(engine: Engine, uri: str, exchange: Exchange) -> bool:
    """Whether the caller may see a file or a directory."""
    if not _is_private(engine):
        return True
    if uri in engine.registry[Kind.RESOURCE]:
        return engine.can_see_resource(exchange.principal, uri)
    return _can_see_directory(engine, uri, exchange)


def _can_see_directory(engine: Engine, uri: str, exchange: Exchange) -> bool:
    """Whether the caller may see a file in a directory; an empty one is visible with its parent."""
    is_empty = True
    for file in _files(engine, uri):
        if engine.can_see_resource(exchange.principal, file):
            return True
        is_empty = False
    above = uri.rpartition("/")[0]
    if is_empty and _source(engine).children(above) is not None:
        return _can_see_directory(engine, above, exchange)
    return is_empty


def _files(engine: Engine, uri: str) -> Iterator[str]:
    """The files in a directory, and in those below it."""
    for child in _source(engine).children(uri) or ():
        if child.mime_type == DIRECTORY:
            yield from _files(engine, child.uri)
        else:
            yield child.uri
