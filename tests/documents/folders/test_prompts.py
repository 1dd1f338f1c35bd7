"""Prompts from Markdown files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.conftest import asynchronous
from tests.documents.folders.library import put, text
from waypost import Hub, RemoteError
from waypost.documents.folders import MAX_PROMPT_BYTES
from waypost.testing import connect

MAIL = """\
---
name: send-mail
title: Send a mail
description: Write a mail.
arguments:
  - {name: to, description: Who gets it, required: true}
  - {name: tone}
---
Write a mail to {{ to }}.{% if tone %} Its tone is {{ tone }}.{% endif %}
"""


@asynchronous
async def test_a_file_is_a_prompt_with_its_arguments(tmp_path: Path) -> None:
    put(tmp_path / "prompts" / "mail" / "send-mail.md", MAIL)
    put(tmp_path / "prompts" / "notes.txt", "no prompt")
    (tmp_path / "waypost.yaml").write_text("skills: {core: [], prompts: [prompts]}\n")
    hub = Hub.from_config(tmp_path / "waypost.yaml")
    async with connect(hub) as client:
        assert await client.list_prompts() == [
            {
                "name": "send-mail",
                "title": "Send a mail",
                "description": "Write a mail.",
                "arguments": [{"name": "to", "description": "Who gets it", "required": True}, {"name": "tone"}],
            }
        ]
        written = await client.get_prompt("send-mail", {"to": "{{ 7 * 7 }}", "tone": "warm"})
        assert written.text == "Write a mail to {{ 7 * 7 }}. Its tone is warm.\n"
        with pytest.raises(RemoteError, match="to: is required"):
            await client.get_prompt("send-mail")
    await hub.stop()


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("Write.", "does not begin with front matter"),
        (text("other"), "has the name `other`, which must be `mail`"),
        (text("mail", "''"), "needs a `description`"),
        (text("mail", more="model: large\n"), "does not fit a prompt: Object contains unknown field `model`"),
        (text("mail", more="arguments: to\n"), "does not fit a prompt: Expected `array`"),
        (text("mail", more="arguments: [{name: to, kind: text}]\n"), "unknown field `kind`"),
        (text("mail", more="arguments: [{name: ''}]\n"), "does not fit a prompt"),
        (text("mail", more="arguments: [{name: to}, {name: to}]\n", body="{{ to }}"), "declared twice"),
        (text("mail", body="{% if %}"), "the template cannot be rendered"),
        (text("mail", body="{% include 'x' %}"), "it loads another template"),
        (text("mail", body="{{ to }}"), "the variable `to` is not among the arguments"),
        (
            text("mail", body="{{ ''.__class__.__mro__ }}"),
            "cannot be rendered: it uses `__mro__`, which prompts cannot",
        ),
        (text("mail", body="{% for i in range(100001) %}x{% endfor %}"), "a range of more than 100,000 numbers"),
        (text("mail", body="x" * MAX_PROMPT_BYTES), "is larger than 256 KiB"),
    ],
)
def test_an_invalid_prompt_file_is_reported_by_name(tmp_path: Path, source: str, said: str) -> None:
    put(tmp_path / "mail.md", source)
    put(tmp_path / "good.md", text("good"))
    hub = Hub("library", "1").add_prompts(tmp_path)
    (problem,) = hub.folders.problems
    assert problem.path == str(tmp_path / "mail.md")
    assert said in problem.message
    assert [row.id for row in hub.expand("prompts")] == ["good"]


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{{ 7 / to | int }}", "division by zero"),
        ("{% for i in range(to | length * 99999) %}x{% endfor %}", "Range too big. The sandbox blocks ranges larger"),
        ("{{ to['__cla' ~ 'ss__'].mro }}", "access to attribute '__class__' of 'str' object is unsafe"),
        ("{{ to.sender.name }}", "'str object' has no attribute 'sender'"),
        ("{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}{{ to }}", "maximum recursion depth exceeded"),
    ],
)
@asynchronous
async def test_a_prompt_that_fails_with_some_arguments_says_why(tmp_path: Path, template: str, said: str) -> None:
    put(tmp_path / "mail.MD", text("mail", more="arguments: [{name: to}]\n", body=template))
    hub = Hub("library", "1").add_prompts(tmp_path)
    assert hub.folders.problems == ()
    async with connect(hub) as client:
        with pytest.raises(RemoteError) as caught:
            await client.get_prompt("mail", {"to": "ada"})
    assert caught.value.code == -32000
    assert str(caught.value).startswith(f"The prompt mail cannot be rendered: {said}")
    await hub.stop()


def test_a_prompt_whose_name_is_taken_is_left_out(tmp_path: Path) -> None:
    for path in ("a/mail.md", "b/mail.md", "hello.md"):
        put(tmp_path / path, text(Path(path).stem))
    (tmp_path / "linked.md").symlink_to("hello.md")
    hub = Hub("library", "1")
    hub.prompt(lambda: "Hello.", name="hello")
    hub.add_prompts(tmp_path)
    assert [str(one) for one in hub.folders.problems] == [
        f"{tmp_path}/b/mail.md is a second prompt `mail`; rename one.",
        f"{tmp_path}/hello.md is a second prompt `hello`; rename one.",
        f"{tmp_path}/linked.md is a link and not served; put the file itself there.",
    ]
    assert [row.id for row in hub.expand("prompts")] == ["hello", "mail"]
