"""What `import waypost` promises: these names, and that it stays light."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

import waypost
from waypost import errors
from waypost.version import __version__

EXPORTED = {
    "Audio",
    "Busy",
    "CallError",
    "CapabilityNotSupported",
    "Catalog",
    "ConfigError",
    "Context",
    "DeadlineExceeded",
    "DefinitionError",
    "EmbeddedResource",
    "ExecutorFailed",
    "HeaderMismatch",
    "Hub",
    "Image",
    "InsufficientScope",
    "InvalidAnswer",
    "InvalidArguments",
    "InvalidOutput",
    "InvalidParams",
    "InvalidRequest",
    "InvocationFailed",
    "MethodNotFound",
    "NoAnswer",
    "ParseError",
    "Prompt",
    "ProtocolError",
    "RemoteError",
    "PolicyDenied",
    "CircuitOpen",
    "StoreUnavailable",
    "StoreError",
    "StoreDamaged",
    "StaleVersion",
    "NoHolder",
    "Resource",
    "ResourceLink",
    "Result",
    "SchemaNotAllowed",
    "Session",
    "Text",
    "Tool",
    "ToolError",
    "Toolkit",
    "UnknownCapability",
    "UnknownPrompt",
    "UnknownResource",
    "UnknownTool",
    "UnsupportedVersion",
    "WaypostError",
    "WorkflowRefused",
    "__version__",
    "tool",
}

HEAVY = (
    "aiohttp",
    "argparse",
    "jinja2",
    "jsonschema_rs",
    "pydantic",
    "starlette",
    "urllib.request",
    "uvicorn",
    "watchfiles",
    "waypost.cli",
    "yaml",
)


@pytest.fixture(scope="module")
def loaded() -> set[str]:
    """The modules in a fresh interpreter after `from waypost import Hub`."""
    return modules_after("from waypost import Hub")


def modules_after(statement: str) -> set[str]:
    code = f"import json, sys; {statement}; json.dump(sorted(sys.modules), sys.stdout)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=90)
    return set(json.loads(done.stdout))


def test_exactly_these_names_are_exported() -> None:
    assert set(waypost.__all__) == EXPORTED
    assert len(waypost.__all__) == len(EXPORTED)


def test_every_exported_name_is_there() -> None:
    assert [name for name in waypost.__all__ if not hasattr(waypost, name)] == []


def test_a_name_that_is_not_exported_is_missing() -> None:
    assert not hasattr(waypost, "Hubb")
    assert not hasattr(waypost, "_hub")
    assert set(dir(waypost)) >= EXPORTED


def test_a_module_of_the_package_is_found_without_an_import_of_its_own() -> None:
    assert "waypost.errors" in modules_after("import waypost; waypost.errors.WaypostError")


def test_the_command_line_loads_no_hub_for_its_help() -> None:
    command = [sys.executable, "-X", "importtime", "-m", "waypost", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=90)
    imported = set(re.findall(r"(waypost[\w.]*)$", done.stderr, re.MULTILINE))

    assert "waypost.cli.main" in imported
    assert imported & {"waypost.hub", "waypost.protocol", "waypost.capabilities"} == set()


def test_every_error_is_exported() -> None:
    defined = {name for name, thing in vars(errors).items() if isinstance(thing, type) and issubclass(thing, Exception)}

    assert defined - set(waypost.__all__) == set()


def test_the_version_is_a_release_number() -> None:
    assert waypost.__version__ == __version__
    assert re.fullmatch(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?", waypost.__version__)


@pytest.mark.parametrize("module", HEAVY)
def test_importing_waypost_does_not_import(module: str, loaded: set[str]) -> None:
    assert "waypost.hub" in loaded
    assert module not in loaded
