"""What of a configuration can be looked at further although something else in it is wrong."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from waypost.config.findings import dotted, quoted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from waypost.config.findings import Finding

_BY_NAME: Final = ("prompts", "connections", "capabilities", "workflows")
_BY_PLACE: Final = ("toolkits", "policies")
_HALF_READ: Final = frozenset(
    {"CFG001", "CFG002", "CFG003", "CFG004", "CFG005", "CFG007", "CFG008", "CFG009", "CFG030", "CFG032", "CFG033"}
)
"""Of which nobody knows what would stand there."""
_OFFERING: Final = ("toolkits", "skills", "proxy", "workers", "connections")
"""Sections that say what can be called by a name."""
_BUILT_OF_CAPABILITIES: Final = frozenset(
    {
        *("WF012", "WF013", "WF016", "WF017", "WF021", "WF023", "WF030", "WF060", "WF061", "WF062"),
        *("WF050", "WF051", "WF052", "WF053", "WF054", "WF055", "WF056", "WF057", "WF058"),
    }
)
_NAMES: Final = {"WF010": "connections", "CFG070": "connections", "WF014": "workflows"}
"""What is said about a name of a section that is not there."""
_TOP: Final = re.compile(r"([^.\[]*)(?:\.|(?=\[)|$)(.*)", re.DOTALL)
_PLACE: Final = re.compile(r"\[([0-9]+)\]")


@dataclass(slots=True)
class LeftOut:
    """What was left out of a configuration: sections, or entries of them by name or place."""

    sections: set[str] = field(default_factory=set)
    entries: dict[str, set[str]] = field(default_factory=dict)
    is_half_read: bool = False

    def lacks(self, section: str) -> bool:
        """Whether a section is not all there."""
        return self.is_half_read or section in self.sections or bool(self.entries.get(section))

    @property
    def hides_names(self) -> bool:
        """Whether something may be offered that is not known."""
        return any(map(self.lacks, _OFFERING))

    def explains(self, found: Finding) -> bool:
        """Whether something is only found because of what was left out."""
        if found.code in _BUILT_OF_CAPABILITIES and self.lacks("capabilities"):
            return True
        section = _NAMES.get(found.code)
        if section is None:
            return False
        names = self.entries.get(section, ())
        return (
            self.is_half_read or section in self.sections or any(f" {quoted(name)};" in found.message for name in names)
        )


@dataclass(slots=True)
class Sound:
    """The part of a configuration, as data, that nothing is wrong with; `places` are where entries of lists were."""

    data: dict[str, Any]
    left_out: LeftOut = field(default_factory=LeftOut)
    places: dict[str, list[int]] = field(default_factory=dict)

    def leave_out(self, findings: Iterable[Finding], known: Iterable[str]) -> None:
        """Leave out what errors are about: as little as makes sense without them."""
        sections = set(known)
        for found in findings:
            if found.severity == "error":
                self._leave_out(found, sections)

    def _leave_out(self, found: Finding, known: set[str]) -> None:
        matched = _TOP.fullmatch(found.key)
        section, rest = matched.groups() if matched else ("", "")
        if found.code in _HALF_READ or section not in known:
            self.left_out.is_half_read = True
            return
        value = self.data.get(section)
        name = _entry(value, rest) if section in _BY_NAME and isinstance(value, dict) else None
        place = _PLACE.match(rest) if section in _BY_PLACE and isinstance(value, list) else None
        if name is not None:
            self.data[section] = {key: entry for key, entry in self.data[section].items() if key != name}
            self.left_out.entries.setdefault(section, set()).add(name)
        elif place is not None:
            self._leave_place_out(section, int(place[1]))
        elif not self._is_gone(section, rest):
            self.data.pop(section, None)
            self.left_out.sections.add(section)

    def _leave_place_out(self, section: str, place: int) -> None:
        places = self.places.setdefault(section, list(range(len(self.data[section]))))
        if place in places:
            index = places.index(place)
            del places[index]
            self.data[section] = [entry for at, entry in enumerate(self.data[section]) if at != index]
            self.left_out.entries.setdefault(section, set()).add(f"[{place}]")

    def _is_gone(self, section: str, rest: str) -> bool:
        """Whether it is about an entry that was left out before."""
        return any(_leads_to(name, rest) for name in self.left_out.entries.get(section, ()))


def _entry(entries: dict[str, Any], rest: str) -> str | None:
    """The name of the entry that the rest of a key leads to."""
    names = [name for name in entries if _leads_to(name, rest)]
    return max(names, key=len, default=None)


def _leads_to(name: str, rest: str) -> bool:
    shown = dotted((name,))
    return rest == shown or rest.startswith((f"{shown}.", f"{shown}["))
