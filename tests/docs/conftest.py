"""Registers the exercises of the pages about operations, folders of skills, workflows and ports."""

from tests.docs import exercises_folders, exercises_operating, exercises_ports, exercises_workflows

__all__ = ["exercises_folders", "exercises_operating", "exercises_ports", "exercises_workflows"]
