"""`waypost workers`: the workers that are connected to a running hub."""

from __future__ import annotations

import re

import pytest

from tests.cli.operated import Captured, printed_json
from tests.cli.published import mailer as mailer
from waypost.cli import main

pytestmark = pytest.mark.usefixtures("mailer")


def test_workers_are_listed_with_their_functions(capsys: Captured) -> None:
    assert main(["workers", "list"]) == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head.split() == ["NAME", "NAMESPACE", "RUNTIME", "VERSION", "REPLICA", "SINCE", "FUNCTIONS"]
    assert row.split()[:3] == ["mailer", "default", "python"]
    assert re.search(r"  \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d  ", row)
    assert row.endswith("mail::write")
    assert main(["workers", "list", "--json"]) == 0
    (listed,) = printed_json(capsys)
    assert (listed["name"], listed["functions"]) == ("mailer", ["mail::write"])
