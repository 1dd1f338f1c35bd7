"""`waypost completion`: what a shell offers after Tab, generated from the declarations of the commands."""

from __future__ import annotations

import argparse
import shlex
from argparse import Namespace
from collections.abc import Iterator
from typing import Final

from waypost.cli.command import Argument, Command, Output


def walk(parser: argparse.ArgumentParser, path: str = "") -> Iterator[tuple[str, list[str]]]:
    """Each command, action and option with known values, as it is typed, and the words that can follow it."""
    words: list[str] = []
    options: list[str] = []
    below: list[tuple[str, argparse.ArgumentParser]] = []
    # argparse has no public way to walk what was declared.
    for action in parser._actions:
        name = next((name for name in action.option_strings if name.startswith("--")), "")
        options += [name] if name else []
        if isinstance(action, argparse._SubParsersAction):
            below += action.choices.items()
        if action.choices is not None and name:
            yield f"{path} {name}", [str(choice) for choice in action.choices]
        elif action.choices is not None:
            words += [str(choice) for choice in action.choices]
    yield path, words + options
    for name, child in below:
        yield from walk(child, f"{path} {name}".strip())


_BASH: Final = """\
# Completion of waypost for bash: eval "$(waypost completion bash)"
_waypost_words() {{
    case "$1" in
{cases}
    esac
}}
_waypost() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} path= word words
    for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        _waypost_words "${{path:+$path }}$word" >/dev/null && [[ $word != -* ]] && path="${{path:+$path }}$word"
    done
    words=$(_waypost_words "$path $before") || words=$(_waypost_words "$path")
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _waypost waypost"""

_ZSH: Final = """\
#compdef waypost
# Completion of waypost for zsh: eval "$(waypost completion zsh)"
_waypost_words() {{
    case "$1" in
{cases}
    esac
}}
_waypost() {{
    local known= word found
    for word in "${{(@)words[2,CURRENT-1]}}"; do
        _waypost_words "${{known:+$known }}$word" >/dev/null && [[ $word != -* ]] && known="${{known:+$known }}$word"
    done
    found=$(_waypost_words "$known ${{words[CURRENT-1]}}") || found=$(_waypost_words "$known")
    compadd -- ${{=found}} || _files
}}
compdef _waypost waypost"""


_FISH: Final = """\
# Completion of waypost for fish: waypost completion fish | source
function __waypost_words
    switch "$argv[1]"
{cases}
    end
end
function __waypost
    set -l path ''
    set -l typed (commandline -opc)
    for word in $typed[2..]
        if not string match -q -- '-*' $word; and __waypost_words (string trim "$path $word") >/dev/null
            set path (string trim "$path $word")
        end
    end
    __waypost_words "$path $typed[-1]"; or __waypost_words "$path"
end
complete -c waypost -a '(__waypost)'"""

_SHELLS: Final = {
    "bash": (_BASH, "        {}) echo {} ;;", "        *) return 1 ;;"),
    "zsh": (_ZSH, "        {}) echo {} ;;", "        *) return 1 ;;"),
    "fish": (_FISH, "        case {}; string split -- ' ' {}", "        case '*'; return 1"),
}
"""For each shell its script, and how it writes one case and all others."""


def run(args: Namespace) -> Output:
    """Print the script."""
    from waypost.cli.main import COMMANDS, build_parser

    script, case, other = _SHELLS[args.shell]
    known = walk(build_parser(*COMMANDS))
    cases = [case.format(shlex.quote(typed), shlex.quote(" ".join(words))) for typed, words in known]
    return Output(text=script.format(cases="\n".join([*cases, other])))


COMMAND: Final = Command(
    run,
    "Print a script that completes commands, options and their values in a shell.",
    "waypost completion bash > ~/.local/share/bash-completion/completions/waypost",
    Argument("shell", choices=_SHELLS, metavar="SHELL", help=", ".join(_SHELLS)),
)
