"""One small server each, with the same `add` tool: `python -m benchmarks.contenders.NAME --port N [--tools N]`."""
