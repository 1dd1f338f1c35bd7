"""Loading the embeddings has no effect on the rest of the process."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

import pytest

from waypost.search.embeddings import is_installed

pytestmark = pytest.mark.skipif(not is_installed(), reason="needs waypost[embeddings]")

PROGRAM: Final = """\
import os, sys, threading
from waypost.config.files import Snapshot
from waypost.search.embeddings import Model

snapshot, seen = Snapshot(), []


class Finder:
    # Asked for every module that is imported, so also while numpy is.
    def find_spec(self, name, path=None, target=None):
        if name.startswith("numpy"):
            seen.append(snapshot.is_current())


sys.meta_path.insert(0, Finder())
Model.load()
assert len(seen) > 10, seen
threads = len(os.listdir("/proc/self/task")) if sys.platform == "linux" else 1
print(all(seen), threads, os.environ == snapshot.environ)
"""


def load_model(**env: str) -> list[str]:
    """Whether the environment was unchanged during the load, the number of threads, and whether it is so afterwards."""
    inherited = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    ran = subprocess.run([sys.executable, "-c", PROGRAM], env={**inherited, **env}, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.split()


def test_the_environment_is_unchanged_while_numpy_is_loaded_with_one_thread() -> None:
    assert load_model() == ["True", "1", "True"]


def test_the_number_of_threads_of_the_operator_is_kept() -> None:
    assert load_model(OPENBLAS_NUM_THREADS="2") == ["True", str(min(2, os.cpu_count() or 1)), "True"]
