"""Random definitions of workflows, valid in form but arbitrary in content."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

NAMES = st.sampled_from(["a", "b", "c", "d", "$e", "odd name", "ü:\"<&>'"])
SLOTS = st.sampled_from(["x", "y", "z"])
PATHS = st.builds(lambda root, slot: f"$.{root}.{slot}", st.sampled_from(["context", "input", "arguments"]), SLOTS)
LITERALS = st.sampled_from(["true", "false", "null", "0", "1", "2.5", "-3", '"a"', '"ab"', "[1, 2]", '["a", "b"]'])
OPERATORS = st.sampled_from(["==", "!=", "<", "<=", ">", ">=", "contains", "in", "starts_with"])
COMPARISONS = st.one_of(
    st.builds(lambda path, op, value: f"{path} {op} {value}", PATHS, OPERATORS, LITERALS),
    st.builds(lambda value, op, path: f"{value} {op} {path}", LITERALS, OPERATORS, PATHS),
    st.builds(lambda path, op, other: f"{path} {op} {other}", PATHS, OPERATORS, PATHS),
    st.builds(lambda path: f'{path} matches "^a"', PATHS),
    PATHS,
    LITERALS.filter(lambda text: not text.startswith("[")),
)
EXPRESSIONS = st.recursive(
    COMPARISONS,
    lambda inner: st.one_of(
        inner.map(lambda text: f"!({text})"),
        st.builds(lambda left, op, right: f"({left}) {op} ({right})", inner, st.sampled_from(["&&", "||"]), inner),
    ),
    max_leaves=6,
)
GUARDS: st.SearchStrategy[dict[str, Any]] = st.recursive(
    st.one_of(
        EXPRESSIONS.map(lambda text: {"kind": "expr", "expr": text}),
        st.sampled_from(["lead", "human"]).map(lambda role: {"kind": "role", "role": role}),
        st.sampled_from(["p", "q"]).map(lambda name: {"kind": "permission", "permission": name}),
        st.integers(1, 3).map(lambda count: {"kind": "evidence", "requires": ["cli", {"kind": "k", "count": count}]}),
    ),
    lambda inner: st.one_of(
        inner.map(lambda guard: {"kind": "not", "guard": guard}),
        st.builds(
            lambda kind, guards: {"kind": kind, "guards": guards},
            st.sampled_from(["all_of", "any_of"]),
            st.lists(inner, max_size=3),
        ),
    ),
    max_leaves=4,
)
VALUES = st.one_of(PATHS, st.just("$.output.n"), st.just("$.nowhere"), st.integers(), st.text(max_size=5))
EXECUTORS: st.SearchStrategy[dict[str, Any]] = st.recursive(
    st.one_of(
        st.just({"kind": "noop"}),
        st.just({"kind": "human"}),
        st.builds(lambda value: {"kind": "cli", "command": "true", "args": [value]}, VALUES),
        st.builds(lambda name: {"kind": "cli", "connection": name}, NAMES),
        st.builds(
            lambda name, value: {"kind": "mcp", "connection": name, "tool": "t", "map": {"v": value}}, NAMES, VALUES
        ),
        st.builds(
            lambda name: {"kind": "capability", "capability": name}, st.sampled_from(["one", "two", "three", "x"])
        ),
        st.builds(lambda name: {"kind": "workflow", "definitionId": name}, st.sampled_from(["w0", "w1", "w2"])),
    ),
    lambda inner: st.one_of(
        st.builds(lambda steps: {"kind": "pipeline", "steps": steps}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(
            lambda branches, count: {"kind": "parallel", "branches": branches, "join": {"atLeast": count}},
            st.lists(inner, max_size=3),
            st.integers(1, 4),
        ),
        st.builds(lambda path, do: {"kind": "parallel", "forEach": path, "do": do}, PATHS, inner),
    ),
    max_leaves=4,
)
SCHEMAS = st.sampled_from(
    [
        {"type": "object"},
        {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]},
        {"properties": {"y": {"default": 1}}, "required": ["y"], "additionalProperties": False},
        {"type": "nonsense"},
    ]
)
RELIABILITY = st.builds(lambda executor: {"fallback": {"executors": [executor]}}, EXECUTORS)


def some(required: dict[str, Any], optional: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(required, optional=optional)


OUTPUTS = st.dictionaries(SLOTS, VALUES, max_size=2)
TRANSITIONS = some(
    {"target": NAMES},
    {
        "actor": st.sampled_from(["agent", "human", "system", "deterministic"]),
        "tags": st.just(["dangerous"]),
        "guards": st.lists(GUARDS, max_size=2),
        "executor": EXECUTORS,
        "output": OUTPUTS,
        "prefill": OUTPUTS,
        "inputSchema": SCHEMAS,
        "reliability": RELIABILITY,
        "branches": st.lists(some({"when": GUARDS, "target": NAMES}, {}), max_size=2),
    },
)
STATES = some(
    {},
    {
        "terminal": st.booleans(),
        "outcome": st.just("failed"),
        "onEnter": some({"executor": EXECUTORS}, {"output": OUTPUTS}),
        "transitions": st.dictionaries(NAMES, TRANSITIONS, max_size=3),
    },
)
STEP_REFERENCES = st.one_of(st.integers(0, 5), st.sampled_from(["a", "b", "c", "web"]))
STEPS = some(
    {},
    {
        "name": st.sampled_from(["a", "b", "c"]),
        "skill": st.just("web"),
        "capability": st.sampled_from(["tool", "workflow:w1"]),
        "input_from": STEP_REFERENCES,
        "routes": st.lists(
            some({"branch": st.sampled_from(["on_error", "default"]), "goto": STEP_REFERENCES}, {}), max_size=2
        ),
        "on_circuit_open": st.sampled_from(["halt", "skip", "fallback"]),
    },
)
WORKFLOWS = some(
    {},
    {
        "title": st.text(max_size=10),
        "initialState": NAMES,
        "initialContext": st.dictionaries(SLOTS, st.integers(), max_size=2),
        "inputSchema": SCHEMAS,
        "timeoutMs": st.just(1500),
        "onTimeout": some({"target": NAMES}, {}),
        "states": st.dictionaries(NAMES, STATES, max_size=4),
        "steps": st.lists(STEPS, max_size=4),
    },
)
CAPABILITIES = some(
    {},
    {
        "executor": EXECUTORS,
        "wraps": st.sampled_from(["one", "two", "three", "four"]),
        "guards": st.lists(GUARDS, max_size=1),
        "tags": st.just(["dangerous"]),
        "inputSchema": SCHEMAS,
        "reliability": RELIABILITY,
    },
)
CONFIGURATIONS = some(
    {},
    {
        "connections": st.just({"a": {"kind": "cli", "command": "true"}, "b": {"kind": "mcp", "url": "http://x"}}),
        "capabilities": st.dictionaries(st.sampled_from(["one", "two", "three"]), CAPABILITIES, max_size=3),
        "workflows": st.dictionaries(st.sampled_from(["w0", "w1", "w2"]), WORKFLOWS, max_size=3),
    },
)
