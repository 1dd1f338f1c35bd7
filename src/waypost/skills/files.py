"""The source files of skills: found, read without following links, replaced; what they declare and what they use."""

from __future__ import annotations

import ast
import errno
import hashlib
import os
import re
import secrets
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from waypost.capabilities.results import round_trip_json
from waypost.capabilities.schemas.forms import RawForm, is_raw
from waypost.documents.folder_files import LinkFound, open_directory, read_beginning
from waypost.errors import DefinitionError, UnknownCapability, shorten
from waypost.skills.child.messages import VALUES, Ready
from waypost.suggestions import did_you_mean


class SkillRefused(DefinitionError):
    """A skill is refused; `code` says why, for programs."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class SkillNotFound(SkillRefused, UnknownCapability):
    """There is no such skill."""

    def __init__(self, name: str, known: Iterable[str] = (), reason: str = "") -> None:
        hint = did_you_mean(name, known, "; ") or "."
        super().__init__("not_found", reason or f"There is no dynamic skill {shorten(name)}{hint}")


MAX_FILE_BYTES: Final = 1024 * 1024
SUFFIX: Final = ".py"
_NO_FILE: Final = (errno.ENOENT, errno.ENOTDIR, errno.ENXIO)
"""The errors that mean that there is no such file."""
_LOOKALIKES: Final = str.maketrans({"_": "", "0": "o", "1": "l", "i": "l"})
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")

TEMPLATE: Final = '''"""The skill {name}."""

description = "Gives back what it was given."
version = "1.0.0"
permissions = []


def run(args, ctx):
    return args["input"]
'''


class Source(msgspec.Struct, frozen=True):
    """The source in a skill's file."""

    name: str
    file: str
    text: str
    sha256: str


def make_source(name: str, file: str, text: str) -> Source:
    """Return a source with its checksum."""
    return Source(name, file, text, hashlib.sha256(text.encode()).hexdigest())


def check_name(name: str) -> str:
    """Return the name if it is a valid name of a skill."""
    if not _NAME.fullmatch(name):
        raise SkillRefused(
            "bad_name",
            f"{name[:80]!r} cannot be the name of a skill: it takes up to 64 letters, digits and _, not a digit first.",
        )
    return name


def find_alike(name: str, others: Iterable[str]) -> str | None:
    """Return another name that a reader could take for this one: by case, `_`, or letters that look like digits."""
    return next((other for other in others if other != name and _fold(other) == _fold(name)), None)


def _fold(name: str) -> str:
    return name.lower().translate(_LOOKALIKES)


def resolve_path(directory: Path, file: str) -> Path:
    """Return the real path of a file named relative to the directory, links followed; it must lie inside."""
    given = Path(file)
    # The name alone first: what is wrong on its face is refused whatever the file system says.
    if not file or "\0" in file or "\\" in file or given.is_absolute() or ".." in given.parts:
        raise _outside_error(file)
    try:
        root = directory.resolve()
        path = (root / given).resolve()
    except (OSError, RuntimeError, ValueError):
        raise _outside_error(file) from None
    if root not in path.parents:
        raise _outside_error(file)
    return path


def _outside_error(file: str) -> SkillRefused:
    return SkillRefused("path_traversal", f"{shorten(file)!r} does not lie inside the skills directory.")


def read_source(directory: Path, file: str) -> Source:
    """Return the source in a file of the directory."""
    path = resolve_path(directory, file)
    given = Path(file)
    if given.suffix != SUFFIX:
        raise SkillRefused("bad_name", f"{shorten(file)!r} is not a Python file; a skill's file is called <name>.py.")
    name = check_name(given.stem)
    try:
        data = _read_bytes(directory, file, path, MAX_FILE_BYTES + 1)
    except OSError as error:
        raise SkillRefused("file_not_found", f"{shorten(file)} cannot be read: {error.strerror}.") from None
    if data is None:
        known = (found.name for found in directory.glob(f"*{SUFFIX}") if found.is_file())
        hint = did_you_mean(file, known, "; ") or "."
        raise SkillRefused("file_not_found", f"There is no file {shorten(file)} in the skills directory{hint}")
    if len(data) > MAX_FILE_BYTES:
        raise SkillRefused("too_large", f"{file} is larger than {MAX_FILE_BYTES} bytes, the most a skill may have.")
    try:
        return make_source(name, given.as_posix(), data.decode())
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SkillRefused("compilation_error", f"{file}, line {line}: the source is not UTF-8.") from None


