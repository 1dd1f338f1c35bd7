"""Invalid skills are refused with one message, and nothing changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.conftest import asynchronous
from tests.skills.workbench import ECHO, workbench
from waypost.errors import DefinitionError, UnknownCapability
from waypost.settings import SkillLimits
from waypost.skills.files import MAX_FILE_BYTES, SkillRefused

RUN = "\ndef run(args):\n    return 1\n"


@pytest.mark.parametrize(
    ("source", "code", "said"),
    [
        ("x = 1\n", "missing_run", "has no function run(args, ctx)"),
        ("run = 5\n", "missing_run", "has no function run(args, ctx)"),
        ("def run(): pass\n", "missing_run", "does not take (args, ctx) or (args)"),
        ("def run(a, b, c): pass\n", "missing_run", "does not take (args, ctx) or (args)"),
        ("class A:\n    def run(self, args): pass\n", "missing_run", "has no function"),
        ("def run(args)\n    return 1\n", "compilation_error", "line 1"),
        (f"{RUN}\nreturn 5\n", "compilation_error", "line 5"),
        ("x = '\0'\n" + RUN, "compilation_error", "null bytes"),
        ("x = " + "(" * 500 + ")" * 500 + RUN, "compilation_error", "bad.py"),
        ("x = " + "-" * 100_000 + "1" + RUN, "compilation_error", "bad.py"),
        ("permissions = ['llm', 'rule_the_world']" + RUN, "unknown_permissions", "do not exist: rule_the_world."),
        ("permissions = 'llm'" + RUN, "bad_metadata", "permissions"),
        ("permissions = {'llm'}" + RUN, "bad_metadata", "permissions must be a list of strings"),
        ("permissions = [1]" + RUN, "bad_metadata", "permissions"),
        ("routes = [None]" + RUN, "bad_metadata", "routes"),
        ("description = 5" + RUN, "bad_metadata", "description"),
        ("version = 1.0" + RUN, "bad_metadata", "version"),
        ("external = 'yes'" + RUN, "bad_metadata", "external"),
        ("input_schema = ['a']" + RUN, "bad_metadata", "input_schema"),
        ("input_schema = {'a': 'string'}" + RUN, "bad_metadata", "input_schema must map names to JSON Schemas"),
        ("input_schema = {'a': {'type': 'nonsense'}}" + RUN, "bad_metadata", "invalid JSON Schema"),
        ("input_schema = {'type': 'object', 'properties': 5}" + RUN, "bad_metadata", "input_schema"),
        ("input_schema = {'a': {'const': {1, 2}}}" + RUN, "bad_metadata", "bad.py"),
        ("import os\ndescription = os.name" + RUN, "bad_metadata", "line 2: description must be a plain literal"),
        ("if True:\n    permissions = ['llm']" + RUN, "bad_metadata", "permissions must be assigned once"),
        ("permissions = []\npermissions.append('llm')" + RUN, "bad_metadata", "permissions must be assigned once"),
        ("globals()['external'] = True" + RUN, "bad_metadata", "external must be assigned once"),
        ("def description(): return 'x'" + RUN, "bad_metadata", "description must be assigned once"),
        ("version = '1'\ndel version" + RUN, "bad_metadata", "version must be assigned once"),
        ("raise KeyError('no')" + RUN, "import_failed", "KeyError: 'no'"),
        ("import nothing_like_it" + RUN, "import_failed", "ModuleNotFoundError"),
        ("raise SystemExit(3)" + RUN, "import_failed", "SystemExit: 3"),
        ("import os\nos._exit(7)" + RUN, "import_failed", "exit code 7"),
        ("x = bytearray(10 ** 10)" + RUN, "import_failed", "MemoryError"),
    ],
)  # fmt: skip
@asynchronous
async def test_an_invalid_source_is_refused(tmp_path: Path, source: str, code: str, said: str) -> None:
    async with workbench(tmp_path) as bench:
        file = bench.write("bad", source)
        with pytest.raises(SkillRefused) as refused:
            await bench.skills.load(file)

        assert refused.value.code == code
        assert said in refused.value.message
        assert bench.changes == []
        assert await bench.skills.list_skills() == []


@pytest.mark.parametrize(
    "line",
    [
        "import socket",
        "import ssl as s",
        "import http.client",
        "from http import client",
        "import urllib\nurllib.request",
        "from urllib.request import urlopen",
        "from urllib import request as r",
        "import requests.sessions",
        "import httpx, json",
        "from aiohttp import ClientSession",
        "import websockets",
        "import ftplib",
        "import smtplib",
        "import subprocess",
        "import ctypes",
        "import os\nos.system('true')",
        "import os as o\no.execv('/bin/true', [])",
        "from os import popen",
        "from os import *",
        "import os\nf = getattr(os, 'sys' + 'tem')",
        "import os\nf = getattr(os, 'system')",
        "import os\nvars(os)['system']",
        "m = __import__('soc' + 'ket')",
        "m = __import__('socket')",
        "import importlib\nimportlib.import_module('socket')",
        "from importlib import import_module as f",
        "import sys\nsys.modules['socket']",
        "import builtins",
        "exec('import socket')",
        "eval('1')",
        "import asyncio\nf = asyncio.open_connection",
        "import asyncio\nf = asyncio.create_subprocess_exec",
        "def later(loop):\n    return loop.create_connection(None, 'host', 80)",
        "def hidden():\n    import socket",
        "from . import neighbour",
        "import multiprocessing",
    ],
)
@asynchronous
async def test_external_access_has_to_be_declared(tmp_path: Path, line: str) -> None:
    async with workbench(tmp_path) as bench:
        with pytest.raises(SkillRefused) as refused:
            await bench.load("bad", line + RUN)

        assert refused.value.code == "undeclared_external"
        assert "(line " in refused.value.message


@asynchronous
async def test_declared_or_harmless_use_is_accepted(tmp_path: Path) -> None:
    async with workbench(tmp_path) as bench:
        await bench.load("declared", "import socket, subprocess\nexternal = True" + RUN)
        await bench.load("harmless", "import os, json, urllib.parse, http, asyncio\nx = getattr(os, 'name')" + RUN)

        assert [info.external for info in await bench.skills.list_skills()] == [True, False]


@pytest.mark.parametrize(
    ("file", "code"),
    [
        ("../outside.py", "path_traversal"),
        ("sub/../../outside.py", "path_traversal"),
        ("sub/../inside.py", "path_traversal"),
        ("/etc/passwd.py", "path_traversal"),
        ("", "path_traversal"),
        (".", "path_traversal"),
        ("a\0b.py", "path_traversal"),
        ("..\\outside.py", "path_traversal"),
        ("link.py", "path_traversal"),
        ("folder/outside.py", "path_traversal"),
        ("loop.py", "path_traversal"),
        ("nothing.py", "file_not_found"),
        ("directory.py", "file_not_found"),
        ("x" * 300 + ".py", "bad_name"),
        ("y" * 60 + "/" + "z" * 300 + "/a.py", "file_not_found"),
        ("notes.txt", "bad_name"),
        ("two words.py", "bad_name"),
        ("1st.py", "bad_name"),
        ("kebab-case.py", "bad_name"),
        ("ünï.py", "bad_name"),
    ],
)
@asynchronous
async def test_an_invalid_file_path_is_refused(tmp_path: Path, file: str, code: str) -> None:
    outside = tmp_path / "outside.py"
    outside.write_text(ECHO)
    directory = tmp_path / "skills"
    async with workbench(directory) as bench:
        bench.write("inside", ECHO)
        (directory / "link.py").symlink_to(outside)
        (directory / "folder").symlink_to(tmp_path)
        (directory / "loop.py").symlink_to(directory / "loop.py")
        (directory / "directory.py").mkdir()
        with pytest.raises(SkillRefused) as refused:
            await bench.skills.load(file)

        assert refused.value.code == code
        assert isinstance(refused.value, DefinitionError)


@asynchronous
async def test_a_file_that_is_too_large_or_no_text_is_refused(tmp_path: Path) -> None:
    async with workbench(tmp_path) as bench:
        bench.write("large", ECHO + "#" * MAX_FILE_BYTES)
        (tmp_path / "latin.py").write_bytes(ECHO.encode() + b"# caf\xe9\n")
        for file, code in (("large.py", "too_large"), ("latin.py", "compilation_error")):
            with pytest.raises(SkillRefused) as refused:
                await bench.skills.load(file)
            assert refused.value.code == code


@asynchronous
async def test_names_of_core_skills_and_of_other_tools_are_taken(tmp_path: Path) -> None:
    async with workbench(tmp_path, core=["web_search"]) as bench:
        bench.hub.tool(nothing, name="skill:taken")
        for name in ("web_search", "taken"):
            with pytest.raises(SkillRefused) as refused:
                await bench.load(name, ECHO)
            assert refused.value.code == "name_conflicts_with_core"
        with pytest.raises(SkillRefused) as refused:
            await bench.skills.create("web_search")
        assert refused.value.code == "name_conflicts_with_core"


def nothing() -> None:
    """Does nothing."""


@asynchronous
async def test_core_and_unknown_skills_cannot_be_changed(tmp_path: Path) -> None:
    async with workbench(tmp_path, core=["shell"]) as bench:
        for change in (bench.skills.unload, bench.skills.reload, bench.skills.rollback):
            with pytest.raises(SkillRefused) as refused:
                await change("shell")
            assert refused.value.code == "cannot_unload_core"
            with pytest.raises(UnknownCapability) as unknown:
                await change("nobody")
            assert isinstance(unknown.value, SkillRefused)
            assert unknown.value.code == "not_found"
            assert unknown.value.message == "There is no dynamic skill nobody."


@asynchronous
async def test_a_misspelt_skill_gets_a_suggestion(tmp_path: Path) -> None:
    async with workbench(tmp_path) as bench:
        await bench.load("word_count", ECHO)
        with pytest.raises(UnknownCapability) as unknown:
            await bench.skills.unload("wordcount")
        assert unknown.value.message == "There is no dynamic skill wordcount; did you mean 'word_count'?"


@asynchronous
async def test_a_skill_that_is_not_loaded_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("input_schema = 1\n" + ECHO)
    async with workbench(tmp_path, autoload=True) as bench:
        await bench.load("echo", ECHO)
        await bench.skills.unload("echo")
        for name, expected in (
            ("echo", "The skill echo is not loaded; load its file echo.py."),
            ("broken", "broken.py was not loaded: "),
            ("broken.py", "broken.py was not loaded: "),
        ):
            with pytest.raises(UnknownCapability) as unknown:
                await bench.skills.reload(name)
            assert unknown.value.message.startswith(expected)
            assert unknown.value.message.count(".py") == 1


@asynchronous
async def test_the_same_version_is_not_loaded_twice_but_can_be_reloaded(tmp_path: Path) -> None:
    async with workbench(tmp_path) as bench:
        await bench.load("echo", "version = '1'\n" + ECHO)
        with pytest.raises(SkillRefused) as refused:
            await bench.skills.load("echo.py")
        assert refused.value.code == "same_version"
        assert refused.value.message == (
            "The skill echo is loaded already, in version 1; give it another, or reload it."
        )

        await bench.skills.reload("echo")
        await bench.load("echo", "version = '2'\n" + ECHO)

        (info,) = await bench.skills.list_skills()
        assert info.version == "2"


@asynchronous
async def test_a_skill_without_a_version_is_not_loaded_twice_either(tmp_path: Path) -> None:
    async with workbench(tmp_path) as bench:
        await bench.load("echo", ECHO)
        with pytest.raises(SkillRefused) as refused:
            await bench.skills.load("echo.py")

    assert refused.value.message == "The skill echo is loaded already, without a version; give it one, or reload it."


@asynchronous
async def test_one_name_in_two_folders_is_refused(tmp_path: Path) -> None:
    async with workbench(tmp_path) as bench:
        await bench.load("one/echo", ECHO)
        with pytest.raises(SkillRefused) as refused:
            await bench.load("two/echo", ECHO)

        assert refused.value.code == "name_taken"
        assert await bench.text("echo", input="still here") == "still here"


@asynchronous
async def test_an_import_that_takes_too_long_is_refused(tmp_path: Path) -> None:
    async with workbench(tmp_path, limits=SkillLimits(start_ms=500)) as bench:
        with pytest.raises(SkillRefused) as refused:
            await bench.load("slow", "while True: pass" + RUN)

        assert refused.value.code == "import_failed"
        assert "not imported within 0.5 s" in refused.value.message


@asynchronous
async def test_a_template_of_a_skill_is_created_once_and_works(tmp_path: Path) -> None:
    async with workbench(tmp_path / "skills") as bench:
        path = await bench.skills.create("greet")
        for name, code in (("greet", "already_exists"), ("../greet", "bad_name")):
            with pytest.raises(SkillRefused) as refused:
                await bench.skills.create(name)
            assert refused.value.code == code

        await bench.skills.load(path.name)

        assert await bench.text("greet", input="hello") == "hello"


@pytest.mark.parametrize("name", ["Echo", "e_cho", "ech0", "EcH0_"])
@asynchronous
async def test_a_name_that_looks_like_that_of_another_skill_is_refused(tmp_path: Path, name: str) -> None:
    async with workbench(tmp_path, core=["shell"]) as bench:
        await bench.load("echo", ECHO)
        with pytest.raises(SkillRefused) as refused:
            await bench.load(name, ECHO)
        assert refused.value.code == "name_taken"
        assert refused.value.message == f"The name {name} looks like that of the skill echo; rename {name}.py."
        with pytest.raises(SkillRefused, match="looks like that of the skill shell"):
            await bench.load("she11", ECHO)
        await bench.skills.unload("echo")
        await bench.load(name, ECHO)


@asynchronous
async def test_a_discovered_file_does_not_replace_an_unloaded_skill(tmp_path: Path) -> None:
    store, directory = f"sqlite:///{tmp_path}/store.db", tmp_path / "skills"
    async with workbench(directory, store=store) as bench:
        await bench.load("one/echo", ECHO)
        await bench.skills.unload("echo")
        bench.write("two/echo", ECHO)
    async with workbench(directory, store=store) as bench:
        assert bench.skills.rows == []
        assert [alert.partition(": ")[0] for alert in bench.alerts] == ["The skill two/echo.py is refused (name_taken)"]
        await bench.skills.load("two/echo.py")
        assert await bench.text("echo", input="hi") == "hi"
