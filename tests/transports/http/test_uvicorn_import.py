from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def run(program: str, directory: Path | None = None) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=directory, capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.strip()


def test_a_server_imports_nothing_of_uvicorns_command_line() -> None:
    program = """
import sys
import waypost.transports.http.server
print([name for name in ("uvicorn.main", "click", "multiprocessing", "watchfiles") if name in sys.modules])
"""
    assert run(program) == "[]"


def test_uvicorns_command_line_is_loaded_when_it_is_called() -> None:
    program = """
import waypost.transports.http.server
import uvicorn
uvicorn.main(["--version"], standalone_mode=False)
from uvicorn.main import main, run
print(uvicorn.main is main, uvicorn.run is run, uvicorn.Server is uvicorn.server.Server)
"""
    assert run(program).splitlines()[-1] == "True True True"


def test_a_uvicorn_that_was_imported_before_is_left_as_it_is() -> None:
    program = """
import uvicorn
before = uvicorn.run, uvicorn.main
import waypost.transports.http.server
print((uvicorn.run, uvicorn.main) == before)
"""
    assert run(program) == "True"


def test_a_uvicorn_that_needs_more_of_its_command_line_gets_all_of_it(tmp_path: Path) -> None:
    package = tmp_path / "uvicorn"
    package.mkdir()
    (package / "__init__.py").write_text("from uvicorn.main import other\n\n\nclass Server:\n    pass\n")
    (package / "main.py").write_text("other = 'the real one'\n")
    program = """
import waypost.transports.http.server as server
print(server.uvicorn.other)
"""
    assert run(program, tmp_path) == "the real one"