def _read_bytes(directory: Path, file: str, path: Path, size: int = -1) -> bytes | None:
    """Return what a resolved file holds, None if it is missing.

    Every step is opened without following links: one may have taken the place of a folder since the path was resolved.
    """
    root = directory.resolve()
    if root not in path.parents:
        raise _outside_error(file)
    try:
        with open_directory(root, path.parent.relative_to(root).parts) as parent:
            return read_beginning(parent, path.name, size)
    except LinkFound:
        raise _outside_error(file) from None
    except OSError as error:
        if error.errno in _NO_FILE:
            return None
        raise


def relative_name(directory: Path, path: Path) -> str:
    """Return the name of a file relative to the directory."""
    return path.relative_to(directory.resolve()).as_posix()


def list_files(directory: Path) -> list[str]:
    """Return the files of the directory that may be skills, in order; names with a leading _ or . are left out."""
    root = directory.resolve()
    return sorted(
        relative_name(directory, path)
        for path in root.rglob(f"*{SUFFIX}")
        if not any(part.startswith(("_", ".")) for part in path.relative_to(root).parts)
    )


def create_file(directory: Path, name: str) -> Path:
    """Write a new file with a skill to start from."""
    path = directory.resolve() / f"{check_name(name)}{SUFFIX}"
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("x", encoding="utf-8") as opened:
            opened.write(TEMPLATE.format(name=name))
    except FileExistsError:
        raise SkillRefused("already_exists", f"There is a file {path.name} already.") from None
    return path


@contextmanager
def replace_file(directory: Path, new: Source) -> Iterator[None]:
    """Replace what a file holds; if the body of the `with` statement fails, restore it."""
    # Read before anything is written: a rollback that is refused must leave the file as it was.
    former = _read_bytes(directory, new.file, resolve_path(directory, new.file))
    with _open_parent(directory, new.file) as (parent, name):
        _write_atomically(parent, name, new.text.encode())
        try:
            yield
        except BaseException:
            if former is not None:
                _write_atomically(parent, name, former)
            else:
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=parent)
            raise


@contextmanager
def _open_parent(directory: Path, file: str) -> Iterator[tuple[int, str]]:
    """Open the directory that a file is written into, made if missing, and yield it with the file's name."""
    given = Path(file)
    parent = resolve_path(directory, given.parent.as_posix()) if given.parent.parts else directory.resolve()
    root = directory.resolve()
    if root not in (parent, *parent.parents):
        raise _outside_error(file)
    root.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        try:
            number = stack.enter_context(open_directory(root, parent.relative_to(root).parts, make=True))
        except LinkFound:
            raise _outside_error(file) from None
        yield number, given.name


