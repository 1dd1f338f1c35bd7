"""The console: pages for people who run a hub, rendered by the hub itself.

`Page`, `View` and `Done` are what a page of a program needs; a component of a hub offers its pages as `pages`.
"""

from waypost.console.console import Console
from waypost.console.page import Done, Page, View

__all__ = ["Console", "Done", "Page", "View"]
