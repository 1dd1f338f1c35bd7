"""The kinds of targets that commands are tested on."""

from __future__ import annotations

import pytest

LOCAL = ["server.py:hub", "deskpackage.server:hub"]
TARGETS = [*LOCAL, "waypost.yaml", "URL", "URL/mcp"]


def on(*names: str) -> pytest.MarkDecorator:
    """Run a test on these targets; the fixture `target` turns names into targets."""
    return pytest.mark.parametrize("target", names, indirect=True)
