"""`waypost console`: open the console of a running hub in a browser."""

from __future__ import annotations

import webbrowser
from argparse import Namespace
from typing import Final

from waypost.cli.client import DATA, find_running_hub, sign_in_url
from waypost.cli.command import JSON, Argument, Command, Output


def run(args: Namespace) -> Output:
    """Open a link that signs in once; it is printed too, for a browser that does not open."""
    hub = find_running_hub(args)
    url = sign_in_url(hub.url, hub.key)
    if not args.no_browser:
        webbrowser.open(url)
    return Output({"url": url}, url)


COMMAND: Final = Command(
    run,
    "Open the console of a running hub in a browser, signed in.",
    "waypost console",
    Argument("--no-browser", action="store_true", help="print the link only"),
    DATA,
    JSON,
)
