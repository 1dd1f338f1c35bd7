"""Files with several errors each, and the exact output of `check`.

`broken/NAME.txt` has the lines for `broken/NAME.yaml`; `UPDATE_BROKEN=1` rewrites them for review.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from waypost.cli.command import format_findings
from waypost.config.findings import CODES
from waypost.runtime.assembly import check

BROKEN = Path(__file__).parent / "broken"
NAMES = sorted(path.stem for path in BROKEN.glob("*.yaml"))


@pytest.mark.parametrize("name", NAMES)
def test_the_output_of_check_is_exact(
    name: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A short path, because messages cut long ones.
    folder = Path(tempfile.mkdtemp(prefix="w", dir="/tmp"))
    request.addfinalizer(lambda: shutil.rmtree(folder))
    shutil.copytree(BROKEN, folder, dirs_exist_ok=True)
    monkeypatch.chdir(folder)
    for variable in ("PORT", "NAME", "WIKI_TOKEN", "WAYPOST_DATA", "DATABASE_URL"):
        monkeypatch.delenv(variable, raising=False)
    said = format_findings(check(Path(f"{name}.yaml"))).replace(str(folder), "HERE") + "\n"
    expected = BROKEN / f"{name}.txt"
    if os.environ.get("UPDATE_BROKEN"):
        expected.write_text(said)
    assert said == expected.read_text()


def test_there_are_sixty_files_and_each_that_can_be_parsed_has_several_errors() -> None:
    assert len(NAMES) >= 60
    for name in NAMES:
        lines = (BROKEN / f"{name}.txt").read_text().splitlines()
        codes = {line.rpartition("[")[2].rstrip("]") for line in lines}
        assert codes <= CODES.keys()
        assert len(lines) > 1 or codes & {"CFG004", "CFG005", "CFG009", "CFG012"}, name
