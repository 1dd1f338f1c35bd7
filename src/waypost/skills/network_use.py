"""Whether a skill's source reaches out of its process: what it must say with `external = True`.

The source is looked at, not run, so names that are put together at run time count as reaching out.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

_MODULES: Final = frozenset(
    (
        "_ctypes", "_posixsubprocess", "_socket", "_ssl", "aiohttp", "anyio", "asyncpg", "asyncssh", "asyncore",
        "boto3", "botocore", "cffi", "ctypes", "ddgs", "dns", "feedparser", "ftplib", "grpc", "http.client",
        "http.server", "httpcore", "httptools", "httpx", "imaplib", "multiprocessing", "nats", "nntplib", "paramiko",
        "playwright", "poplib", "psycopg", "psycopg2", "pty", "pycurl", "pymongo", "pymysql", "redis", "requests",
        "selenium", "smtplib", "socket", "socketserver", "ssl", "subprocess", "telnetlib", "trio", "urllib.request",
        "urllib3", "websocket", "websockets", "wsgiref", "xmlrpc", "zmq",
    )
)  # fmt: skip
_DYNAMIC: Final = frozenset(("_imp", "builtins", "imp", "importlib", "pkgutil", "runpy"))
_CODE: Final = frozenset(("__builtins__", "__import__", "__loader__", "__spec__", "compile", "eval", "exec"))
_OS: Final = ("exec", "fork", "popen", "posix_spawn", "spawn", "startfile", "system")
_METHODS: Final = frozenset(
    (
        "__builtins__", "__globals__", "__loader__", "__subclasses__", "create_connection",
        "create_datagram_endpoint", "create_server", "create_subprocess_exec", "create_subprocess_shell",
        "create_unix_connection", "create_unix_server", "import_module", "open_connection", "open_unix_connection",
        "sock_connect", "start_server", "start_unix_server", "subprocess_exec", "subprocess_shell", "urlopen",
        "urlretrieve",
    )
)  # fmt: skip


def network_use(tree: ast.Module) -> list[str]:
    """Everything that reaches out, in the order of the lines: `requests (line 3)`."""
    aliases = dict(_aliases(tree))
    found = sorted({(line, what) for node in ast.walk(tree) for what, line in _uses(node, aliases)})
    return [f"{what} (line {line})" for line, what in found]


def _aliases(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The names under which modules, and parts of them, are known in the source."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield (name.asname, name.name) if name.asname else (name.name.partition(".")[0],) * 2
        elif isinstance(node, ast.ImportFrom) and node.module:
            for name in node.names:
                yield name.asname or name.name, f"{node.module}.{name.name}"


def _uses(node: ast.AST, aliases: dict[str, str]) -> Iterator[tuple[str, int]]:
    if isinstance(node, ast.Import):
        yield from ((name.name, node.lineno) for name in node.names if _reaches_out(name.name))
    elif isinstance(node, ast.ImportFrom):
        yield from _imported_parts(node)
    elif isinstance(node, ast.Name) and node.id in _CODE:
        yield node.id, node.lineno
    elif isinstance(node, ast.Attribute):
        named = _dotted(node, aliases)
        if node.attr in _METHODS or (named is not None and _reaches_out(named)):
            yield named or node.attr, node.lineno
    elif isinstance(node, ast.Call):
        yield from _looked_up(node, aliases)


def _imported_parts(node: ast.ImportFrom) -> Iterator[tuple[str, int]]:
    module = node.module or ""
    for name in node.names:
        part = f"{module}.{name.name}"
        everything = name.name == "*" and any(known.startswith(f"{module}.") for known in (*_MODULES, "os."))
        if node.level or everything or name.name in _METHODS or _reaches_out(module) or _reaches_out(part):
            yield part, node.lineno


def _looked_up(node: ast.Call, aliases: dict[str, str]) -> Iterator[tuple[str, int]]:
    """Attributes of modules by name: `getattr(os, ...)`, `vars(os)`."""
    if not isinstance(node.func, ast.Name) or node.func.id not in ("getattr", "vars") or not node.args:
        return
    named = _dotted(node.args[0], aliases)
    if named is None or named.partition(".")[0] not in {target.partition(".")[0] for target in aliases.values()}:
        return
    wanted = node.args[1].value if len(node.args) > 1 and isinstance(node.args[1], ast.Constant) else None
    if not isinstance(wanted, str) or wanted in _METHODS or _reaches_out(f"{named}.{wanted}"):
        yield f"{node.func.id} of {named}", node.lineno


def _dotted(node: ast.expr, aliases: dict[str, str]) -> str | None:
    """The full name of a chain of attributes that starts at a module."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in aliases:
        return None
    return ".".join((aliases[node.id], *reversed(parts)))


def _reaches_out(name: str) -> bool:
    """Whether a dotted name is, or is inside, something that reaches out."""
    parts = name.split(".")
    if parts[0] in ("os", "posix", "nt"):
        return len(parts) > 1 and parts[1].startswith(_OS)
    if parts[0] in _DYNAMIC or parts[:2] == ["sys", "modules"]:
        return True
    return any(".".join(parts[:count]) in _MODULES for count in range(1, len(parts) + 1))
