"""A hub with something of everything, served in a process of its own for tests of the whole API."""

from __future__ import annotations

from tests.api.conftest import operated_hub
from tests.api.releasing import RELEASE
from waypost.config.models import Workflow
from waypost.kinds import convert

hub = operated_hub(rules=())
hub.workflow("release", convert(RELEASE, Workflow))
