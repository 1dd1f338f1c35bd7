"""Registers the exercises of the pages about looking after a hub, about folders of skills and about workflows."""

from tests.docs import exercises_folders, exercises_operating, exercises_workflows

__all__ = ["exercises_folders", "exercises_operating", "exercises_workflows"]
