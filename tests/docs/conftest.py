"""Registers the exercise of the page about looking after a hub."""

from tests.docs import exercises_operating

__all__ = ["exercises_operating"]
