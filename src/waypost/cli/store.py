"""`waypost store`: check, migrate, back up and vacuum the store of a hub, which may be running."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from waypost.capabilities.schemas.problems import counted
from waypost.cli.client import DATA
from waypost.cli.command import JSON, Argument, Command, Group, Output, Progress
from waypost.cli.target import LOCAL_TARGET, data_directory, is_config, load_hub
from waypost.errors import StoreDamaged, WaypostError
from waypost.runtime.core import Launch
from waypost.stores import schema, sqlite, urls
from waypost.stores.sqlite import SqliteDatabase
from waypost.stores.store import Store


class OpenStore:
    """A store and its location: a SQLite file, which with `creates` may not exist yet, or a server."""

    def __init__(self, store: Store, *, creates: bool = False) -> None:
        self.store = store
        self.file = store.database.path if isinstance(store.database, SqliteDatabase) else None
        self.location = str(self.file or store.database.name.removeprefix("The store on "))
        if not store.database.is_durable:
            raise WaypostError("The hub keeps everything in memory; there is no store.")
        if not creates and self.file is not None and not self.file.exists():
            raise WaypostError(f"The store {self.file} does not exist yet; a hub creates it when it first needs it.")

    def size(self) -> int | None:
        """The size of its files in bytes; None for a server."""
        if self.file is None:
            return None
        return _file_size(self.file) + _file_size(self.file.with_name(f"{self.file.name}-wal"))


Action = Callable[[OpenStore, Namespace], Awaitable[Output]]


def _store_command(
    action: Action, description: str, example: str, *arguments: Argument, creates: bool = False
) -> Command:
    """A command on a store; only one that `creates` it works on a file that does not exist yet."""

    async def run_and_close(opened: OpenStore, args: Namespace) -> Output:
        try:
            with Progress(f"{args.action} of {opened.location}", _measure_backup(opened, args)):
                return await action(opened, args)
        finally:
            await opened.store.close()

    def run(args: Namespace) -> Output:
        return asyncio.run(run_and_close(OpenStore(find_store(args, args.url), creates=creates), args))

    return Command(
        run,
        description,
        example,
        LOCAL_TARGET,
        *arguments,
        DATA,
        Argument("--url", help="the store itself, such as sqlite:///waypost.db, in place of the target's"),
        JSON,
    )


def find_store(args: Namespace, url: str | None) -> Store:
    """The store at a URL, or that of the target."""
    data = data_directory(args)
    if url is not None:
        return Store(urls.create_database(url, data))
    if is_config(args.target):
        from waypost import config

        return Store(urls.create_database(config.load(Path(args.target)).config.store.url, data))
    return load_hub(args.target).launch(Launch(data_dir=data, durable=True)).core.store


async def check(opened: OpenStore, _args: Namespace) -> Output:
    """Print the problems of the store, which fail the command, or how much is in it."""
    # Read before the check opens the file, which may mark it as written by the SQLite in use.
    versions = {} if opened.file is None else _sqlite_versions(opened.file)
    problems = await _find_problems(opened)
    counts = {} if problems else await opened.store.counts()
    data = {"store": opened.location, "ok": not problems, "problems": problems, **counts, **versions}
    lines = [f"{opened.location}: {problem}" for problem in problems]
    if not problems:
        amounts = [counted(count, name.removesuffix("s")) for name, count in counts.items()]
        lines = [f"{opened.location}: ok ({', '.join(amounts)})"]
    if versions:
        lines.append(f"SQLite {versions['sqlite']}; the file was last written by {versions['writtenBy'] or 'none'}")
    return Output(data, "\n".join(lines), status=1 if problems else 0)


def _sqlite_versions(file: Path) -> dict[str, str | None]:
    written_by = sqlite.read_file_version(file)
    return {
        "sqlite": sqlite.LIBRARY_VERSION,
        "writtenBy": None if written_by is None else sqlite.to_version_text(written_by),
    }


async def _find_problems(opened: OpenStore) -> list[str]:
    try:
        step = await opened.store.database.schema_version()
        if step < schema.LATEST:
            return [f"Its tables are at step {step} of {schema.LATEST}; run `waypost store migrate`."]
        return [problem.replace("\n", " ") for problem in await opened.store.check()]
    except StoreDamaged as error:
        return [str(error)]


async def migrate(opened: OpenStore, _args: Namespace) -> Output:
    """Take the steps that are missing."""
    before = await opened.store.database.schema_version()
    await opened.store.open()
    done = f"at step {before} already"
    if before != schema.LATEST:
        done = f"migrated from step {before} to step {schema.LATEST}"
    data = {"store": opened.location, "from": before, "to": schema.LATEST}
    return Output(data, f"{opened.location}: {done}")


async def back_up(opened: OpenStore, args: Namespace) -> Output:
    """Write a copy."""
    target: Path = args.to
    await opened.store.backup(target)
    size = _file_size(target)
    data = {"store": opened.location, "backup": str(target), "bytes": size}
    return Output(data, f"{opened.location}: written to {target} ({size:,} bytes)")


def _measure_backup(opened: OpenStore, args: Namespace) -> Callable[[], float] | None:
    """What says which part of a copy is written; None where there is no copy, or its size is not known before."""
    total = opened.size()
    if "to" not in args or not total:
        return None
    # The copy has a name of its own until it is complete, which begins with that of the target.
    return lambda: max((_file_size(file) for file in args.to.parent.glob(f"{args.to.name}*")), default=0) / total


async def vacuum(opened: OpenStore, _args: Namespace) -> Output:
    """Delete expired records and free their space."""
    before = opened.size()
    swept = await opened.store.vacuum()
    after = opened.size()
    sizes = "" if after is None else f", {before:,} bytes before, {after:,} now"
    data = {"store": opened.location, "swept": swept, "before": before, "after": after}
    return Output(data, f"{opened.location}: swept {counted(swept, 'record')}{sizes}")


def _file_size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


COMMAND: Final = Group(
    "Maintain the store of a hub: sessions, tasks, workflow instances and all else that outlives a request.",
    "waypost store check waypost.yaml",
    {
        "check": _store_command(check, "Report every problem in the store.", "waypost store check waypost.yaml --json"),
        "migrate": _store_command(
            migrate,
            "Bring the tables up to date.",
            "waypost store migrate --url postgresql://db/waypost",
            creates=True,
        ),
        "backup": _store_command(
            back_up,
            "Write everything into a new SQLite file.",
            "waypost store backup --to monday.db",
            Argument("--to", type=Path, required=True, metavar="FILE", help="the file to write; it must not exist"),
        ),
        "vacuum": _store_command(
            vacuum, "Delete expired records and free their space.", "waypost store vacuum --data /srv/hub"
        ),
    },
)
