from pathlib import Path

import pytest

from tests.config.conftest import Folder
from waypost.config import loader


def test_maps_merge_deeply_and_the_including_file_wins(folder: Folder) -> None:
    folder.write("base.yaml", "server: {name: base, port: 1}\nprompts: {a: {template: base, title: A}}\n")
    config = folder.load(
        "include: [base.yaml]\nserver: {name: top}\nprompts: {a: {template: top}, b: {template: b}}\n"
    ).config
    assert (config.server.name, config.server.port) == ("top", 1)
    assert (config.prompts["a"].template, config.prompts["a"].title) == ("top", "A")
    assert set(config.prompts) == {"a", "b"}


def test_the_two_spellings_of_a_key_are_merged_as_one(folder: Folder) -> None:
    folder.write("base.yaml", "server: {tool_timeout_ms: 1}\n")
    assert folder.load("include: [base.yaml]\nserver: {toolTimeoutMs: 2}\n").config.tool_timeout == 0.002


def test_lists_concatenate_included_files_first_in_sorted_order(folder: Folder) -> None:
    for name in "cab":
        folder.write(f"team/{name}.yaml", f"toolkits: [team.{name}]\n")
    config = folder.load("include: [team/*.yaml]\ntoolkits: [top]\n").config
    assert config.toolkits == ["team.a", "team.b", "team.c", "top"]


def test_a_later_include_wins_over_an_earlier_one(folder: Folder) -> None:
    folder.write("a.yaml", "server: {name: a}\n")
    folder.write("b.yaml", "server: {name: b}\n")
    assert folder.load("include: [b.yaml, a.yaml]\n").config.server.name == "a"


def test_patterns_and_toolkits_are_relative_to_their_file(folder: Folder) -> None:
    folder.write("team/one/tools.py", "")
    folder.write("team/one/more.yaml", "toolkits: [./tools.py, {use: 'tools.py:Kit'}]\n")
    folder.write("team/base.yaml", "include: [one/*.yaml]\n")
    loaded = folder.load("include: [team/base.yaml]\n")
    tools = str(folder.path / "team/one/tools.py")
    first, second = loaded.config.toolkits
    assert first == tools
    assert not isinstance(second, str)
    assert second.use == f"{tools}:Kit"


