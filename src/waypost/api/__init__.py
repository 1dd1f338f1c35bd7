"""What people and programs use to look after a running hub, over HTTP."""

from waypost.api.api import Api

__all__ = ["Api"]
