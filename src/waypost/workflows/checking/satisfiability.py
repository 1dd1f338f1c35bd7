"""Whether guards can hold at all; reported only where it is certain that they cannot.

Guards are turned into the ways in which all of them could hold. A way is a list of facts that would have to be true
together; a fact is an atom and whether it holds. Guards can hold if one of the ways does not contradict itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from waypost.config.findings import KeyPath
from waypost.config.models import Capability, Workflow
from waypost.errors import DefinitionError
from waypost.kinds import GuardModel
from waypost.workflows.checking.places import Report
from waypost.workflows.expressions import ORDERED, Compare, Literal, compile_expression, render
from waypost.workflows.guards.kind import Fact, Has, TooManyWays, kind_of, ways_of, ways_together
from waypost.workflows.scope import Path, Scope

_MIRRORED: Final = {"==": "==", "<": ">", "<=": ">=", ">": "<", ">=": "<=", "contains": "in", "in": "contains"}
_OPPOSITE: Final = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_TYPES: Final = frozenset({"number", "text", "list", "other"})
_TRUE: Final = Literal.of(True)
_NOTHING: Final = Scope({}, {}, {})


class Claim(NamedTuple):
    """What is said about the value at a path."""

    op: str
    value: Literal
    holds: bool


def contradict(facts: Sequence[Fact]) -> bool:
    """Whether the facts cannot all be so."""
    said = set(facts)
    if any(Fact(atom, not holds) in said for atom, holds in facts):
        return True
    if _possessions_contradict(facts):
        return True
    claims: dict[Path, list[Claim]] = {}
    for fact in facts:
        found = _to_claim(fact)
        if isinstance(found, bool):
            if not found:
                return True
        elif found is not None:
            claims.setdefault(found[0], []).append(found[1])
    return any(_is_impossible(about) for about in claims.values())


def _possessions_contradict(facts: Iterable[Fact]) -> bool:
    given = [(fact.atom, fact.holds) for fact in facts if isinstance(fact.atom, Has)]
    return any(
        one_holds and not other_holds and one[:2] == other[:2] and one.at_least >= other.at_least
        for one, one_holds in given
        for other, other_holds in given
    )


def _to_claim(fact: Fact) -> tuple[Path, Claim] | bool | None:
    """What a fact says about a path, or whether it is so anyway; None when nothing is known."""
    atom, holds = fact
    match atom:
        case Literal():
            return (atom.value is True) == holds
        case Path():
            return atom, Claim("==", _TRUE, holds)
        case Compare(op, Path() as path, Literal() as value):
            return path, Claim(op, value, holds)
        case Compare(op, Literal() as value, Path() as path) if op in _MIRRORED:
            return path, Claim(_MIRRORED[op], value, holds)
        case Compare(_, Literal(), Literal()):
            return _evaluate(render(atom), _NOTHING) in (holds, None)
        case Compare(op, left, right) if left == right and op in ("==", "<", ">"):
            return None if op == "==" and holds else (op != "==") != holds
    return None


def _evaluate(comparison: str, scope: Scope) -> bool | None:
    """Whether a comparison holds; None where it got too long to be read again."""
    try:
        return compile_expression(comparison).holds(scope)
    except DefinitionError:
        return None


def _fits(value: Any, claims: Iterable[Claim]) -> bool:
    """Whether a value may be as all claims say."""
    scope = Scope({"v": value}, {}, {})
    return all(
        _evaluate(f"$.context.v {claim.op} {claim.value.text}", scope) in (claim.holds, None) for claim in claims
    )


def _is_impossible(claims: list[Claim]) -> bool:
    candidates = _candidates(claims)
    if candidates is not None:
        return not any(_fits(value, claims) for value in candidates)
    kinds = _TYPES
    for claim in claims:
        if claim.holds:
            kinds &= _allowed_types(claim)
    if not kinds:
        return True
    if kinds == {"number"}:
        return _has_no_value([claim for claim in claims if _is_number(claim.value.value)], claims)
    if kinds == {"text"}:
        texts = [claim for claim in claims if isinstance(claim.value.value, str)]
        return _has_no_value(texts, claims) or _has_two_beginnings(claims)
    return False


def _candidates(claims: Iterable[Claim]) -> list[Any] | None:
    """The values that are left to a path, where they can be counted."""
    for claim in claims:
        if claim.op == "==" and claim.holds:
            return [claim.value.value]
        if claim.op == "in" and claim.holds and isinstance(claim.value.value, list):
            return claim.value.value
    return None


def _allowed_types(claim: Claim) -> frozenset[str]:
    """What kind of value a claim allows."""
    value = claim.value.value
    if claim.op in ORDERED:
        return frozenset({"number"} if _is_number(value) else {"text"} if isinstance(value, str) else ())
    if claim.op == "matches":
        return frozenset({"text"})
    if claim.op in ("starts_with", "in"):
        return frozenset({"text"} if isinstance(value, str) else ())
    return frozenset({"text", "list"} if isinstance(value, str) else {"list"})


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _has_no_value(bounds: list[Claim], claims: list[Claim]) -> bool:
    """Whether no value lies between the bounds; all of them are of the kind that the value is."""
    lowest: tuple[Any, bool] | None = None
    highest: tuple[Any, bool] | None = None
    for claim in bounds:
        if claim.op not in ORDERED:
            continue
        op = claim.op if claim.holds else _OPPOSITE[claim.op]
        limit, strict = claim.value.value, op in ("<", ">")
        if op in (">", ">="):
            if lowest is None or (limit, strict) > lowest:
                lowest = (limit, strict)
        elif highest is None or (limit, not strict) < (highest[0], not highest[1]):
            highest = (limit, strict)
    if lowest is None or highest is None or lowest[0] < highest[0]:
        return False
    if lowest[0] > highest[0] or lowest[1] or highest[1]:
        return True
    return not _fits(lowest[0], claims)


def _has_two_beginnings(claims: Iterable[Claim]) -> bool:
    """Whether a text would have to begin in two ways."""
    heads = [claim.value.value for claim in claims if claim.op == "starts_with" and claim.holds]
    return any(not one.startswith(other) and not other.startswith(one) for one in heads for other in heads)


_ADVICE = "correct it, or remove what it is for"


def can_hold(guards: list[GuardModel]) -> bool:
    """Whether guards may hold together; false only where it is certain that they never do."""
    try:
        return not all(contradict(way) for way in ways_together(ways_of(guard, True) for guard in guards))
    except TooManyWays:
        return True


def check_satisfiability(workflow: Workflow, resolved: Workflow, path: KeyPath, report: Report) -> None:
    """Report guards that can never hold."""
    for state, model in workflow.states.items():
        for name, transition in model.transitions.items():
            where = (*path, "states", state, "transitions", name)
            is_reported = _check_list(transition.guards, where, report)
            for index, branch in enumerate(transition.branches):
                _check_one(branch.when, (*where, "branches", index, "when"), report)
            if not is_reported and not can_hold(resolved.states[state].transitions[name].guards):
                sentence = f"its guards and those of the capability can never hold together; {_ADVICE}"
                report.add((*where, "executor"), sentence, "WF055")


def check_capability_guards(capabilities: Mapping[str, Capability], report: Report) -> None:
    """Report guards of `capabilities` that can never hold."""
    for name, entry in capabilities.items():
        _check_list(entry.guards, ("capabilities", name), report)


def _check_list(guards: list[GuardModel], path: KeyPath, report: Report) -> bool:
    """Whether something was said about a list of guards."""
    each = [_check_one(guard, (*path, "guards", index), report) for index, guard in enumerate(guards)]
    if any(each):
        return True
    if can_hold(guards):
        return False
    report.add((*path, "guards"), f"these guards can never hold together; {_ADVICE}", "WF055")
    return True


def _check_one(guard: GuardModel, path: KeyPath, report: Report) -> bool:
    if can_hold([guard]):
        return False
    where = (*path, *kind_of(guard).expressions[:1])
    report.add(where, f"this guard can never hold; {_ADVICE}", "WF055")
    return True
