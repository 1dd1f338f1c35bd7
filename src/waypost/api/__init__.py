"""The HTTP API with which operators, the command line and the console manage a running hub."""

from waypost.api.api import Api

__all__ = ["Api"]
