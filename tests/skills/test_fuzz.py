"""Any file is a skill or is refused."""

from __future__ import annotations

import ast
import asyncio
import tempfile
import warnings
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from waypost.capabilities.registry import Registry
from waypost.settings import SkillLimits
from waypost.skills import files
from waypost.skills.files import PERMISSIONS, SkillRefused, check_source
from waypost.skills.skill_set import SkillSet
from waypost.stores.sqlite import SqliteDatabase
from waypost.stores.store import Store

NAMES = st.sampled_from(
    ["run", "description", "version", "permissions", "routes", "external", "input_schema", "os", "getattr", "x"]
)
LITERALS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(
            st.text(max_size=8) | NAMES | st.sampled_from(["type", "properties", "$ref"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)
LINES = st.one_of(
    st.builds("{} = {!r}".format, NAMES, LITERALS),
    st.builds("{}: object = {!r}".format, NAMES, LITERALS),
    st.builds("def {}(args): return {}".format, NAMES, NAMES),
    st.builds("async def {}(args, ctx): return {!r}".format, NAMES, LITERALS),
    st.builds("class {}: pass".format, NAMES),
    st.builds("from {} import {} as {}".format, NAMES, NAMES, NAMES),
    st.builds("import {}".format, NAMES),
    st.builds("{}({}, {!r})".format, NAMES, NAMES, LITERALS),
    st.builds("{}.{}.{} = {}".format, NAMES, NAMES, NAMES, NAMES),
    st.builds("del {}".format, NAMES),
    st.builds("raise {}".format, NAMES),
    st.text(max_size=20),
)
SOURCES = st.lists(LINES, max_size=8).map("\n".join)


def look_at(data: bytes) -> None:
    """Examine the content of a file without running it."""
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        (directory / "fuzz.py").write_bytes(data)
        try:
            declaration = check_source(files.read_source(directory, "fuzz.py"), PERMISSIONS)
        except SkillRefused as refused:
            assert refused.message.endswith(".")
            assert "\n" not in refused.code
        else:
            assert declaration.arguments.schema["type"] == "object"


@given(st.binary(max_size=400))
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_a_skill_or_refused(data: bytes) -> None:
    look_at(data)


@given(SOURCES)
@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_source_is_a_skill_or_refused(source: str) -> None:
    look_at(source.encode(errors="surrogatepass"))


@given(st.integers(1, 60_000), st.sampled_from(["(", "[", "{", "-", "not ", "lambda: ", "x.", "f(", "a if b else "]))
@settings(max_examples=60, deadline=None)
def test_any_depth_is_a_skill_or_refused(depth: int, bracket: str) -> None:
    look_at(f"def run(args): pass\npermissions = {bracket * depth}".encode())
    look_at(f"def run(args): pass\nx = {bracket * depth}0".encode())


@given(st.text(max_size=60))
@settings(max_examples=300, deadline=None)
def test_any_name_of_a_file_is_read_or_refused(name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        try:
            files.read_source(Path(folder), name)
        except SkillRefused:
            return
        raise AssertionError("there is no file")


@given(st.lists(SOURCES, min_size=1, max_size=3))
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_skill_set_loads_or_refuses_any_source_and_continues(sources: list[str]) -> None:
    async def play(directory: Path) -> None:
        store = Store(SqliteDatabase())
        registry = Registry()
        skills = SkillSet(registry, store, directory, limits=SkillLimits(processes=2, start_ms=5_000))
        try:
            (directory / "sound.py").write_text("def run(args): return 1")
            await skills.start()
            for number, source in enumerate(sources):
                (directory / "fuzz.py").write_bytes(source.encode(errors="surrogatepass"))
                before = len(registry.tools)
                try:
                    await (skills.load("fuzz.py") if before == 1 else skills.reload("fuzz"))
                except SkillRefused:
                    assert len(registry.tools) == before, number
            assert "skill:sound" in registry.tools
        finally:
            await skills.close()
            await store.close()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(play(Path(folder)))


def test_the_fuzzed_sources_are_often_sources() -> None:
    found = 0

    @given(SOURCES)
    @settings(max_examples=100, deadline=None, database=None)
    def count(source: str) -> None:
        nonlocal found
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ast.parse(source)
        except (SyntaxError, ValueError):
            return
        found += 1

    count()
    assert found > 10
