"""What can be wrong with a configuration: findings and their codes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

KeyPath: TypeAlias = tuple[str | int, ...]

CODES = {
    "CFG001": "The file does not exist or cannot be read.",
    "CFG002": "The file is not a regular file, or is larger than 4 MiB.",
    "CFG003": "The file is not UTF-8 text.",
    "CFG004": "The file is not valid YAML.",
    "CFG005": "The file holds more than one YAML document.",
    "CFG006": "A key is given twice in one mapping.",
    "CFG007": "A key is not text, or is a merge key.",
    "CFG008": "The file holds too many values, or nests them too deeply.",
    "CFG009": "A YAML tag or alias cannot be used here.",
    "CFG010": "The key is unknown.",
    "CFG011": "A key is given in both of its spellings.",
    "CFG012": "The value has the wrong type.",
    "CFG013": "The value is not one of those allowed.",
    "CFG014": "A required key is missing.",
    "CFG020": "An environment variable is not set and has no default.",
    "CFG021": "A variable reference is malformed.",
    "CFG030": "An included file does not exist.",
    "CFG031": "An include pattern matches no file (warning).",
    "CFG032": "Files include each other in a circle.",
    "CFG033": "Includes are too many or nested too deeply.",
    "CFG040": "A toolkit reference is neither a file nor a module.",
    "CFG041": "A toolkit's file does not exist.",
    "CFG042": "A toolkit cannot be loaded, or a tool in it is defined wrongly.",
    "CFG043": "Two capabilities share one name.",
    "CFG050": "A prompt's template cannot be rendered.",
    "CFG051": "A template uses a variable that is not an argument (warning).",
    "CFG052": "A prompt declares one argument twice.",
    "CFG053": "A prompt's template does not use an argument (warning).",
    "CFG060": "The tool timeout is given twice, with different values.",
    "CFG061": "The URL names no store that can be used.",
    "CFG062": "The URL names no bus that can be used.",
    "CFG063": "A policy does not fit its type, or two have one name.",
}
"""Every code a finding can carry, with its meaning."""

WARNINGS = frozenset({"CFG031", "CFG051", "CFG053"})


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with a configuration, and where."""

    file: str
    line: int
    key: str
    message: str
    code: str
    severity: Literal["error", "warning"] = "error"

    def __str__(self) -> str:
        key = f"{self.key}: " if self.key else ""
        return printable(f"{self.file}:{self.line}: {key}{self.message} [{self.code}]")


def finding(file: str, line: int, path: KeyPath, message: str, code: str) -> Finding:
    """A finding about the key at `path`, with the severity its code has."""
    return Finding(file, line, dotted(path), message, code, "warning" if code in WARNINGS else "error")


def dotted(path: KeyPath) -> str:
    """A key path as people write it: `server.port`, `toolkits[0].use`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{_short(part)}"
    return text.removeprefix(".")


def quoted(text: str) -> str:
    """A name out of a file, made fit to stand in a sentence."""
    return f"`{_short(text)}`"


def listed(names: list[str]) -> str:
    """Several names for a sentence: `` `a`, `b` or `c` ``."""
    shown = [quoted(name) for name in names]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} or {shown[-1]}"


def printable(text: str) -> str:
    """The text with line breaks and other control characters escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _short(text: str) -> str:
    return printable(text if len(text) <= 80 else f"{text[:77]}...")
