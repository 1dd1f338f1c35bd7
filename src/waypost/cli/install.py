"""`waypost install`: add a hub to the configuration of an MCP client, or take it out again."""

from __future__ import annotations

import difflib
import os
import re
import shutil
import sys
import tempfile
from argparse import ArgumentTypeError, Namespace
from itertools import count
from pathlib import Path
from typing import Final

from waypost.cli.client import KEY_VARIABLE
from waypost.cli.command import JSON, Argument, Command, Output, WrongUsage
from waypost.cli.target import LOCAL_TARGET, is_config, is_url, load_hub
from waypost.config.clients import CLIENTS, Client, Server, this_machine
from waypost.config.edits import Unreadable, remove_entry, set_entry
from waypost.errors import WaypostError

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


def run(args: Namespace) -> Output:
    """Change the client's file, or show how it would change."""
    client = CLIENTS[args.client]
    file = _find_file(client, args)
    text = read_text(file)
    try:
        name = args.name or _find_name(client, text, args)
        changed = _change(client, text, name, args)
    except Unreadable as error:
        raise WaypostError(f"{file} cannot be changed: {error}; repair it, or make the entry by hand.") from None
    except KeyError:
        raise WaypostError(f"{file} has no entry {name!r} in {client.section!r}.") from None
    is_changed = changed != text
    data = {"client": args.client, "file": str(file), "name": name, "changed": is_changed, "dryRun": args.dry_run}
    if args.dry_run:
        return Output({**data, "diff": _diff(file, text, changed)}, _diff(file, text, changed) or f"{file}: no change")
    if not is_changed:
        return Output(data, f"{file} has this entry already.")
    backup = replace_text(file, changed)
    said = f"Removed {name!r} from {file}." if args.remove else f"Added {name!r} to {file}; {client.then}."
    kept = f" The file as it was before is {backup}." if backup else ""
    return Output({**data, "backup": None if backup is None else str(backup)}, said + kept)


def _find_file(client: Client, args: Namespace) -> Path:
    if args.scope == "user":
        return client.user(this_machine())
    if client.project is None:
        raise WrongUsage(f"{client.title} has no files for single projects; leave --scope out.")
    file = Path.cwd() / client.project
    with_comments = file.with_suffix(".jsonc")
    return with_comments if args.client == "opencode" and with_comments.exists() else file


def _find_name(client: Client, text: str, args: Namespace) -> str:
    """The name of the hub, in letters that every client takes; of a URL that it is a hub of Waypost."""
    if args.url is not None:
        return "waypost"
    try:
        return re.sub(r"[^A-Za-z0-9_-]+", "-", load_hub(args.target).info.name).strip("-")[:64] or "waypost"
    except WaypostError:
        if not args.remove:
            raise
        known = ", ".join(client.form.read(text).get(client.section) or ()) or "none"
        raise WrongUsage(f"Name the entry to remove with --name; there are: {known}.") from None


def _change(client: Client, text: str, name: str, args: Namespace) -> str:
    path = (client.section, name)
    if args.remove:
        return remove_entry(text, client.form, path)
    return set_entry(text, client.form, path, client.entry(_describe(name, args)))


def _describe(name: str, args: Namespace) -> Server:
    if args.url is not None:
        if not is_url(args.url):
            raise WrongUsage(f"{args.url} is not a URL that begins with http:// or https://.")
        url = args.url.rstrip("/")
        url = url if url.endswith("/mcp") else f"{url}/mcp"
        return Server(name, url=url, key=args.key or "", key_variable=args.key_variable or "")
    if args.key or args.key_variable:
        raise WrongUsage("--key and --key-variable are for a hub at a URL; add --url.")
    # Whole paths: clients have neither the directory nor the environment of a shell.
    file, colon, rest = (args.target, "", "") if is_config(args.target) else args.target.rpartition(":")
    target = str(Path(file).resolve()) if file.endswith((".py", ".yaml", ".yml")) else file
    return Server(name, (*find_command(), "serve", f"{target}{colon}{rest}", "--stdio"))


def find_command() -> list[str]:
    """The command that starts this Waypost from anywhere, by its whole path."""
    script = Path(sys.executable).with_name("waypost")
    return [str(script)] if script.exists() else [sys.executable, "-m", "waypost"]


# Files of other programs


def read_text(file: Path) -> str:
    """The text of a file; an empty one if the file does not exist yet."""
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise WaypostError(f"{file} cannot be read: {getattr(error, 'strerror', None) or 'it is not UTF-8'}.") from None


def replace_text(file: Path, text: str) -> Path | None:
    """Write a file in one step, with the rights it had, and return the copy of the old one, if there was one."""
    file = file.resolve()  # a link stays a link
    try:
        backup = _choose_backup(file) if file.exists() else None
        file.parent.mkdir(parents=True, exist_ok=True)
        if backup is not None:
            shutil.copy2(file, backup)
        handle, fresh = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8", newline="") as written:
                written.write(text)
                # On the disk before it takes the place of the old file, which a crash must not leave empty.
                written.flush()
                os.fsync(handle)
            if backup is not None:
                shutil.copymode(file, fresh)  # a new file stays private, as `mkstemp` makes it: it may hold a key
            Path(fresh).replace(file)
        except BaseException:
            Path(fresh).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise WaypostError(f"{file} cannot be written: {error.strerror}.") from None
    return backup


def _choose_backup(file: Path) -> Path:
    """`NAME.bak`, or `NAME.bak2` and so on: a copy with another content, such as the original, is kept."""
    content = file.read_bytes()
    for number in count(1):
        backup = file.with_name(f"{file.name}.bak{'' if number == 1 else number}")
        if not backup.exists() or backup.read_bytes() == content:
            return backup
    raise AssertionError("counting does not end")


def _diff(file: Path, before: str, after: str) -> str:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), str(file), str(file), lineterm="")
    return "\n".join(lines)


def _parse_name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ArgumentTypeError(f"{text!r} is not a name that every client takes; use letters, digits, - and _")
    return text


COMMAND: Final = Command(
    run,
    "Add a hub to the configuration of an MCP client; everything else in the file stays as it is.",
    "waypost install claude-code waypost.yaml --dry-run",
    Argument("client", choices=CLIENTS, metavar="CLIENT", help=", ".join(CLIENTS)),
    LOCAL_TARGET,
    Argument("--name", type=_parse_name, help="the name of the entry (default: the hub's name)"),
    Argument("--url", help="a hub that is running, such as http://127.0.0.1:8420; the client does not start one then"),
    Argument("--key", help="for --url: the key to send, which is written to the file"),
    Argument(
        "--key-variable", metavar="VARIABLE", help=f"for --url: where the client finds it, such as {KEY_VARIABLE}"
    ),
    Argument(
        "--scope",
        choices=("user", "project"),
        default="user",
        help="the file of the user, or the one of the project in the current directory (default: user)",
    ),
    Argument("--dry-run", action="store_true", help="show what would change, and change nothing"),
    Argument("--remove", action="store_true", help="take the entry out again"),
    JSON,
)
