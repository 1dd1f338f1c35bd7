"""Executable skills: Python files with a `run`, each a tool called `skill:<name>`."""
