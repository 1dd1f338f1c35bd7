from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta, Struct

from tests.config.conftest import Folder
from waypost.config.checks import Decoder, build, recognise
from waypost.config.files import Snapshot
from waypost.config.findings import Finding
from waypost.config.nodes import read


def test_several_errors_give_several_findings_in_the_order_of_the_lines(folder: Folder) -> None:
    found = folder.check(
        """\
        version: 2
        sever: {}
        server:
          port: high
          surface: gatway
          pagesize: 3
          page_size: 0
        toolkits:
          - {category: x}
          - 7
        prompts:
          a: {}
          b: {template: 5}
        """
    )
    assert [(each.line, each.key, each.code) for each in found] == [
        (1, "version", "CFG013"),
        (2, "sever", "CFG010"),
        (4, "server.port", "CFG012"),
        (5, "server.surface", "CFG013"),
        (6, "server.pagesize", "CFG010"),
        (7, "server.page_size", "CFG013"),
        (9, "toolkits[0].use", "CFG014"),
        (10, "toolkits[1]", "CFG012"),
        (12, "prompts.a.template", "CFG014"),
        (13, "prompts.b.template", "CFG012"),
    ]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("sever: {}", "the key `sever` is unknown; did you mean `server`?"),
        ("server: {tool_timeout: 1}", "the key `tool_timeout` is unknown; did you mean `toolTimeoutMs`?"),
        ("server: {Port: 1}", "the key `Port` is unknown; did you mean `port`?"),
        ("mcp: {zzz: 1}", "the key `zzz` is unknown; use `toolTimeoutMs`"),
        ("server: {port: x}", "expected an integer, got text"),
        ("server: {port: 1.5}", "expected an integer, got a number"),
        ("server: {port: true}", "expected an integer, got true or false"),
        ("server: {port: }", "expected an integer, got nothing"),
        ("server: {port: [1]}", "expected an integer, got a list"),
        ("server: {port: 65536}", "expected an integer <= 65535"),
        ("server: {port: -1}", "expected an integer >= 0"),
        ("server: {maxSessions: 0}", "expected an integer >= 1"),
        ("server: {name: ''}", "expected text of length >= 1"),
        ("server: {name: 5}", "expected text, got an integer; put the value in quotes"),
        ("server: {allowAnonymousRemote: yes}", "expected true or false, got text; write `true`"),
        ("server: {allowedHosts: x}", 'expected a list, got text; write `["x"]`'),
        ("server: {surface: ful}", "expected `gateway`, `full` or `both`; did you mean `full`?"),
        ("server: {names: x}", "expected `auto`, `canonical` or `portable`"),
        ("server: {maxRunning: 0}", "expected an integer >= 1"),
        ("server: 5", "expected a mapping, got an integer"),
        ("skills: {dynamic: 5}", "expected text or nothing, got an integer"),
        ("skills: {timeoutMs: 0}", "expected an integer >= 1"),
        ("skills: {limits: {memoryBytes: 1024}}", "expected an integer >= 33554432"),
        ("skills: {limits: {cpuSeconds: 0.5}}", "expected an integer, got a number"),
        ("skills: {shell: [ls]}", 'expected a list, got text; write `["ls"]`'),
        ("skills: {shell: [[]]}", "expected a list of length >= 1"),
        ("policies: [{type: rate_limit}]", "the key `name` is missing; add it"),
        (
            "policies: [{name: a, type: rate_limit, callers: [nobody]}]",
            "expected `mcp`, `core`, `dynamic`, `worker`, `workflow` or `console`",
        ),
        ("policies: [{name: a, type: rate_limit, config: []}]", "expected a mapping, got a list"),
        ("policies: {}", "expected a list, got a mapping"),
        ("audit: {sink: syslog}", "expected `store`, `file`, `stderr` or `none`"),
        ("toolkits: x", 'expected a list, got text; write `["x"]`'),
        ("toolkits: [[x]]", "expected text or a mapping, got a list"),
        ("prompts: []", "expected a mapping, got a list"),
        ("prompts: {'': {template: x}}", "expected text of length >= 1"),
        ("[]", "expected a mapping, got a list"),
        ("text", "expected a mapping, got text"),
        ("version: '2'", "expected `1`"),
        ("version: 2", "expected `1`"),
        ("version: 2.5", "expected `1`"),
        (
            "auth: {keys: [{id: ci, hash: abc}]}",
            "expected `sha256:` and the 64 hex digits that `printf %s KEY | sha256sum` gives for the key",
        ),
        (
            "workflows: {w: {initialState: a, states: {a: {transitions: {b: {target: a, "
            "executor: {kind: script, file: x.py, sha256: abc}}}}}}}",
            "expected the 64 hex digits that `sha256sum FILE` gives for the file",
        ),
        (
            "proxy: {expose: [{name: 1a, executor: {kind: noop}}]}",
            "expected letters, digits, `_`, `.` and `-`, a letter first",
        ),
    ],
)
def test_a_finding_has_a_one_line_message(folder: Folder, text: str, sentence: str) -> None:
    assert folder.only(text).message == sentence


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("skills: {core: [shel]}", "`web_browse` or `web_search`; did you mean `shell`?"),
        ("policies: [{name: a, type: rate_limits}]", "or `allow_list`; did you mean `rate_limit`?"),
    ],
)
def test_an_unknown_choice_gets_a_suggestion(folder: Folder, text: str, hint: str) -> None:
    assert folder.only(text).message.endswith(hint)


