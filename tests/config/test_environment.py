import pytest

from tests.config.conftest import Folder


def name(folder: Folder, text: str, **environ: str) -> str:
    return folder.load(f"server: {{name: {text}}}\n", **environ).config.server.name


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("${A}", "one"),
        ("'${A}'", "one"),
        ("x-${A}-${B}", "x-one-two"),
        ("${C:-three}", "three"),
        ("${A:-three}", "one"),
        ("${EMPTY:-three}", "three"),
        ("x${C:-}", "x"),
        ("$${A}", "${A}"),
        ("$$${A}", "$${A}"),
        ("$A", "$A"),
        ("${C:-a:-b}", "a:-b"),
    ],
)
def test_variables_expand_in_values(folder: Folder, text: str, expanded: str) -> None:
    quoted = text if text.startswith("'") else f'"{text}"'
    assert name(folder, quoted, A="one", B="two", EMPTY="") == expanded


def test_keys_are_not_expanded(folder: Folder) -> None:
    config = folder.load("prompts: {'${A}': {template: hi}}\n", A="one").config
    assert list(config.prompts) == ["${A}"]


def test_an_unset_variable_is_the_only_finding_about_its_value(folder: Folder) -> None:
    found = folder.only("server:\n  name: x\n  port: ${PORT}\n")
    assert (found.code, found.line, found.key) == ("CFG020", 3, "server.port")
    assert "`PORT` is not set" in found.message
    assert "${PORT:-default}" in found.message


def test_every_unset_variable_of_a_value_is_reported(folder: Folder) -> None:
    assert [found.code for found in folder.check("server: {name: '${A} ${B}'}\n")] == ["CFG020", "CFG020"]


@pytest.mark.parametrize("text", ["${", "${1A}", "${A", "${A-b}", "${}", "${A:-${B}}"])
def test_a_malformed_reference_is_reported(folder: Folder, text: str) -> None:
    found = folder.check(f'server: {{name: "{text}"}}\n', A="a", B="b")
    assert {each.code for each in found} == {"CFG021"}


def test_a_variable_may_be_a_number_or_a_boolean(folder: Folder) -> None:
    server = folder.load(
        "server:\n  port: ${PORT}\n  allow_anonymous_remote: ${OPEN:-true}\n  pageSize: 1${ZEROS}\n",
        PORT="9000",
        ZEROS="00",
    ).config.server
    assert (server.port, server.allow_anonymous_remote, server.page_size) == (9000, True, 100)


def test_a_quoted_variable_may_be_a_number_because_braces_need_quotes(folder: Folder) -> None:
    assert folder.load("server: {port: '${PORT}'}\n", PORT="9000").config.server.port == 9000
    assert folder.only("server: {port: '9000'}\n").code == "CFG012"
    found = folder.only("server: {port: ${PORT}}\n", PORT="9000")
    assert (found.code, found.message.endswith("put a value with `${` in quotes here")) == ("CFG004", True)


@pytest.mark.parametrize(
    ("value", "code"), [("nine", "CFG012"), ("true", "CFG012"), ("99999", "CFG013"), ("", "CFG012")]
)
def test_a_variable_of_the_wrong_type_is_reported(folder: Folder, value: str, code: str) -> None:
    assert folder.only("server:\n  port: ${PORT}\n", PORT=value).code == code


def test_a_variable_is_text_if_the_setting_is_text(folder: Folder) -> None:
    assert name(folder, "'${A:-8420}'") == "8420"
    assert folder.load("server:\n  name: ${A}\n", A="true").config.server.name == "true"


def test_the_value_of_a_variable_is_not_repeated_in_a_finding(folder: Folder) -> None:
    found = folder.check("server:\n  port: ${A}\n  surface: ${A}\n  names: ${A}\n", A="hunter2")
    assert len(found) == 3
    assert not any("hunter2" in str(each) for each in found)


def test_the_process_environment_is_the_default(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    from waypost.config import check, load

    path = folder.write("waypost.yaml", "server: {name: '${WAYPOST_TEST_NAME}'}")
    monkeypatch.delenv("WAYPOST_TEST_NAME", raising=False)
    assert [found.code for found in check(path)] == ["CFG020"]
    monkeypatch.setenv("WAYPOST_TEST_NAME", "set")
    assert load(path).config.server.name == "set"


def test_a_variable_that_is_set_but_empty_is_named(folder: Folder) -> None:
    found = folder.only("server:\n  name: ${HUB_NAME}\n", HUB_NAME="")
    assert found.code == "CFG012"
    assert found.message == "`HUB_NAME` is set but empty; give it a value, or a default: `${HUB_NAME:-...}`"
