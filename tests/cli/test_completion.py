"""`waypost completion`: a shell offers the commands, options and values that exist."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from waypost.cli import main
from waypost.cli.main import COMMANDS

BASH = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_waypost
printf '%s\\n' "${COMPREPLY[@]}"
"""
ZSH = """
compdef() { :; }
compadd() { shift; print -l -- "$@"; }
source "$1"; shift
words=("$@"); CURRENT=$#
_waypost
"""
CASES = [
    (["se"], {"serve", "search"}),
    (["keys", ""], {"create", "list", "revoke", "--help"}),
    (["keys", "create", "--r"], {"--role"}),
    (["serve", "--log-level", ""], {"debug", "info", "warning", "error"}),
    (["serve", "waypost.yaml", "--st"], {"--stdio"}),
    (["install", "co"], {"codex"}),
    (["skills", "docs", ""], {"list", "show", "add", "remove", "--help"}),
    (["completion", ""], {"bash", "zsh", "fish", "--help"}),
]


@pytest.fixture
def script(request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """The script for a shell, in a file."""
    assert main(["completion", request.param]) == 0
    file = tmp_path / "completion"
    file.write_text(capsys.readouterr().out)
    return file


def printed(*command: str | Path) -> set[str]:
    run = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=90, cwd="/")
    assert run.stderr == ""
    return set(run.stdout.splitlines())


@pytest.mark.parametrize("script", ["bash"], indirect=True)
def test_bash_completes_the_next_word(script: Path) -> None:
    for words, offered in CASES:
        assert printed("bash", "-c", BASH, "bash", script, "waypost", *words) == offered, words
    assert printed("bash", "-c", BASH, "bash", script, "waypost", "") >= set(COMMANDS)


@pytest.mark.skipif(shutil.which("zsh") is None, reason="there is no zsh here")
@pytest.mark.parametrize("script", ["zsh"], indirect=True)
def test_zsh_completes_the_next_word(script: Path) -> None:
    for words, offered in CASES:
        found = printed("zsh", "-f", "-c", ZSH, "zsh", script, "waypost", *words)
        assert {word for word in found if word.startswith(words[-1])} == offered, words


@pytest.mark.skipif(shutil.which("fish") is None, reason="there is no fish here")
@pytest.mark.parametrize("script", ["fish"], indirect=True)
def test_fish_completes_the_next_word(script: Path) -> None:
    for words, offered in CASES:
        found = printed("fish", "--no-config", "-c", f"source {script}; complete -C 'waypost {' '.join(words)}'")
        assert offered - {"--help"} <= found, words


@pytest.mark.parametrize("script", ["bash", "zsh", "fish"], indirect=True)
def test_every_command_is_in_the_script(script: Path) -> None:
    text = script.read_text()
    assert [command for command in COMMANDS if command not in text] == []
