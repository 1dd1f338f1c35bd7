"""What can be wrong with a configuration: findings and their codes."""

from __future__ import annotations

from dataclasses import dataclass, field
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
    "CFG022": "A variable in a key is not replaced (warning).",
    "CFG030": "An included file does not exist.",
    "CFG031": "An include pattern matches no file (warning).",
    "CFG032": "Files include each other in a circle.",
    "CFG033": "Includes are too many or nested too deeply.",
    "CFG034": "A file of the running configuration is now empty, or an include pattern no longer matches anything.",
    "CFG035": "The files change while they are read again.",
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
    "CFG064": "A key or value of mcp-flowgate, or of an MCP client, has no effect here (warning).",
    "CFG065": "The file of an issuer's public keys does not exist.",
    "CFG066": "A key or the authorization server cannot be what it says.",
    "CFG067": "The hub, or its port for workers, would be open to every caller from outside.",
    "CFG068": "The directory of dynamic skills is a file.",
    "CFG069": "A reload would lose `auth` or a policy although no file says so.",
    "CFG070": "An import names no connection that tools can be taken over from.",
    "CFG071": "An OpenAPI document cannot be used.",
    "CFG072": "An operation of an OpenAPI document is left out (warning).",
    "CFG073": "An import names an operation that is not there (warning).",
    "CFG074": "A tool is named that its server did not have when it was last asked (warning).",
    "CFG075": "A connection has a `command` and a `url`, of which only the `url` is used (warning).",
    "CFG076": "A command is several words, and no program.",
    "CFG077": "The OpenAPI document at a URL is not the one that was kept (warning).",
    "CFG080": "Something in a folder of skills or prompts is not served (warning).",
    "CFG082": "The directory of dynamic skills does not exist (warning).",
    "CFG083": "A toolkit has no tools, resources or prompts (warning).",
    "WF001": "A workflow has neither states nor steps, or both.",
    "WF002": "A workflow of states has no `initialState`.",
    "WF003": "The workflow has no state of that name.",
    "WF004": "There is an `onTimeout` without `timeoutMs`.",
    "WF005": "The name of a state or transition begins with `$`, or a workflow is called `proxy_default`.",
    "WF006": "A terminal state has transitions or `onEnter`.",
    "WF007": "A state that is not terminal has an outcome.",
    "WF008": "A deterministic transition requires arguments.",
    "WF010": "There is no connection of that name.",
    "WF011": "A connection is of another kind than its executor.",
    "WF012": "There is no capability of that name.",
    "WF013": "A capability contains itself, or runs nothing.",
    "WF014": "There is no workflow of that name.",
    "WF015": "Workflows start each other in a cycle.",
    "WF016": "An entry of `capabilities` is named together with arguments.",
    "WF017": "A capability with guards is used where guards are not checked.",
    "WF020": "A `cli` executor has neither a command nor a connection, or both.",
    "WF021": "A `parallel` executor does not say what to run, or is nested too deeply.",
    "WF022": "A `join` can never be met.",
    "WF023": "An approval is nested in another executor.",
    "WF024": "A script is missing, or is not the one that was approved.",
    "WF025": "An argument of a program may be taken for an option (warning).",
    "WF026": "A path is part of a longer text, which is passed as it is written (warning).",
    "WF027": "A program is not on this machine (warning).",
    "WF030": "An expression, path or mapping cannot be parsed, or has an unknown root.",
    "WF031": "A JSON Schema is invalid.",
    "WF040": "The workflow has no step of that name or position.",
    "WF041": "Two steps have the same name.",
    "WF042": "A step runs neither a skill nor a capability, or both.",
    "WF043": "A step falls back to a skill but names none.",
    "WF044": "A route leads back in a loop (warning).",
    "WF045": "A step takes its input from a step that has not run.",
    "WF050": "A state cannot be reached (warning).",
    "WF051": "A state cannot be left and is not terminal (warning).",
    "WF052": "No terminal state can be reached (warning).",
    "WF053": "A workflow can loop without a decision (warning).",
    "WF054": "A path reads something that nothing writes (warning).",
    "WF055": "Guards can never hold (warning).",
    "WF056": "Two deterministic transitions of a state have no guards (warning).",
    "WF057": "A dangerous transition can be reached without a person (warning).",
    "WF058": "An approval has a `reliability` (warning).",
    "WF059": "A part of an executor has what only the whole can have (warning).",
    "WF060": "An entry of `proxy.expose` has neither `name` nor `capability`, has both, or is not a tool name.",
    "WF061": "Something is exposed that only works in a workflow.",
    "WF062": "Something is exposed that reads what only a workflow has (warning).",
    "WF063": "A tool without `inputSchema` reads an argument.",
    "WF070": "The value of a variable with the name of a secret would be stored with instances.",
}
"""Every code a finding can carry, with its meaning."""

WARNINGS = frozenset(
    {
        *("CFG022", "CFG031", "CFG051", "CFG053", "CFG064", "CFG072", "CFG073", "CFG074", "CFG075", "CFG077"),
        *("CFG080", "CFG082", "CFG083"),
        *("WF025", "WF026", "WF027", "WF044", "WF050", "WF051", "WF052", "WF053", "WF054", "WF055", "WF056", "WF057"),
        *("WF058", "WF059", "WF062"),
    }
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with a configuration, and where."""

    file: str
    line: int
    key: str
    message: str
    code: str
    severity: Literal["error", "warning"] = "error"
    path: KeyPath = field(default=(), compare=False, repr=False)
    """The key by its parts."""

    def to_row(self) -> dict[str, str | int]:
        """The finding as JSON has it."""
        return {name: getattr(self, name) for name in ("file", "line", "key", "message", "code", "severity")}

    def __str__(self) -> str:
        key = f"{self.key}: " if self.key else ""
        return printable(f"{self.file}:{self.line}: {key}{self.message} [{self.code}]")


def finding(file: str, line: int, path: KeyPath, message: str, code: str) -> Finding:
    """A finding about the key at `path`, with the severity its code has."""
    return Finding(file, line, dotted(path), message, code, "warning" if code in WARNINGS else "error", path)


def dotted(path: KeyPath) -> str:
    """A key path as people write it: `server.port`, `toolkits[0].use`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{_short(part)}"
    return text.removeprefix(".")


def quoted(text: str) -> str:
    """A name out of a file, made fit to stand in a sentence."""
    return f"`{_short(text)}`"


def quoted_file(path: str) -> str:
    """The path of a file, made fit to stand in a sentence; of a long one the end says more."""
    return f"`{printable(path if len(path) <= 80 else f'...{path[-77:]}')}`"


def listed(names: list[str]) -> str:
    """Several names for a sentence: `` `a`, `b` or `c` ``."""
    shown = [quoted(name) for name in names]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} or {shown[-1]}"


def printable(text: str) -> str:
    """The text with line breaks and other control characters escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _short(text: str) -> str:
    return printable(text if len(text) <= 80 else f"{text[:77]}...")
