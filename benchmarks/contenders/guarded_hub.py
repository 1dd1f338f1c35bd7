"""The same hub with everything on guard: rules, slots, breakers, and every call on record in the store."""

from __future__ import annotations

from benchmarks.contenders.waypost_hub import main
from waypost.policy import Rule

RULES = (
    Rule(name="plenty", type="rate_limit", config={"max_calls": 10**9}),
    Rule(name="no shell", type="mcp_restriction", config={"tool_pattern": "shell"}, priority=10),
    Rule(name="nights", type="time_window", config={"deny_start_hour": 0, "deny_end_hour": 0}),
)

if __name__ == "__main__":
    main(policies=RULES, audit="store", breakers=True, max_running=64)
