"""Loads a configuration file, at the start and again while the hub runs, without losing what no file removed."""

from __future__ import annotations

import asyncio
import glob
import os
import re
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast
from urllib.parse import unquote, urlsplit

import msgspec

from waypost.config import rules
from waypost.config.checks import Decoder, Doubts, build, recognise
from waypost.config.files import FileState, Snapshot
from waypost.config.findings import finding, quoted, quoted_file
from waypost.config.models import Capability, ExpandedCapability, ExpandedWorkflow, Name, RestConnection, Workflow
from waypost.config.nodes import UNKNOWN, Node, expand_text, find_variables, read
from waypost.errors import ConfigError
from waypost.kinds import convert
from waypost.redaction import is_secret_variable, looks_random, secrets_of
from waypost.settings import Settings, ToolkitUse

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from waypost.config.files import Snapshot
    from waypost.config.findings import Finding, KeyPath
    from waypost.config.nodes import Node
    from waypost.settings import Auth


_FOREIGN: Final = re.compile(r"\$\{(?:env|input):([A-Za-z_][A-Za-z0-9_]*)\}")
"""Variables of the environment, and of dialogs, as VS Code writes them."""


def expand(node: Node, environ: Mapping[str, str], findings: list[Finding], path: KeyPath = ()) -> Node:
    """The node with every variable in its values replaced; keys stay as they are."""
    value = node.value
    if isinstance(value, dict):
        for key, child in value.items():
            if "${" in key:
                message = "variables in keys are not replaced; write the key itself"
                findings.append(child.finding((*path, key), message, "CFG022"))
        return replace(node, value={k: expand(v, environ, findings, (*path, k)) for k, v in value.items()})
    if isinstance(value, list):
        return replace(node, value=[expand(v, environ, findings, (*path, i)) for i, v in enumerate(value)])
    if isinstance(value, str) and "${" in value:
        return _expand_text(node, value, environ, findings, path)
    return node


def _expand_text(node: Node, text: str, environ: Mapping[str, str], findings: list[Finding], path: KeyPath) -> Node:
    expanded, problems = expand_text(text, environ)
    for name in problems:
        if name is None:
            message = "a variable is written `${NAME}` or `${NAME:-default}`; write `$${` for a literal `${`"
            if foreign := _FOREIGN.search(text):
                message = f"clients write {quoted(foreign[0])}; here it is `${{{foreign[1]}}}`"
            findings.append(node.finding(path, message, "CFG021"))
        else:
            message = f"the variable {quoted(name)} is not set; set it, or write `${{{name}:-default}}`"
            findings.append(node.finding(path, message, "CFG020"))
    # Inside `{...}` YAML demands quotes around a variable, so they do not make it text for good.
    return replace(node, value=UNKNOWN if problems else expanded, plain=True, written=text)


_MAPPINGS: Final = ("env", "headers")


_SECRETS: Final = (("workers", "token"), ("workers", "tokens"), ("auth", "oauth", "introspection", "clientSecret"))
"""The settings that are secrets, or mappings to secrets."""


