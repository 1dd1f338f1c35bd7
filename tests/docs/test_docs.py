"""The pages document everything that exists and nothing else, and their examples come from files that run."""

from __future__ import annotations

import argparse
import ast
import inspect
import io
import re
import tokenize
import tomllib
from pathlib import Path
from typing import Final

import msgspec
import pytest

import waypost
from tests.docs.pages import DOCS, EXAMPLE_FILES, PAGES, ROOT, WORKER_FILES, Block, blocks, name
from waypost import errors, hooks
from waypost.capabilities.capability import ResourceOptions, ToolOptions
from waypost.capabilities.schemas.forms import TYPES
from waypost.cli.main import COMMANDS as NAMES
from waypost.cli.main import build_parser
from waypost.testing import TestClient
from waypost.upstreams.jsonrpc import JsonRpcClient

SOURCE: Final = ROOT / "src" / "waypost"
COMMANDS: Final = next(
    action.choices
    for action in build_parser(*NAMES)._actions
    if isinstance(action, argparse._SubParsersAction)  # argparse has no public way to walk its commands
)
ERRORS: Final = {
    found.__name__: found
    for found in vars(errors).values()
    if isinstance(found, type) and issubclass(found, errors.WaypostError)
}
CODE_SPAN: Final = re.compile(r"`([^`\n]+)`")
HEADING: Final = re.compile(r"^#+ (.+)$", re.MULTILINE)
LINK: Final = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
FENCED: Final = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def page(file: str) -> str:
    return (DOCS / file).read_text()


def words_in_code(text: str) -> set[str]:
    """Every identifier in a code span or a fenced block."""
    code = [*FENCED.findall(text), *CODE_SPAN.findall(FENCED.sub("", text))]
    return {word for part in code for word in re.findall(r"\w+", part)}


def is_shown_by(text: str, block: str) -> bool:
    """Whether a block is a run of whole lines of a file."""
    return f"\n{block}" in f"\n{text}"


EVERYWHERE: Final = set[str]().union(*(words_in_code(path.read_text()) for path in PAGES))


@pytest.mark.parametrize("block", blocks("python", "yaml", "js"), ids=lambda block: block.place)
def test_a_code_block_is_a_run_of_lines_of_an_example_file(block: Block) -> None:
    assert any(is_shown_by(path.read_text(), block.text) for path in (*EXAMPLE_FILES, *WORKER_FILES)), block.text


def test_a_block_that_differs_in_one_character_is_noticed() -> None:
    block = blocks("python")[0].text
    assert not any(is_shown_by(path.read_text(), block.replace("a + b", "a + c")) for path in EXAMPLE_FILES)
    assert not any(is_shown_by(path.read_text(), block[1:]) for path in EXAMPLE_FILES)


def test_every_block_names_its_language_or_is_plain_text() -> None:
    known = {"python", "yaml", "js", "json", "sh", "console", ""}
    found = {match for path in PAGES for match in re.findall(r"^```(\w+)", path.read_text(), re.MULTILINE)}
    assert found <= known


@pytest.mark.parametrize("block", blocks("json"), ids=lambda block: block.place)
def test_a_json_block_is_json(block: Block) -> None:
    msgspec.json.decode(block.text)


@pytest.mark.parametrize("path", EXAMPLE_FILES, ids=name)
def test_an_example_file_is_shown_or_linked_in_some_page(path: Path) -> None:
    parts = {"base.yaml", "tools.py", "admin.py", "prompts.yaml"}
    if path.parent.name in ("configuration", "team") and path.name in parts:
        return
    assert any(is_shown_by(path.read_text(), block.text) for block in blocks("python", "yaml"))


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_relative_links_resolve(path: Path) -> None:
    broken = [target for target in LINK.findall(FENCED.sub("", path.read_text())) if not resolves(path, target)]
    assert broken == []


def resolves(path: Path, target: str) -> bool:
    if target.startswith(("https://", "http://")):
        return True
    file, _, anchor = target.partition("#")
    found = (path.parent / file).resolve() if file else path
    if not anchor or not found.exists():
        return found.exists()
    return anchor in {slug(heading) for heading in HEADING.findall(FENCED.sub("", found.read_text()))}


