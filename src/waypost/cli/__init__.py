"""The `waypost` command: one file for each command, named like it."""

from waypost.cli.main import main

__all__ = ["main"]
