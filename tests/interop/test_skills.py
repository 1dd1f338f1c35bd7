"""Folders of skills, read and verified by clients of other projects."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from typing import Any

import mcp_types as types
import pytest
import yaml
from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from fastmcp.skills import SkillsClientExtension
from mcp import MCPError

from tests.interop.processes import ROOT, command, served

pytestmark = pytest.mark.anyio

FRONT_MATTER = re.compile(r"---\n(.*?)\n---\n", re.DOTALL)
UNKNOWN = "skill://unknown/SKILL.md"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served("conformance_server") as found:
        yield found


@pytest.fixture(params=["http", "stdio"])
def transport(request: pytest.FixtureRequest, url: str) -> str | StdioTransport:
    if request.param == "http":
        return url
    program, *arguments = command("conformance_server", "stdio")
    return StdioTransport(program, arguments, cwd=str(ROOT), keep_alive=False)


def data(contents: types.TextResourceContents | types.BlobResourceContents) -> bytes:
    if isinstance(contents, types.BlobResourceContents):
        return base64.b64decode(contents.blob)
    return contents.text.encode()


async def test_a_host_with_the_extension_lists_and_verifies_every_skill(transport: str | StdioTransport) -> None:
    async with Client(transport, mode="auto", extensions=[SkillsClientExtension()]) as client:
        skills = await client.list_skills()
        assert [skill.frontmatter.name for skill in skills] == ["archive", "spread-sheets"]
        for skill in skills:
            assert await client.get_skill(skill.uri) == skill
            assert isinstance(skill.resources, list)
            for file in skill.resources:
                (contents,) = await client.read_resource(file.uri)
                held = data(contents)
                assert (f"sha256:{hashlib.sha256(held).hexdigest()}", len(held)) == (file.digest, file.size)
            (main,) = await client.read_resource(skill.uri)
            found = FRONT_MATTER.match(data(main).decode())
            assert found is not None
            assert yaml.safe_load(found[1]) == skill.frontmatter.root
        with pytest.raises(MCPError) as caught:
            await client.get_skill(UNKNOWN)
        assert caught.value.error.code == types.INVALID_PARAMS


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_client_without_the_extension_reads_the_same_skills_as_resources(url: str, mode: Any) -> None:
    async with Client(url, mode=mode) as client:
        listed = {str(one.uri): one for one in await client.list_resources() if str(one.uri).startswith("skill:")}
        assert list(listed) == ["skill://archive/SKILL.md", "skill://office/spread-sheets/SKILL.md"]
        archive = listed["skill://archive/SKILL.md"]
        assert (archive.name, archive.mime_type) == ("archive", "text/markdown")
        (contents,) = await client.read_resource("skill://archive/references/FORMATS.md")
        assert data(contents) == b"# Formats\n\nOnly zip.\n"
