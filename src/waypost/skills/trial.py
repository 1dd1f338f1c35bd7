"""The first run of a skill's source, in a process of its own: does it import, and is it what it looks like?"""

from __future__ import annotations

import asyncio

from waypost.skills.crashes import ProcessEnded
from waypost.skills.declarations import agree
from waypost.skills.files import Source
from waypost.skills.limits import Limits
from waypost.skills.process import ImportFailed, Process, Program
from waypost.skills.refusals import SkillRefused


async def tried(source: Source, program: Program, limits: Limits) -> Process:
    """A process that has imported the skill, ready for its first call; anything against it is `SkillRefused`."""
    try:
        process = await Process.started(program, limits)
    except ImportFailed as error:
        raise _refusal(source, error) from None
    except ProcessEnded as error:
        raise SkillRefused("import_failed", f"{source.file} cannot be imported: {error}.") from None
    try:
        await asyncio.to_thread(agree, source, process.ready)
    except BaseException:
        process.kill()
        raise
    return process


def _refusal(source: Source, error: ImportFailed) -> SkillRefused:
    failed = error.failed
    if failed.kind == "MissingRun":
        return SkillRefused("missing_run", f"{source.file} cannot be run: {failed.message}.")
    if failed.line is not None:
        return SkillRefused("compilation_error", f"{source.file}, line {failed.line}: {failed.message}.")
    return SkillRefused("import_failed", f"{source.file} cannot be imported: {failed.kind}: {failed.message}.")
