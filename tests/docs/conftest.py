"""Registers the exercises of the pages about looking after a hub and about workflows."""

from tests.docs import exercises_operating, exercises_workflows

__all__ = ["exercises_operating", "exercises_workflows"]
