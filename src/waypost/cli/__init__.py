"""The `waypost` command: one file for each group of commands."""

from waypost.cli.main import main

__all__ = ["main"]