def _write_atomically(directory: int, name: str, data: bytes) -> None:
    """Write a file of an open directory as a whole or not at all."""
    temporary = f".{secrets.token_hex(8)}"  # the dot keeps it from being loaded as a skill
    number = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=directory)
    try:
        with os.fdopen(number, "wb") as opened:
            opened.write(data)
        os.replace(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        os.unlink(temporary, dir_fd=directory)
        raise


_REACHING_MODULES: Final = frozenset(
    (
        "_ctypes", "_posixsubprocess", "_socket", "_ssl", "aiohttp", "anyio", "asyncpg", "asyncssh", "asyncore",
        "boto3", "botocore", "cffi", "ctypes", "ddgs", "dns", "feedparser", "ftplib", "grpc", "http.client",
        "http.server", "httpcore", "httptools", "httpx", "imaplib", "multiprocessing", "nats", "nntplib", "paramiko",
        "playwright", "poplib", "psycopg", "psycopg2", "pty", "pycurl", "pymongo", "pymysql", "redis", "requests",
        "selenium", "smtplib", "socket", "socketserver", "ssl", "subprocess", "telnetlib", "trio", "urllib.request",
        "urllib3", "websocket", "websockets", "wsgiref", "xmlrpc", "zmq",
    )
)  # fmt: skip
_IMPORT_MODULES: Final = frozenset(("_imp", "builtins", "imp", "importlib", "pkgutil", "runpy"))
_CODE_NAMES: Final = frozenset(("__builtins__", "__import__", "__loader__", "__spec__", "compile", "eval", "exec"))
_OS_PREFIXES: Final = ("exec", "fork", "popen", "posix_spawn", "spawn", "startfile", "system")
_REACHING_METHODS: Final = frozenset(
    (
        "__builtins__", "__globals__", "__loader__", "__subclasses__", "create_connection",
        "create_datagram_endpoint", "create_server", "create_subprocess_exec", "create_subprocess_shell",
        "create_unix_connection", "create_unix_server", "import_module", "open_connection", "open_unix_connection",
        "sock_connect", "start_server", "start_unix_server", "subprocess_exec", "subprocess_shell", "urlopen",
        "urlretrieve",
    )
)  # fmt: skip


def find_external_uses(tree: ast.Module) -> list[str]:
    """Return everything that reaches out of the process, in the order of the lines: `requests (line 3)`."""
    aliases = dict(_list_aliases(tree))
    found = sorted({(line, what) for node in ast.walk(tree) for what, line in _find_uses(node, aliases)})
    return [f"{what} (line {line})" for line, what in found]


def _list_aliases(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the names that the source gives to modules and parts of them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield (name.asname, name.name) if name.asname else (name.name.partition(".")[0],) * 2
        elif isinstance(node, ast.ImportFrom) and node.module:
            for name in node.names:
                yield name.asname or name.name, f"{node.module}.{name.name}"


def _find_uses(node: ast.AST, aliases: dict[str, str]) -> Iterator[tuple[str, int]]:
    if isinstance(node, ast.Import):
        yield from ((name.name, node.lineno) for name in node.names if _reaches_out(name.name))
    elif isinstance(node, ast.ImportFrom):
        yield from _find_imports(node)
    elif isinstance(node, ast.Name) and node.id in _CODE_NAMES:
        yield node.id, node.lineno
    elif isinstance(node, ast.Attribute):
        named = _full_name(node, aliases)
        if node.attr in _REACHING_METHODS or (named is not None and _reaches_out(named)):
            yield named or node.attr, node.lineno
    elif isinstance(node, ast.Call):
        yield from _find_lookups(node, aliases)


def _find_imports(node: ast.ImportFrom) -> Iterator[tuple[str, int]]:
    module = node.module or ""
    for name in node.names:
        part = f"{module}.{name.name}"
        everything = name.name == "*" and any(known.startswith(f"{module}.") for known in (*_REACHING_MODULES, "os."))
        if node.level or everything or name.name in _REACHING_METHODS or _reaches_out(module) or _reaches_out(part):
            yield part, node.lineno


def _find_lookups(node: ast.Call, aliases: dict[str, str]) -> Iterator[tuple[str, int]]:
    """Yield lookups of module attributes by name: `getattr(os, ...)`, `vars(os)`."""
    if not isinstance(node.func, ast.Name) or node.func.id not in ("getattr", "vars") or not node.args:
        return
    named = _full_name(node.args[0], aliases)
    if named is None or named.partition(".")[0] not in {target.partition(".")[0] for target in aliases.values()}:
        return
    wanted = node.args[1].value if len(node.args) > 1 and isinstance(node.args[1], ast.Constant) else None
    if not isinstance(wanted, str) or wanted in _REACHING_METHODS or _reaches_out(f"{named}.{wanted}"):
        yield f"{node.func.id} of {named}", node.lineno


def _full_name(node: ast.expr, aliases: dict[str, str]) -> str | None:
    """Return the full name of a chain of attributes that starts at a module."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in aliases:
        return None
    return ".".join((aliases[node.id], *reversed(parts)))


def _reaches_out(name: str) -> bool:
    """Return whether a dotted name is, or is inside, something that reaches out of the process."""
    parts = name.split(".")
    if parts[0] in ("os", "posix", "nt"):
        return len(parts) > 1 and parts[1].startswith(_OS_PREFIXES)
    if parts[0] in _IMPORT_MODULES or parts[:2] == ["sys", "modules"]:
        return True
    return any(".".join(parts[:count]) in _REACHING_MODULES for count in range(1, len(parts) + 1))


PERMISSIONS: Final = (
    *("skill_invoke", "workflow_run", "web_read", "llm"),
    *("state_read", "state_write", "resources_read", "config_read"),
)
"""The permissions that a skill may declare."""

_INPUT_DESCRIPTION: Final = "Input data passed to the skill (string, or JSON-encoded)"


class Declaration(msgspec.Struct, frozen=True):
    """The values that a skill's module declares; None where it declares nothing."""

    description: str | None = None
    version: str | None = None
    permissions: tuple[str, ...] | None = None
    routes: tuple[str, ...] | None = None
    external: bool | None = None
    input_schema: dict[str, Any] | None = None

    @property
    def arguments(self) -> RawForm:
        """The arguments of the tool: `input`, `config` and the skill's own fields."""
        own = self.input_schema or {}
        whole = own if is_raw(own) else {"properties": own}
        branches = f" Possible output branches: {', '.join(self.routes)}." if self.routes else ""
        base = {"input": {"type": "string", "description": _INPUT_DESCRIPTION + branches}, "config": {"type": "object"}}
        properties = whole.get("properties", {})
        if not isinstance(properties, dict) or not all(isinstance(part, dict | bool) for part in properties.values()):
            raise DefinitionError("input_schema must map names to JSON Schemas, or be a schema of an object")
        return RawForm({"type": "object", **whole, "properties": {**base, **properties}})


def check_source(source: Source, known: Collection[str]) -> Declaration:
    """Return the declaration of a source that may be run; raises SkillRefused for any other."""
    tree = _parse(source)
    if not _binds_run(tree):
        raise SkillRefused("missing_run", f"{source.file} has no function run(args, ctx).")
    declaration = _convert(source, _read_literals(source, tree))
    unknown = [name for name in declaration.permissions or () if name not in known]
    if unknown:
        raise SkillRefused(
            "unknown_permissions", f"{source.file} asks for permissions that do not exist: {', '.join(unknown)}."
        )
    # A check for honest mistakes, not for attacks: those are up to the limits and the confinement of the process.
    uses = [] if declaration.external else find_external_uses(tree)
    if uses:
        raise SkillRefused(
            "undeclared_external",
            f"{source.file} reaches out of its process without external = True: {', '.join(uses)}.",
        )
    return declaration


def compare_declaration(source: Source, ready: Ready) -> None:
    """Refuse a module whose values after its import differ from those in its source."""
    # Permissions were checked as the source has them. Code that assigns others while it runs would evade that.
    shown = round_trip_json(_read_literals(source, _parse(source)))
    for name in VALUES:
        if name in ready.odd or (name in shown) != (name in ready.values) or shown.get(name) != ready.values.get(name):
            raise SkillRefused(
                "bad_metadata", f"{source.file}: {name} must be assigned once, at the top level, as a plain literal."
            )


def _parse(source: Source) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source.text.encode(), source.file)
    except SyntaxError as error:
        line = f", line {error.lineno}" if error.lineno else ""
        raise SkillRefused("compilation_error", f"{source.file}{line}: {error.msg}.") from None
    except (ValueError, RecursionError, MemoryError) as error:
        reason = str(error) or "it is nested too deeply"
        raise SkillRefused("compilation_error", f"{source.file} is not a Python source: {reason}.") from None


def _binds_run(tree: ast.Module) -> bool:
    return any(
        (isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == "run")
        or (isinstance(node, ast.Name) and node.id == "run" and isinstance(node.ctx, ast.Store))
        or (isinstance(node, ast.alias) and (node.asname or node.name) == "run")
        for node in ast.walk(tree)
    )


def _read_literals(source: Source, tree: ast.Module) -> dict[str, Any]:
    """Return the declared values; raises SkillRefused for one that is not a literal."""
    found: dict[str, Any] = {}
    for name, value in _list_assignments(tree):
        try:
            found[name] = ast.literal_eval(value)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            line = value.lineno
            raise SkillRefused(
                "bad_metadata", f"{source.file}, line {line}: {name} must be a plain literal, for it is read unrun."
            ) from None
    return found


def _list_assignments(tree: ast.Module) -> list[tuple[str, ast.expr]]:
    found = []
    for node in tree.body:
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            targets, value = [node.target], node.value
        else:
            continue
        found += [(target.id, value) for target in targets if isinstance(target, ast.Name) and target.id in VALUES]
    return found


def _convert(source: Source, literals: Mapping[str, Any]) -> Declaration:
    try:
        for name in ("permissions", "routes"):
            if isinstance(literals.get(name), set | frozenset | dict):
                raise DefinitionError(f"{name} must be a list of strings")
        declaration = msgspec.convert(literals, Declaration)
        round_trip_json(literals)
        _ = declaration.arguments  # raises if input_schema is not one
    except (msgspec.ValidationError, DefinitionError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise SkillRefused("bad_metadata", f"{source.file}: {str(error).rstrip('.')}.") from None
    return declaration
