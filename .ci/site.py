"""What the docs site adds to the pages: files outside docs/, links to them, and the tables of the HTTP API."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from waypost.api.api import ROUTES, build_document

ROOT: Final = Path(__file__).parents[1]
OUTSIDE: Final = (
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CHANGELOG.md",
    "LICENSE",
    ".pre-commit-config.yaml",
    ".github/*/*.yml",
    "benchmarks/README.md",
    "examples/*/*",
)
"""What pages link to; on the site it is in the folder `project`."""
LINK: Final = re.compile(r"(\]\()([^)\s#:]+)(#[^)\s]*)?(\))")
BOOSTS: Final = {"decisions/": 0.2, "project/": 0.2, "troubleshooting": 3.0}
"""How much a match counts in the search of the site, by the beginning of a page's path."""
API: Final = "<!-- The tables of the HTTP API stand here on the site. -->\n"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files outside docs/."""
    for pattern in OUTSIDE:
        for path in ROOT.glob(pattern):
            if path.is_file() and path.suffix != ".pyc":
                uri = f"project/{path.relative_to(ROOT).as_posix()}"
                files.append(File.generated(config, uri, content=path.read_bytes()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links between the repository and its docs to where their targets are on the site."""
    for beginning, boost in BOOSTS.items():
        if page.file.src_uri.startswith(beginning):
            page.meta["search"] = {"boost": boost}
    here = PurePosixPath(page.file.src_uri)
    place = here.relative_to("project") if here.is_relative_to("project") else PurePosixPath("docs") / here

    def rewrite(found: re.Match[str]) -> str:
        target = normpath(f"{place.parent}/{found[2]}")
        if target == "README.md":
            target = "docs/index.md"
        there = target.removeprefix("docs/") if target.startswith("docs/") else f"project/{target}"
        if files.get_file_from_path(there) is None:
            return found[0]
        return f"{found[1]}{relpath(there, here.parent.as_posix())}{found[3] or ''}{found[4]}"

    if API in markdown:
        markdown = markdown.replace(API, "\n".join(api_tables()))
    return "".join(
        part if part.startswith("```") else LINK.sub(rewrite, part)
        for part in re.split(r"(^```.*?^```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    )


def api_tables() -> list[str]:
    """The operations of the OpenAPI document, by tag."""
    document = build_document(ROUTES)
    by_tag: dict[str, list[tuple[str, str, dict[str, Any]]]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            by_tag.setdefault(operation["tags"][0], []).append((method.upper(), path, operation))
    lines = []
    for tag, operations in sorted(by_tag.items()):
        lines += [f"## {tag}", ""]
        for method, path, operation in operations:
            lines += [f"### `{method} {path}`", "", f"{operation['summary']}.", ""]
            if rows := [*parameters(operation), *fields(operation, document["components"]["schemas"])]:
                lines += ["| name | in | type |", "|---|---|---|", *rows, ""]
            status, answer = next(iter(operation["responses"].items()))
            schema = next(iter(answer.get("content", {}).values()), {}).get("schema")
            lines += [f"Answers `{status}`{f' with {type_of(schema)}' if schema else ''}.", ""]
    return lines


def parameters(operation: dict[str, Any]) -> list[str]:
    """The rows of the parameters in path and query."""
    return [
        f"| `{given['name']}` | {given['in']} | {type_of(given['schema'])} |"
        for given in operation.get("parameters", [])
    ]


def fields(operation: dict[str, Any], schemas: dict[str, Any]) -> list[str]:
    """The rows of the members of the body."""
    content = operation.get("requestBody", {}).get("content", {})
    schema = content.get("application/json", {}).get("schema", {})
    schema = schemas.get(schema.get("$ref", "").rpartition("/")[2], schema)
    return [
        f"| `{name}`{'' if name in schema.get('required', []) else ' (optional)'} | body | {type_of(member)} |"
        for name, member in schema.get("properties", {}).items()
    ]


def type_of(schema: dict[str, Any]) -> str:
    """A schema in a word."""
    if "$ref" in schema:
        return f"`{schema['$ref'].rpartition('/')[2]}`"
    if options := schema.get("anyOf"):
        return " or ".join(type_of(option) for option in options)
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {type_of(schema.get('items', {}))}"
    return str(schema.get("type", "any"))