def test_relative_paths_work_from_any_working_directory(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    from waypost.config import load

    folder.write("conf/tools.py", "")
    folder.write("conf/more.yaml", "toolkits: [./tools.py]\n")
    folder.write("conf/waypost.yaml", "include: ['*re.yaml']\n")
    monkeypatch.chdir(folder.path / "conf")
    assert load(Path("waypost.yaml"), {}).config.toolkits == [str(folder.path / "conf/tools.py")]
    monkeypatch.chdir(folder.path)
    loaded = load(Path("conf/waypost.yaml"), {})
    assert loaded.config.toolkits == [str(folder.path / "conf/tools.py")]
    assert loaded.files == (folder.path / "conf/waypost.yaml", folder.path / "conf/more.yaml")


def test_a_folder_whose_name_looks_like_a_pattern_is_used_literally(folder: Folder) -> None:
    from waypost.config import load

    folder.write("[ab]/more.yaml", "server: {name: found}\n")
    path = folder.write("[ab]/waypost.yaml", "include: ['m*.yaml']\n")
    loaded = load(path, {})
    assert loaded.config.server.name == "found"
    assert folder.path / "[ab]" in loaded.watched


def test_variables_expand_in_include_patterns(folder: Folder) -> None:
    folder.write("prod.yaml", "server: {name: prod}\n")
    assert folder.load("include: ['${STAGE}.yaml']\n", STAGE="prod").config.server.name == "prod"


def test_a_double_star_reaches_into_folders(folder: Folder) -> None:
    folder.write("team/a/b/deep.yaml", "server: {name: deep}\n")
    assert folder.load("include: ['team/**/*.yaml']\n").config.server.name == "deep"


def test_findings_in_an_included_file_name_that_file_and_line(folder: Folder) -> None:
    path = folder.write("team/a.yaml", "\nserver:\n  prot: 1\n  port: x\n")
    found = folder.check("include: [team/a.yaml]\n")
    assert [(each.file, each.line, each.code) for each in found] == [
        (str(path), 3, "CFG010"),
        (str(path), 4, "CFG012"),
    ]


def test_a_toolkit_after_a_merge_is_reported_at_its_own_line(folder: Folder) -> None:
    folder.write("a.yaml", "toolkits: [one, two]\n")
    found = folder.only("include: [a.yaml]\ntoolkits:\n  - 'not good'\n")
    assert (Path(found.file).name, found.line, found.key) == ("waypost.yaml", 3, "toolkits[2]")


def test_a_cycle_is_an_error_where_it_closes(folder: Folder) -> None:
    folder.write("b.yaml", "server: {}\ninclude: [waypost.yaml]\n")
    found = folder.only("include: [b.yaml]\n")
    assert (found.code, Path(found.file).name, found.line) == ("CFG032", "b.yaml", 2)


def test_a_file_that_includes_itself_is_an_error(folder: Folder) -> None:
    assert folder.only("include: ['*.yaml']\n").code == "CFG032"


def test_a_file_included_twice_is_merged_once(folder: Folder) -> None:
    folder.write("shared.yaml", "toolkits: [shared]\n")
    folder.write("a.yaml", "include: [shared.yaml]\n")
    folder.write("b.yaml", "include: [shared.yaml]\n")
    assert folder.load("include: [a.yaml, b.yaml, ./shared.yaml]\n").config.toolkits == ["shared"]


def test_a_missing_file_is_an_error_and_a_pattern_without_matches_a_warning(folder: Folder) -> None:
    found = folder.check("include:\n  - missing.yaml\n  - none/*.yaml\n")
    assert [(each.code, each.line, each.severity) for each in found] == [
        ("CFG030", 2, "error"),
        ("CFG031", 3, "warning"),
    ]
    assert folder.load("include: [none/*.yaml]\n").warnings[0].code == "CFG031"


def test_a_pattern_skips_folders(folder: Folder) -> None:
    folder.write("team/sub/x.txt", "")
    folder.write("team/a.yaml", "server: {name: a}\n")
    assert folder.load("include: ['team/*']\n").config.server.name == "a"


def test_an_included_directory_is_an_error(folder: Folder) -> None:
    folder.write("team/a.yaml", "")
    assert folder.only("include: [team]\n").code == "CFG002"


@pytest.mark.parametrize("text", ["include: x.yaml", "include: [1]", "include: {a: b}", "include: ['']"])
def test_an_include_that_is_not_a_list_of_names_is_reported(folder: Folder, text: str) -> None:
    assert folder.only(text).code in {"CFG012", "CFG013"}


def test_a_wrong_include_in_an_included_file_is_reported_there(folder: Folder) -> None:
    folder.write("a.yaml", "include: 5\n")
    found = folder.only("include: [a.yaml]\n")
    assert (found.code, Path(found.file).name) == ("CFG012", "a.yaml")


@pytest.mark.parametrize("name", [r"a\0b", r"a\0b/*.yaml", r"*\0"])
def test_an_impossible_name_matches_nothing(folder: Folder, name: str) -> None:
    assert folder.only(f'include: ["{name}"]\n').code in {"CFG030", "CFG031"}


def test_an_empty_section_does_not_hide_an_included_one(folder: Folder) -> None:
    folder.write("a.yaml", "server: {name: a}\ntoolkits: [x]\n")
    config = folder.load("include: [a.yaml]\nserver:\ntoolkits:\n").config
    assert (config.server.name, config.toolkits) == ("a", ["x"])


def test_the_depth_of_includes_is_limited(folder: Folder) -> None:
    for number in range(loader.MAX_NESTING + 2):
        folder.write(f"n{number}.yaml", f"include: [n{number + 1}.yaml]\n")
    assert folder.only("include: [n0.yaml]\n").code == "CFG033"


def test_the_number_of_includes_is_limited(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "MAX_FILES", 3)
    for number in range(5):
        folder.write(f"many/{number}.yaml", "")
    assert folder.only("include: ['many/*.yaml']\n").code == "CFG033"


def test_files_toolkits_and_the_folders_of_patterns_are_watched(folder: Folder) -> None:
    tools = folder.write("kits/tools.py", "")
    first = folder.write("team/a.yaml", "")
    (folder.path / "later").mkdir()
    loaded = folder.load(
        "include: ['team/*.yaml', 'later/*.yaml', 'never/*/x.yaml']\ntoolkits: ['./kits/tools.py:Kit', os]\n"
    )
    assert loaded.watched == (
        loaded.path,
        first,
        tools,
        folder.path / "team",
        folder.path / "later",
        folder.path,
    )


def test_policies_are_concatenated_and_directories_are_relative_to_their_file(folder: Folder) -> None:
    rule = "policies: [{name: %s, type: allow_list, config: {allow: []}}]\n"
    folder.write("team/a.yaml", rule % "a" + "skills: {dynamic: made}\n")
    config = folder.load("include: [team/a.yaml]\n" + rule % "b").config
    assert [policy.name for policy in config.policies] == ["a", "b"]
    assert config.skills is not None
    assert config.skills.dynamic == str(folder.path / "team" / "made")