def slug(heading: str) -> str:
    """The anchor that a heading gets."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_a_broken_link_is_noticed() -> None:
    here = DOCS / "running.md"
    assert resolves(here, "errors.md#unknown-tools-resources-and-prompts")
    assert not resolves(here, "errors.md#what-is-missing")
    assert not resolves(here, "nowhere.md")
    assert not resolves(here, "#nowhere")


MODULE: Final = re.compile(r"`((?:[a-z_]+/)+[a-z_]+\.py)`")
PRIVATE: Final = (
    r"somebody|anybody|nobody|everybody|whoever|told|lets? in|look(?:s|ed|ing)? after|in vain|on whose behalf"
)
PRIVATE_WORDS: Final = re.compile(rf"\b({PRIVATE})\b", re.IGNORECASE)
PRIVATE_PARTS: Final = re.compile(rf"(?:^|_)({PRIVATE.replace(' ', '_')})s?(?=_|$)", re.IGNORECASE)


TEMPLATES: Final = sorted((ROOT / "src" / "waypost" / "console" / "templates").glob("*.html"))


@pytest.mark.parametrize("path", [*PAGES, *sorted((DOCS / "decisions").glob("*.md"))], ids=name)
def test_a_page_uses_plain_words(path: Path) -> None:
    assert PRIVATE_WORDS.findall(FENCED.sub("", path.read_text())) == []


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_a_template_uses_plain_words(path: Path) -> None:
    assert PRIVATE_WORDS.findall(path.read_text()) == []


@pytest.mark.parametrize(
    "path", sorted((ROOT / "src").rglob("*.py")), ids=lambda path: f"{path.parent.name}/{path.name}"
)
def test_a_module_uses_plain_words(path: Path) -> None:
    assert PRIVATE_WORDS.findall(path.read_text()) == []


@pytest.mark.parametrize("directory", sorted(one.name for one in (ROOT / "tests").iterdir() if any(one.glob("*.py"))))
def test_names_in_tests_are_plain_words(directory: str) -> None:
    modules = [path for path in (ROOT / "tests" / directory).rglob("*.py") if "node_modules" not in path.parts]
    tokens = (token for path in modules for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline))
    assert {
        token.string for token in tokens if token.type == tokenize.NAME and PRIVATE_PARTS.search(token.string)
    } == set()


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_a_module_that_a_page_names_exists(path: Path) -> None:
    places = (ROOT, ROOT / "src", ROOT / "src" / "waypost")
    missing = [file for file in MODULE.findall(path.read_text()) if not any((one / file).exists() for one in places)]

    assert [file for file in missing if not file.startswith("path/to/")] == []


def test_the_quick_start_lists_the_extras() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for_ourselves = {"demo", "docs", "dev"}
    listed = set(re.findall(r"^\| `(\w+)` \|", page("quick-start.md").partition("## Extras")[2], re.MULTILINE))
    assert listed == set(project["optional-dependencies"]) - for_ourselves


def sections() -> dict[str, str]:
    """The part of the page about the command line that belongs to each command."""
    parts = re.split(r"^## `waypost ([\w-]+)`$", page("command-line.md"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_the_page_about_the_command_line_has_every_command_and_no_other() -> None:
    assert list(sections()) == list(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_of_a_command_is_documented_and_no_other(command: str) -> None:
    documented = set(re.findall(r"^\| `([^`]+)` \|", sections()[command], re.MULTILINE))
    assert documented == words_of(COMMANDS[command])


def words_of(command: argparse.ArgumentParser) -> set[str]:
    """The options and arguments of a command, and those of its subcommands."""
    found = set[str]()
    for action in command._actions:
        if isinstance(action, argparse._SubParsersAction):
            found |= set(action.choices).union(*map(words_of, action.choices.values()))
        elif action.dest != "help":
            found.add(action.option_strings[0] if action.option_strings else str(action.metavar))
    return found


def test_the_options_of_the_command_itself_are_documented() -> None:
    for action in build_parser()._actions:
        for option in action.option_strings[-1:]:
            assert f"{option}`" in page("command-line.md")


@pytest.mark.parametrize("exported", waypost.__all__)
def test_every_public_name_is_documented(exported: str) -> None:
    if exported == "__version__":
        return
    assert exported in EVERYWHERE


def rows(file: str) -> dict[str, str]:
    """The rows of all tables of a page, by the code that begins them."""
    found = re.findall(r"^\| `([^`]+)`.*$", page(file), re.MULTILINE)
    lines = re.findall(r"^\| `[^`]+`.*$", page(file), re.MULTILINE)
    return dict(zip(found, lines, strict=True))


def test_the_page_about_errors_has_every_error_and_no_other() -> None:
    assert set(rows("errors.md")) == set(ERRORS)


@pytest.mark.parametrize(
    "error", [found for found in ERRORS.values() if issubclass(found, errors.ProtocolError)], ids=lambda e: e.__name__
)
def test_a_protocol_error_is_documented_with_its_code(error: type[errors.ProtocolError]) -> None:
    assert rows("errors.md")[error.__name__].split(" | ")[1] == str(error.code)


OPTIONS = [name for name in inspect.signature(waypost.Hub).parameters if name != "options"]


@pytest.mark.parametrize("parameter", OPTIONS)
def test_every_setting_of_a_hub_is_in_the_table(parameter: str) -> None:
    table = "".join(line for line in page("running.md").splitlines(keepends=True) if line.startswith("| `"))
    assert f"`{parameter}`" in table


@pytest.mark.parametrize("option", ToolOptions.__struct_fields__)
def test_every_option_of_a_tool_is_in_the_table(option: str) -> None:
    first_cells = [
        line.split(" | ")[0] for line in page("tools-and-toolkits.md").splitlines() if line.startswith("| `")
    ]
    assert any(f"`{option}`" in cell for cell in first_cells)


@pytest.mark.parametrize(
    "option", sorted(set(ResourceOptions.__struct_fields__) - {"tags", "aliases", "scopes", "permissions"})
)
def test_every_option_of_a_resource_is_documented(option: str) -> None:
    assert f"`{option}`" in page("resources-and-prompts.md")


@pytest.mark.parametrize("kind", TYPES)
def test_every_type_of_the_data_form_is_documented_with_its_options(kind: str) -> None:
    row = rows("tools-and-toolkits.md")[kind]
    options = set(TYPES[kind][1]) - ({"fields", "values"} if kind == "array" else set())
    assert all(f"`{option}`" in row for option in options)


@pytest.mark.parametrize("hook", hooks.HOOKS)
def test_every_hook_is_documented(hook: str) -> None:
    assert f"`{hook}`" in page("sessions-and-hooks.md")


@pytest.mark.parametrize("kind", [waypost.Context, waypost.Session])
def test_everything_a_handler_can_use_is_documented(kind: type) -> None:
    known = words_in_code(page("tools-and-toolkits.md"))
    assert [member for member in dir(kind) if not member.startswith("_") and member not in known] == []


def test_every_method_of_the_test_client_is_documented() -> None:
    known = words_in_code(page("testing.md"))
    public = [member for member in dir(TestClient) if not member.startswith("_") and member not in dir(JsonRpcClient)]
    assert [member for member in public if member not in known] == []


def packages() -> list[str]:
    """The packages of the page about the architecture, from top to bottom."""
    return list(re.findall(r"^\| `(\w+)` \|", page("architecture.md"), re.MULTILINE))


SHARED = {"runtime.core", "runtime.component", "runtime.feed", "runtime.replicas"}
"""The modules of `runtime` that every component imports; `tests/test_layers.py` defines their place."""


def package_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return module if (module := ".".join(parts[:2])) in SHARED else parts[0]


def imported(path: Path) -> set[str]:
    """The packages that a module imports from, at any level."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "waypost":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("waypost."):
            name = ".".join((node.module or "").split(".")[1:3])
            found.add(name if name in SHARED else name.split(".")[0])
    return found


