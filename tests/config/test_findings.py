from waypost.config.findings import CODES, WARNINGS, Finding, dotted, finding, listed, quoted


def test_a_finding_is_one_line_with_file_line_key_message_and_code() -> None:
    found = Finding("waypost.yaml", 3, "server.port", "expected an integer, got text", "CFG012")
    assert str(found) == "waypost.yaml:3: server.port: expected an integer, got text [CFG012]"


def test_a_finding_about_a_whole_file_has_no_key() -> None:
    assert str(Finding("a.yaml", 1, "", "the file does not exist", "CFG001")) == (
        "a.yaml:1: the file does not exist [CFG001]"
    )


def test_a_finding_is_one_short_line_with_any_names() -> None:
    found = finding("a\nb.yaml", 1, ("x\ny", 0), f"the key {quoted(chr(27) + 'z' * 200)}", "CFG010")
    assert "\n" not in str(found)
    assert "\x1b" not in str(found)
    assert len(str(found)) < 200


def test_key_paths_have_dots_and_brackets() -> None:
    assert dotted(("toolkits", 0, "use")) == "toolkits[0].use"
    assert dotted(()) == ""


def test_names_are_listed_with_commas_and_or() -> None:
    assert listed(["a"]) == "`a`"
    assert listed(["a", "b", "c"]) == "`a`, `b` or `c`"


def test_the_code_decides_the_severity() -> None:
    assert finding("f", 1, (), "m", "CFG031").severity == "warning"
    assert finding("f", 1, (), "m", "CFG030").severity == "error"
    assert set(CODES) >= WARNINGS
