"""The process that runs a move: detecting that it has exited."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from waypost.workflows.instance import has_exited, identify_process


def named(pid: int, began: str = "1") -> str:
    """A process of this machine."""
    machine, _, _, token = identify_process().split("|")
    return f"{machine}|{pid}|{began}|{token}"


def test_this_process_has_not_exited() -> None:
    assert not has_exited(identify_process())


def test_two_engines_of_one_process_have_two_names() -> None:
    assert identify_process() != identify_process()


def test_an_ended_process_has_exited() -> None:
    running = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    code = "import os; from waypost.workflows.instance import identify_process; print(identify_process())"
    name = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert has_exited(name)
    running.communicate(b"\n")
    assert has_exited(named(running.pid))


def test_a_zombie_has_exited() -> None:
    ended = subprocess.Popen([sys.executable, "-c", "print(flush=True)"], stdout=subprocess.PIPE)
    assert ended.stdout is not None
    ended.stdout.read()
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    assert has_exited(named(ended.pid))
    ended.wait()
    ended.stdout.close()


def test_another_process_with_the_same_pid_is_not_mistaken_for_it() -> None:
    assert has_exited(named(os.getpid(), "1"))


@pytest.mark.parametrize("holder", ["", "|", "|||", "elsewhere|1|1|x", "nonsense", "|12|3|x"])
def test_an_unknown_holder_is_not_reported_as_exited(holder: str) -> None:
    assert not has_exited(holder)


def test_a_holder_of_this_machine_without_a_pid_is_not_reported_as_exited() -> None:
    machine = identify_process().split("|")[0]
    for rest in ("", "|", "|x|1|t", "|12||t"):
        assert not has_exited(machine + rest)