def test_the_page_about_the_architecture_has_every_package_and_no_other() -> None:
    folders = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    modules = {path.stem for path in SOURCE.glob("*.py")} - {"__init__", "__main__"}
    assert sorted(packages()) == sorted(folders | modules)


def test_packages_import_only_from_packages_below_them_in_the_page() -> None:
    level = {package: number for number, package in enumerate(packages())}
    upward = [
        f"{path.relative_to(SOURCE)} imports {package}"
        for path in SOURCE.rglob("*.py")
        if package_of(path) in level
        for package in imported(path) & set(level)
        if level[package] < level[package_of(path)]
        and {package, package_of(path)} != {"config", "settings"}  # one level
    ]
    assert upward == []


def test_the_files_that_the_page_about_the_architecture_names_exist() -> None:
    named = re.findall(
        r"\b((?:transports|wire|protocol|execution|cli|capabilities)/[\w/]+\.py)", page("architecture.md")
    )
    assert len(named) >= 8
    assert [file for file in named if not (SOURCE / file).exists()] == []


def test_the_files_that_the_steps_for_contributors_name_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    named = re.findall(r"`((?:wire|protocol|execution|capabilities)/\w+\.py)`", text)
    assert len(named) >= 8
    assert [file for file in named if not (SOURCE / file).exists()] == []
