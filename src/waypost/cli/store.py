"""`waypost store check`, `migrate`, `backup` and `vacuum`: looking after what a hub keeps."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from waypost.cli.serve import data_directory
from waypost.cli.target import DEFAULT, LOCAL, is_config, load_hub
from waypost.errors import StoreDamaged, WaypostError
from waypost.stores import schema, urls
from waypost.stores.sqlite import SqliteDatabase
from waypost.stores.store import Store

Command = Callable[["Kept", argparse.Namespace], Awaitable[int]]


class Kept:
    """A store, and where it is: a file that may not be there yet, or a server."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.file = store.database.path if isinstance(store.database, SqliteDatabase) else None
        self.place = str(self.file or store.database.name.removeprefix("The store on "))

    def size(self) -> int | None:
        """How many bytes its files have; a server's are its own business."""
        if self.file is None:
            return None
        return _size(self.file) + _size(self.file.with_name(f"{self.file.name}-wal"))


def register(commands: Any) -> None:
    """Add the commands."""
    store = commands.add_parser(
        "store",
        help="check, migrate, back up or vacuum the store of a hub",
        description="Look after the store of a hub: what outlives a request, such as sessions and tasks.",
        epilog="example: waypost store check waypost.yaml",
    )
    actions = store.add_subparsers(dest="action", metavar="ACTION", required=True)
    _command(actions, "check", check, "say what is wrong with the store", "waypost store check waypost.yaml --json")
    _command(
        actions,
        "migrate",
        migrate,
        "bring the tables up to date",
        "waypost store migrate --url postgresql://db/waypost",
    )
    backup = _command(
        actions, "backup", back_up, "write everything into a new SQLite file", "waypost store backup --to monday.db"
    )
    backup.add_argument("--to", type=Path, required=True, metavar="FILE", help="the file to write; it must not exist")
    _command(
        actions, "vacuum", vacuum, "forget what is over and give its room back", "waypost store vacuum --data /srv/hub"
    )


def _command(actions: Any, name: str, action: Command, text: str, example: str) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = actions.add_parser(
        name, help=text, description=f"{text[0].upper()}{text[1:]}.", epilog=f"example: {example}"
    )
    command.add_argument("target", nargs="?", default=DEFAULT, metavar="TARGET", help=f"{LOCAL} (default: {DEFAULT})")
    command.add_argument("--data", type=Path, metavar="DIR", help="the data directory of the hub (default: .waypost)")
    command.add_argument("--url", help="the store itself, such as sqlite:///waypost.db, in place of the target's")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=lambda given: _run(action, given))
    return command


def _run(action: Command, given: argparse.Namespace) -> int:
    kept = Kept(_store(given))
    if not kept.store.database.is_durable:
        raise WaypostError("The hub keeps everything in memory; there is no store to look after.")
    if action is not migrate and kept.file is not None and not kept.file.exists():
        raise WaypostError(f"There is no store {kept.file} yet; a hub makes it when it first needs it.")
    return asyncio.run(_with_store(action, kept, given))


async def _with_store(action: Command, kept: Kept, given: argparse.Namespace) -> int:
    try:
        return await action(kept, given)
    finally:
        await kept.store.close()


def _store(given: argparse.Namespace) -> Store:
    data = data_directory(given)
    if given.url is not None:
        return Store(urls.create_database(given.url, data))
    if is_config(given.target):
        from waypost import config

        return Store(urls.create_database(config.load(Path(given.target)).config.store.url, data))
    hub = load_hub(given.target)
    hub.settle_in(data)
    return hub.store


async def check(kept: Kept, given: argparse.Namespace) -> int:
    """Print what is wrong, or how much there is."""
    problems = await _problems(kept)
    counts = {} if problems else await kept.store.counts()
    if given.json:
        _print_json({"store": kept.place, "ok": not problems, "problems": problems, **counts})
    elif problems:
        sys.stdout.writelines(f"{kept.place}: {problem}\n" for problem in problems)
    else:
        shown = ", ".join(f"{count} {name}" for name, count in counts.items())
        sys.stdout.write(f"{kept.place}: ok ({shown})\n")
    return 1 if problems else 0


async def _problems(kept: Kept) -> list[str]:
    try:
        step = await kept.store.database.schema_version()
        if step < schema.LATEST:
            return [f"Its tables are at step {step} of {schema.LATEST}; run `waypost store migrate`."]
        return [problem.replace("\n", " ") for problem in await kept.store.check()]
    except StoreDamaged as error:
        return [error.message]


async def migrate(kept: Kept, given: argparse.Namespace) -> int:
    """Take the steps that are missing, and print which they were."""
    before = await kept.store.database.schema_version()
    await kept.store.open()
    if given.json:
        _print_json({"store": kept.place, "from": before, "to": schema.LATEST})
    elif before == schema.LATEST:
        sys.stdout.write(f"{kept.place}: at step {before} already\n")
    else:
        sys.stdout.write(f"{kept.place}: brought from step {before} to step {schema.LATEST}\n")
    return 0


async def back_up(kept: Kept, given: argparse.Namespace) -> int:
    """Write a copy, and print how large it is."""
    target: Path = given.to
    await kept.store.backup(target)
    size = _size(target)
    if given.json:
        _print_json({"store": kept.place, "backup": str(target), "bytes": size})
    else:
        sys.stdout.write(f"{kept.place}: written to {target} ({size:,} bytes)\n")
    return 0


async def vacuum(kept: Kept, given: argparse.Namespace) -> int:
    """Make room, and print how much."""
    before = kept.size()
    swept = await kept.store.vacuum()
    after = kept.size()
    if given.json:
        _print_json({"store": kept.place, "swept": swept, "before": before, "after": after})
    else:
        sizes = "" if after is None else f", {before:,} bytes before, {after:,} now"
        sys.stdout.write(f"{kept.place}: swept {swept} records{sizes}\n")
    return 0


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def _print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")
