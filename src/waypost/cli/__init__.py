"""The `waypost` command: one file for each command, named like it."""

try:
    from waypost.cli.main import main
except KeyboardInterrupt:  # Ctrl-C before the first line of the command ends it as it does later, without a traceback
    raise SystemExit(130) from None

__all__ = ["main"]