def secrets(root: Node, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The values to hide: those of variables, environments and headers with the name of a secret, passwords in URLs.

    A variable of any other name is one too where its value looks like a token: what a tool repeats of it is stored.
    """
    variables = {name: environ.get(name, "") for name in _variables(root)}
    values = [value for name, value in variables.items() if is_secret_variable(name) or looks_random(value)]
    if (passed_on := root.at("workers", "secrets")) is not None:
        values += [environ.get(name.value, "") for name in passed_on.children if isinstance(name.value, str)]
    for place in _SECRETS:
        if (found := root.at(*place)) is not None:
            values += [one.value for one in (found, *found.children) if isinstance(one.value, str)]
    values += _named(root)
    # Whatever the name: an address with a password in it is usually called `DATABASE_URL`.
    texts = (*_texts(root), *variables.values())
    for password in filter(None, map(_password, texts)):
        # A password may be percent-encoded in a URL; programs repeat it in both forms.
        values += (password, unquote(password))
    return secrets_of(*({"": value} for value in values))


def _variables(node: Node) -> set[str]:
    return find_variables(node.written).union(*map(_variables, node.children))


def _texts(node: Node) -> Iterator[str]:
    if isinstance(node.value, str):
        yield node.value
    for child in node.children:
        yield from _texts(child)


def _named(node: Node) -> Iterator[str]:
    """The secrets in whatever is a mapping of names to texts."""
    names = node.value if isinstance(node.value, dict) else [""] * len(node.children)
    for key, child in zip(names, node.children, strict=True):
        if key in _MAPPINGS and isinstance(child.value, dict):
            named = [one.value for name, one in child.value.items() if is_secret_variable(name)]
            # A path such as `$.context.token` is no secret itself.
            yield from (one for one in named if isinstance(one, str) and not one.startswith("$."))
        else:
            yield from _named(child)


def _password(url: str) -> str | None:
    if "://" not in url:
        return None
    try:
        return urlsplit(url).password
    except ValueError:
        return None


MAX_FILES = 1_000
MAX_NESTING = 32


@dataclass(frozen=True, slots=True)
class Source:
    """A file that a configuration came from, and what it holds without its includes."""

    path: Path
    root: Node


@dataclass(frozen=True, slots=True)
class Gathered:
    """The merged content, the files it came from by the name in their nodes, and the folders of include patterns."""

    root: Node
    sources: Mapping[str, Source]
    folders: tuple[Path, ...]


def gather(path: Path, environ: Mapping[str, str], snapshot: Snapshot, findings: list[Finding]) -> Gathered:
    """Merge a file and everything it includes, as the snapshot has them; mistakes are added to `findings`."""
    gatherer = _Gatherer(environ, snapshot, findings)
    identity = _identity(path)
    gatherer.seen.add(identity)
    root = gatherer.content(path, (identity,))
    if isinstance(root.value, dict) and gatherer.patterns:
        root = replace(root, value={**root.value, "include": replace(root, value=gatherer.patterns)})
    return Gathered(root, gatherer.sources, tuple(dict.fromkeys(gatherer.folders)))


def merge(included: Node, including: Node) -> Node:
    """Merge mappings deeply and concatenate lists; of any other value the including file's is taken."""
    below, above = included.value, including.value
    if isinstance(below, dict) and isinstance(above, dict):
        both = {key: merge(below[key], node) if key in below else node for key, node in above.items()}
        return replace(including, value={**below, **both})
    if isinstance(below, list) and isinstance(above, list):
        return replace(including, value=[*below, *above])
    return including


_NOT_IN_PREFIX: Final = re.compile(r"[^a-zA-Z0-9_.-]+")
_CONNECTION_KEYS: Final = {
    "cwd": "workingDirectory",
    **{key: key for key in ("command", "args", "env", "url", "headers")},
}


def adopt_client_servers(root: Node, data: dict[str, Any], findings: list[Finding]) -> tuple[Node, dict[str, Any]]:
    """Make each entry of `mcpServers` a connection and an import: in the data, and in the nodes that have the lines."""
    written = root.at("mcpServers")
    if written is None or not isinstance(written.value, dict):
        return root, data
    servers: dict[str, dict[str, Any]] = data.pop("mcpServers", {})
    connections = dict(data.get("connections", {}))
    nodes: dict[str, Node] = {}
    for name, server in servers.items():
        path: KeyPath = ("mcpServers", name)
        node = written.value[name]
        if name in connections:
            message = f"there is a connection {quoted(name)} in `connections` too; rename one of the two"
            findings.append(node.finding(path, message, "CFG011"))
            continue
        if server.get("type") == "sse":
            message = "`sse` has no effect: the server is asked over Streamable HTTP, which replaced it in 2025"
            findings.append((node.at("type") or node).finding((*path, "type"), message, "CFG064"))
        if not server.get("disabled"):
            connections[name] = {_CONNECTION_KEYS[key]: server[key] for key in server if key in _CONNECTION_KEYS}
            connections[name]["kind"] = "mcp"
            nodes[name] = node
    imports = [{"connection": name, "prefix": to_prefix(name)} for name in nodes]
    data = {**data, "connections": connections, "proxy": {**(data.get("proxy") or {})}}
    data["proxy"]["import"] = [*data["proxy"].get("import", []), *imports]
    listed = replace(written, value=list(nodes.values()))
    proxy = replace(written, value={"import": listed})
    adopted = Node({"connections": replace(written, value=nodes), "proxy": proxy}, root.file, root.line)
    return merge(root, adopted), data


def to_prefix(name: str) -> str:
    """The prefix of the tools of a server: its name in the characters that names of tools have."""
    plain = _NOT_IN_PREFIX.sub("_", name)
    return plain if plain[:1].isalpha() else f"mcp_{plain}"


class _Gatherer:
    def __init__(self, environ: Mapping[str, str], snapshot: Snapshot, findings: list[Finding]) -> None:
        self.environ = environ
        self.snapshot = snapshot
        self.findings = findings
        self.sources: dict[str, Source] = {}
        self.folders: list[Path] = []
        self.patterns: list[Node] = []
        self.seen: set[str] = set()

    def content(self, path: Path, chain: tuple[str, ...]) -> Node:
        node = read(path, self.snapshot, self.findings) or Node({}, str(path), 1)
        # Before it is merged: a key that two files spell in different ways would otherwise be two keys.
        node = recognise(expand(node, self.environ, self.findings), Settings, self.findings)
        self.sources[str(path)] = Source(Path(os.path.abspath(path)), node)
        if not isinstance(node.value, dict):
            return node
        own = replace(node, value={key: child for key, child in node.value.items() if key != "include"})
        merged = Node({}, str(path), 1)
        if include := node.value.get("include"):
            Decoder(self.findings).decode(include, list[Name], ("include",), ("include",))
            for index, pattern in enumerate(include.value if isinstance(include.value, list) else []):
                for file in self.matches(pattern, index):
                    merged = merge(merged, self.included(file, pattern, index, chain))
        return merge(merged, own)

    def matches(self, pattern: Node, index: int) -> list[Path]:
        """The files that an include pattern stands for, in sorted order, relative to the including file."""
        text = pattern.value
        if not isinstance(text, str) or not text:
            return []
        folder = os.path.dirname(pattern.file)
        absolute = absolute_pattern(text, folder)
        self.patterns.append(replace(pattern, value=absolute))
        try:
            if not glob.has_magic(text):
                return self.one_match(Path(folder, text), pattern, index)
            found = self.snapshot.find(text, folder)
            self.folders.extend(Path(p) for p in _folders(absolute))
        except ValueError:  # a pattern with a NUL character
            found = ()
        if not found:
            message = f"the pattern {quoted(text)} matches no file; check it, or ignore this until one exists"
            self.report(pattern, index, message, "CFG031")
        return [Path(folder, name) for name in found]

    def one_match(self, file: Path, pattern: Node, index: int) -> list[Path]:
        # A missing file is looked for in the snapshot too, which is out of date when the file appears.
        if self.snapshot.read(file).is_readable or os.path.lexists(file):
            return [file]
        self.report(pattern, index, f"the file {quoted_file(str(file))} does not exist; check the path", "CFG030")
        return []

    def included(self, file: Path, pattern: Node, index: int, chain: tuple[str, ...]) -> Node:
        nothing = Node({}, str(file), 1)
        identity = _identity(file)
        if identity in chain:
            message = f"the file {quoted_file(str(file))} includes itself, directly or through others; break the circle"
            self.report(pattern, index, message, "CFG032")
            return nothing
        if identity in self.seen:  # matched by two patterns; a second time its lists would be doubled
            return nothing
        if len(chain) > MAX_NESTING or len(self.sources) >= MAX_FILES:
            message = f"at most {MAX_FILES:,} files may be included, {MAX_NESTING} levels deep; include fewer"
            self.report(pattern, index, message, "CFG033")
            return nothing
        self.seen.add(identity)
        return self.content(file, (*chain, identity))

    def report(self, pattern: Node, index: int, message: str, code: str) -> None:
        found = pattern.finding(("include", index), message, code)
        if found not in self.findings:
            self.findings.append(found)


def absolute_pattern(pattern: str, folder: str) -> str:
    """A pattern that matches from anywhere what `pattern` matches in a folder."""
    return os.path.join(glob.escape(os.path.abspath(folder)), pattern)


def _identity(file: Path) -> str:
    try:
        return os.path.realpath(file)
    except ValueError:
        return str(file)


def _folders(pattern: str) -> list[str]:
    """The existing folders in which a pattern looks for files."""
    parent = os.path.dirname(pattern)
    # Where no folder of the pattern exists yet, the nearest parent that does is watched.
    while not (found := [path for path in glob.glob(parent, recursive=True) if os.path.isdir(path)]):
        parent = os.path.dirname(parent)
    return found


SETTLE_S: Final = 0.4
"""How long files stay unchanged before they are read again as complete."""
UNFINISHED_SETTLE_S: Final = 2.0
"""The same where one of them looks half written: a disk that is full or busy may leave it so for a while."""
MAX_SETTLE_S: Final = 10.0
CHECK_INTERVAL_S: Final = 0.1

_Definition = TypeVar("_Definition", Workflow, Capability)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration, the files it came from, and the paths to watch for changes.

    `watched` holds the files, those of toolkits and OpenAPI documents, and the folders of include patterns.
    """

    config: Settings
    path: Path
    files: tuple[Path, ...]
    warnings: tuple[Finding, ...]
    watched: tuple[Path, ...]
    root: Node
    doubts: Doubts = field(default_factory=Doubts)
    """Where it is not what the files mean; only a configuration with errors has any."""
    sources: Mapping[str, Source] = field(default_factory=dict)
    """The files by the name that nodes and findings have for them."""
    snapshot: Snapshot = field(default_factory=Snapshot)
    """What was read, to compare with the disk later."""
    secrets: tuple[str, ...] = ()
    """The values to redact in errors, logs and listings."""

    def finding(self, path: KeyPath, message: str, code: str) -> Finding:
        """Make a finding about the key at `path`, for mistakes that only show when the configuration is used."""
        return self.root.nearest(path).finding(path, message, code)


def load(path: Path, environ: Mapping[str, str] | None = None) -> Loaded:
    """Load a configuration file; one that has errors raises `ConfigError` with all findings."""
    loaded, findings = examine(path, environ)
    refuse(findings)
    assert loaded is not None
    return loaded


async def reload(before: Loaded) -> Loaded:
    """Load the files of a running configuration again, once nothing writes to them.

    Raises `ConfigError` for everything that `load` refuses, for files that were emptied or do not come to rest, and
    where `auth` or policies would be lost although no file says so.
    """
    loaded, findings = await _examine_at_rest(before)
    refuse(findings)
    assert loaded is not None
    refuse(find_losses(before, loaded))
    return loaded


async def _examine_at_rest(before: Loaded) -> tuple[Loaded | None, list[Finding]]:
    give_up = time.monotonic() + MAX_SETTLE_S
    while time.monotonic() < give_up:
        # A new snapshot each time: everything that follows is decided by the bytes of one moment.
        snapshot = Snapshot()
        examined = await asyncio.to_thread(examine, before.path, None, snapshot)
        is_unfinished = await asyncio.to_thread(snapshot.looks_unfinished, before.snapshot)
        if await _stays_current(snapshot, UNFINISHED_SETTLE_S if is_unfinished else SETTLE_S):
            return examined
    message = f"the files have kept changing for {MAX_SETTLE_S:g} seconds; they are read once nothing writes to them"
    return None, [finding(str(before.path), 1, (), message, "CFG035")]


async def _stays_current(snapshot: Snapshot, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        await asyncio.sleep(min(left, CHECK_INTERVAL_S))
        if not await asyncio.to_thread(snapshot.is_current):
            return False
    return True


def refuse(findings: Sequence[Finding]) -> None:
    """Raise a `ConfigError` with all findings if any of them is an error."""
    errors = [found for found in findings if found.severity == "error"]
    if errors:
        others = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        raise ConfigError(f"{errors[0]}{others}", findings)


def check(path: Path, environ: Mapping[str, str] | None = None) -> list[Finding]:
    """Find everything that is wrong with a configuration file, errors and warnings, by file and line."""
    return examine(path, environ)[1]


def examine(
    path: Path, environ: Mapping[str, str] | None = None, snapshot: Snapshot | None = None
) -> tuple[Loaded | None, list[Finding]]:
    """Load as much of a configuration file as is valid, and find everything that is wrong with it.

    Files are read into the snapshot, those of toolkits and OpenAPI documents too, although nothing here parses them.
    """
    findings: list[Finding] = []
    snapshot = snapshot or Snapshot()
    environ = snapshot.environ if environ is None else environ
    gathered = gather(path, environ, snapshot, findings)
    root = gathered.root
    decoder = Decoder(findings)
    data = decoder.decode(root, Settings)
    data = data if isinstance(data, dict) else {}
    known = len(findings)
    for rule in (rules.check_key_set, rules.check_skills, rules.check_toolkits, rules.check_prompts):
        rule(root, findings)
    rules.check_timeouts(root, data, findings)
    root, data = adopt_client_servers(root, data, findings)
    rules.check_connections(data, root, findings)
    config: Settings | None = build(root, data, Settings, findings)
    unnamed = {found.path for found in findings if found.code == "CFG007"}
    misfits = [found.path for found in findings[known:] if found.severity == "error"]
    # What is missing may stand under a key that cannot be used: one mistake, one finding.
    findings[:] = [one for one in findings if one.code != "CFG014" or one.path[:-1] not in unnamed]
    doubts = Doubts.of(root, [*decoder.doubts, *misfits], findings)
    findings.sort(key=lambda found: (found.file != str(path), found.file, found.line))
    if config is None:
        return None, findings
    config = _keep_written(config, root)
    # The first one includes the others, directly or not.
    files = tuple(source.path for source in gathered.sources.values())
    apis = [one.openapi for one in config.connections.values() if isinstance(one, RestConnection)]
    toolkits = [rules.file_of(one.use if isinstance(one, ToolkitUse) else one) for one in config.toolkits]
    others = [*filter(None, toolkits), *(Path(api) for api in apis if api is not None and "://" not in api)]
    # Read only to notice when they change: a reload waits until these are at rest too.
    for other in others:
        snapshot.read(other)
    watched = tuple(dict.fromkeys((*files, *others, *gathered.folders)))
    loaded = Loaded(
        *(config, files[0], files, tuple(findings), watched, root),
        *(doubts, gathered.sources, snapshot, secrets(root, environ)),
    )
    return loaded, findings


def _keep_written(config: Settings, root: Node) -> Settings:
    """The configuration in which workflows and capabilities also have their texts as written.

    Definitions are stored with the instances that run them, and the value of a variable must not be stored.
    """
    workflows = {name: _with_written(one, root, "workflows", name) for name, one in config.workflows.items()}
    capabilities = {name: _with_written(one, root, "capabilities", name) for name, one in config.capabilities.items()}
    return msgspec.structs.replace(config, workflows=workflows, capabilities=capabilities)


def _with_written(model: _Definition, root: Node, section: str, name: str) -> _Definition:
    node = root.at(section, name)
    if node is None or not _has_variables(node):
        return model
    kind, expanded = (Workflow, ExpandedWorkflow) if section == "workflows" else (Capability, ExpandedCapability)
    # Mistakes in the file were reported when it was decoded with the values.
    with suppress(msgspec.ValidationError):
        written: Any = convert(Decoder([], as_written=True).decode(node, kind), kind)
        fields: dict[str, Any] = {key: getattr(model, key) for key in model.__struct_fields__}
        made: Any = expanded(**fields, written=written)
        return cast(_Definition, made)
    return model


def _has_variables(node: Node) -> bool:
    return node.written is not None or any(map(_has_variables, node.children))


MAX_NAMES = 5
_UNFINISHED = (
    "the file no longer ends as it did, as if it were half written; if it is complete, end it with a line `...`"
)


def find_losses(before: Loaded, after: Loaded) -> list[Finding]:
    """Find what keeps a configuration from taking the place of the running one; both are free of errors.

    - A file that held something is empty, has become a directory, or was the last one that an include pattern matched.
    - Callers without a key would be accepted, or every key and the authorization server would be gone, and no file
      that changed says so.
    - A policy is gone with the section, or the file, in which it stood.
    - The rights of callers or a policy changed in a file that may be half written.
    """
    # A file that is empty takes its sections with it; to name those as well would only hide the cause.
    lost_files = list(_find_lost_files(before, after))
    return lost_files or [*_find_lost_auth(before, after), *_find_lost_policies(before, after)]


def _find_lost_files(before: Loaded, after: Loaded) -> Iterator[Finding]:
    for path, state in after.snapshot.files.items():
        known = before.snapshot.files.get(path)
        if state.is_blank and known is not None and not known.is_blank:
            way = "write `{}` into it" if path in after.files else "remove its name from the configuration"
            message = f"the file is empty and was not before; if you mean it, {way}"
            yield finding(str(path), 1, (), message, "CFG034")
    for path in before.files:
        if path not in after.files and path.is_dir():
            yield finding(str(path), 1, (), "the file has become a directory; restore the file", "CFG002")
    for asked in before.snapshot.matches:
        if _has_match(before, asked) and asked in after.snapshot.matches and not _has_match(after, asked):
            message = f"the pattern {quoted(asked[0])} no longer matches a file with settings; restore one or remove it"
            include = after.root.at("include")
            patterns = [] if include is None else include.children
            node = next((one for one in patterns if one.value == absolute_pattern(*asked)), after.root)
            yield node.finding(("include",), message, "CFG034")


def _has_match(loaded: Loaded, asked: tuple[str, str]) -> bool:
    """Whether a pattern matches a file that is not empty."""
    paths = (Path(os.path.abspath(os.path.join(asked[1], name))) for name in loaded.snapshot.matches[asked])
    return any(not loaded.snapshot.files[path].is_blank for path in paths if path in loaded.snapshot.files)


def _find_lost_auth(before: Loaded, after: Loaded) -> Iterator[Finding]:
    old, new = before.config.auth, after.config.auth
    if old is None or _is_unprotected(old):
        return
    if new is None:
        message = "the section is gone, and callers would need no key; if you mean it, write `auth: {anonymous: true}`"
        written = before.root.at("auth")
        assert written is not None
        yield finding(written.file, 1, ("auth",), message, "CFG069")
        return
    place = after.root.at("auth") or after.root
    opens = _accepts_anonymous(new) and (_is_unprotected(new) or not _accepts_anonymous(old))
    says_so = new.anonymous not in (None, False) and _is_stated(before, after, "anonymous")
    if opens and not says_so:
        message = "callers without a key would be accepted; if you mean it, write `anonymous: true` in the changed file"
        yield place.finding(("auth",), message, "CFG069")
    elif (old.keys or old.oauth) and not (new.keys or new.oauth or says_so or _is_stated(before, after, "keys")):
        message = "all keys and the authorization server are gone; if you mean it, write `keys: []`"
        yield place.finding(("auth",), message, "CFG069")
    elif _alters_rights(old, new):
        for source in before.sources.values():
            written, path = _section(before, source.path, "auth"), source.path
            if written and path in after.files and _is_cut(before, after, written, _section(after, path, "auth")):
                message = f"the rights of callers would change, but {_UNFINISHED}"
                yield finding(str(path), 1, ("auth",), message, "CFG069")


def _accepts_anonymous(auth: Auth) -> bool:
    return not (auth.keys or auth.oauth) if auth.anonymous is None else auth.anonymous is not False


def _is_unprotected(auth: Auth) -> bool:
    """Whether it does the same as no section at all."""
    return not (auth.keys or auth.oauth) and auth.anonymous in (None, True)


def _alters_rights(old: Auth, new: Auth) -> bool:
    """Whether callers that are still accepted get other roles, permissions or scopes, which policies go by."""
    rights = {key.id: (key.roles, key.permissions, key.scopes) for key in old.keys}
    return (_accepts_anonymous(new) and new.anonymous != old.anonymous) or any(
        rights.get(key.id, given) != given for key in new.keys for given in [(key.roles, key.permissions, key.scopes)]
    )


def _is_stated(before: Loaded, after: Loaded, key: str) -> bool:
    """Whether a key of `auth` has a value in a file that is not as it was."""
    node = after.root.at("auth", key)
    if node is None or node.is_implied:
        return False
    path = after.sources[node.file].path
    known = before.snapshot.files.get(path, FileState())
    return after.snapshot.files[path].content != known.content


def _find_lost_policies(before: Loaded, after: Loaded) -> Iterator[Finding]:
    lost: dict[Path, list[str]] = {}
    for index, policy in enumerate(before.config.policies):
        node = before.root.at("policies", index)
        assert node is not None
        if policy.enabled and policy not in after.config.policies and not _may_go(policy.name, node, before, after):
            lost.setdefault(before.sources[node.file].path, []).append(policy.name)
    for path, names in lost.items():
        more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
        which = f"{', '.join(map(quoted, names[:MAX_NAMES]))}{more}"
        if path not in after.files:
            message = f"{which} would be gone with this file; if you mean it, write `policies: []` in it first"
        elif _section(after, path, "policies") is None:
            message = f"the section is gone, and with it {which}; if you mean it, write `policies: []`"
        else:
            message = f"{which} would be gone or changed, but {_UNFINISHED}"
        yield finding(str(path), 1, ("policies",), message, "CFG069")


def _may_go(name: str, node: Node, before: Loaded, after: Loaded) -> bool:
    """Whether the file that a policy stands in says that it is gone or another one."""
    written = _section(after, before.sources[node.file].path, "policies")
    if written is None:
        return False
    named = [index for index, policy in enumerate(after.config.policies) if policy.name == name]
    if named:
        return not _is_cut(before, after, node, after.root.at("policies", named[0]))
    # A policy that is gone was edited away, and not cut off, where the section holds something new.
    whole = _section(before, before.sources[node.file].path, "policies") or node
    return written.value == [] or not _is_cut(before, after, whole, written)


def _section(loaded: Loaded, path: Path, name: str) -> Node | None:
    """A section that a file itself has a value for."""
    roots = (source.root for source in loaded.sources.values() if source.path == path)
    node = next((root.at(name) for root in roots), None)
    return None if node is None or node.is_implied else node


def _is_cut(before: Loaded, after: Loaded, old: Node, new: Node | None) -> bool:
    """Whether a value of a file that is still read may have changed because the file is half written."""
    path = before.sources[old.file].path
    state, known = after.snapshot.files[path], before.snapshot.files[path]
    # Without its old end, a file is edited rather than cut where the value has something new in it.
    return state.is_beginning_of(known) or (not state.ends_like(known) and (new is None or _is_part(new, old)))


def _is_part(node: Node, whole: Node) -> bool:
    """Whether a node holds nothing that the whole does not hold too."""
    value, known = node.value, whole.value
    if isinstance(value, dict) and isinstance(known, dict):
        return all(key in known and _is_part(child, known[key]) for key, child in value.items())
    if isinstance(value, list) and isinstance(known, list):
        return len(value) <= len(known) and all(map(_is_part, value, known))
    return value == known