def test_keys_in_the_config_of_a_rule_are_not_converted(folder: Folder) -> None:
    text = "policies: [{name: a, type: rate_limit, config: {maxCalls: 1, window_seconds: 2}}]\n"
    assert folder.load(text).config.policies[0].config == {"maxCalls": 1, "window_seconds": 2}


def test_an_empty_file_is_all_defaults(folder: Folder) -> None:
    config = folder.load("").config
    assert (config.version, config.server.port, config.server.surface, config.toolkits) == ("1", 8420, "gateway", [])


def test_snake_case_and_camel_case_are_both_accepted(folder: Folder) -> None:
    server = folder.load("server: {page_size: 5, maxSessions: 6}\n").config.server
    assert (server.page_size, server.max_sessions) == (5, 6)


def test_both_spellings_of_one_key_are_reported(folder: Folder) -> None:
    found = folder.only("server:\n  page_size: 5\n  pageSize: 5\n")
    assert (found.code, found.line) == ("CFG011", 3)
    assert "`page_size`" in found.message


def test_names_chosen_by_the_user_are_not_converted(folder: Folder) -> None:
    assert list(folder.load("prompts: {send_email: {template: x}}\n").config.prompts) == ["send_email"]


class Plain(Struct, tag="plain", tag_field="kind", kw_only=True, rename="camel"):
    some_value: int = 0
    anything: Any = None


class Even(Struct, tag="even", tag_field="kind", kw_only=True):
    number: int
    words: Annotated[list[str], Meta(max_length=2)] = []

    def __post_init__(self) -> None:
        if self.number % 2:
            raise ValueError("The number must be even")


class Sample(Struct, kw_only=True):
    items: dict[str, Plain | Even] = {}
    mode: Literal["a"] | int = "a"


def fitted(folder: Folder, text: str) -> tuple[Any, list[Finding]]:
    findings: list[Finding] = []
    root = read(folder.write("sample.yaml", text), Snapshot(), findings)
    assert root is not None
    root = recognise(root, Sample, findings)
    data = Decoder(findings).decode(root, Sample)
    return (None if findings else build(root, data, Sample, findings)), findings


def test_a_tag_chooses_among_several_models(folder: Folder) -> None:
    sample, findings = fitted(
        folder, "items: {a: {kind: plain, some_value: 3, anything: {b: [1]}}, b: {kind: even, number: 2}}"
    )
    assert findings == []
    assert sample == Sample(items={"a": Plain(some_value=3, anything={"b": [1]}), "b": Even(number=2)})


def test_unknown_keys_are_looked_up_in_the_chosen_model(folder: Folder) -> None:
    _, findings = fitted(folder, "items: {a: {kind: plain, number: 3}}")
    assert [found.code for found in findings] == ["CFG010"]


def test_an_unknown_tag_is_reported(folder: Folder) -> None:
    _, findings = fitted(folder, "items:\n  a: {kind: odd}\n")
    assert [(found.code, found.line, found.key) for found in findings] == [("CFG013", 2, "items.a.kind")]
    assert findings[0].message == "the kind `odd` is unknown; use `plain` or `even`"


def test_a_rule_of_a_whole_struct_is_reported_at_its_line(folder: Folder) -> None:
    _, findings = fitted(folder, "mode: 3\nitems:\n  a: {kind: even, number: 3}\n")
    assert [(found.code, found.line, found.key) for found in findings] == [("CFG013", 3, "items.a")]
    assert findings[0].message == "the number must be even"


def test_a_rule_of_a_whole_list_is_reported(folder: Folder) -> None:
    _, findings = fitted(folder, "items: {a: {kind: even, number: 2, words: [a, b, c]}}\n")
    assert [found.code for found in findings] == ["CFG013"]
