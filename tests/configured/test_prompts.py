"""The section `prompts`: lists, rendering, and the sandbox of templates."""

from __future__ import annotations

import asyncio
import textwrap

import pytest

from tests.configured.conftest import ERAS, Folder, run, using
from waypost import ConfigError, RemoteError
from waypost.testing import TestClient
from waypost.wire.versions import LATEST_LEGACY


def with_prompt(folder: Folder, template: str, arguments: str = "[{name: who, required: true}, {name: tone}]") -> None:
    indented = textwrap.indent(template, " " * 6)
    folder.write(
        "waypost.yaml",
        f"prompts:\n  greet:\n    title: Greeting\n    description: Greet somebody\n    arguments: {arguments}\n"
        f"    template: |\n{indented}\n",
    )


def rendered(folder: Folder, version: str = LATEST_LEGACY, **arguments: str) -> str:
    return str(run(folder, lambda client: client.get_prompt("greet", arguments), version).text)


@pytest.mark.parametrize("version", ERAS)
def test_a_prompt_is_listed_with_its_arguments(folder: Folder, version: str) -> None:
    with_prompt(folder, "{{ who }} {{ tone }}", "[{name: who, description: The name, required: true}, {name: tone}]")

    (prompt,) = run(folder, TestClient.list_prompts, version)

    assert (prompt.name, prompt.title, prompt.description) == ("greet", "Greeting", "Greet somebody")
    assert prompt.arguments == [{"name": "who", "description": "The name", "required": True}, {"name": "tone"}]


@pytest.mark.parametrize("version", ERAS)
def test_a_prompt_is_rendered_with_and_without_optional_arguments(folder: Folder, version: str) -> None:
    with_prompt(folder, "Greet {{ who }}{% if tone %}, {{ tone }}{% endif %}.")

    assert rendered(folder, version, who="Ada") == "Greet Ada.\n"
    assert rendered(folder, version, who="Ada", tone="warmly") == "Greet Ada, warmly.\n"


@pytest.mark.parametrize("version", ERAS)
def test_an_argument_that_is_missing_is_refused(folder: Folder, version: str) -> None:
    with_prompt(folder, "Greet {{ who }}.")

    with pytest.raises(RemoteError, match="who") as caught:
        rendered(folder, version, tone="warmly")
    assert caught.value.code == -32602


def test_a_prompt_without_arguments_needs_none(folder: Folder) -> None:
    with_prompt(folder, "Greet everybody.", "[]")

    assert rendered(folder) == "Greet everybody.\n"


@pytest.mark.parametrize(
    "value",
    ["{{7*7}}", "{% for x in range(9) %}x{% endfor %}", "{# gone #}", "<b>&amp;</b>", "${HOME}", "line\n# {{ who }}"],
)
def test_a_value_is_data_and_never_a_template(value: str, folder: Folder) -> None:
    with_prompt(folder, "Greet {{ who }}.")

    assert rendered(folder, who=value) == f"Greet {value}.\n"


@pytest.mark.parametrize(
    "template",
    [
        "{{ who.__class__.__mro__ }}",
        "{{ who.__class__ }}",
        "{{ who['__class__']['__base__'] }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ who | attr('__class__') }}",
        "{{ cycler.__init__.__globals__.os.environ }}",
        "{{ '{0.__class__.__init__}'.format(who) }}",
        "{{ who.format.__globals__ }}",
    ],
)
def test_a_template_cannot_access_attributes_of_its_values(template: str, folder: Folder) -> None:
    with_prompt(folder, template)

    try:
        shown = rendered(folder, who="Ada")
    except (ConfigError, RemoteError):
        return
    assert "class" not in shown
    assert "os" not in shown
    assert shown.strip() == ""


def test_a_template_that_fails_while_rendering_fails_only_the_request(folder: Folder) -> None:
    with_prompt(folder, "{{ 1 / (who | length) }}")

    async def scenario() -> None:
        async with using(folder.hub()) as client:
            with pytest.raises(RemoteError):
                await client.get_prompt("greet", {"who": ""})
            assert (await client.get_prompt("greet", {"who": "Al"})).text == "0.5\n"

    asyncio.run(scenario())
