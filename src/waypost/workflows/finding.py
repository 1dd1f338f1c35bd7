"""Find definitions by their id, their tool name or their portable name."""

from __future__ import annotations

from waypost.capabilities.context import Caller
from waypost.errors import WorkflowRefused, shorten
from waypost.workflows.access import Rights
from waypost.workflows.definition import Definition
from waypost.workflows.library import CANONICAL, Library, tool_name


class Finding:
    """Finds definitions that can be started."""

    def __init__(self, library: Library, rights: Rights) -> None:
        self._library = library
        self._rights = rights

    def id_of(self, name: str) -> str:
        """The id of a definition that is called by it, or like its tool, whose name may be the portable one."""
        if self._library.get(name) is not None:
            return name
        short = name.removeprefix(CANONICAL)
        if self._library.get(short) is not None:
            return short
        return self._rights.canonical(name).removeprefix(CANONICAL)

    def find(self, name: str, caller: Caller | None = None) -> Definition:
        """A definition by one of its names; what is kept from a caller is as unknown as what never was."""
        found = self._library.get(self.id_of(name))
        if found is not None and (caller is None or not self._rights.is_hidden(tool_name(found.id), caller)):
            return found
        near = [one for one in self._library.find_nearest(name.removeprefix(CANONICAL)) if self._is_told(one, caller)]
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        raise WorkflowRefused(f"Unknown workflow {shorten(name)!r}.{hint}", "UNKNOWN_ID", nearest=near)

    def _is_told(self, name: str, caller: Caller | None) -> bool:
        return caller is None or self._rights.finds(tool_name(name), caller)
