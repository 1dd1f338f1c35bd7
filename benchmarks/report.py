"""What a scenario hands back: rows of numbers, the targets they are held against, and what went wrong."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from typing import Any

SUBJECT = "waypost"
RATES = frozenset({"req/s", "tx/s"})
"""Units where more is better; in all others less is."""


@dataclass(frozen=True)
class Settings:
    """How long and how often to measure."""

    rounds: int = 3
    seconds: float = 1.0
    warmup: float = 0.2
    quick: bool = False


@dataclass
class Row:
    """One number of one contender, a sample for every round."""

    contender: str
    case: str
    unit: str
    samples: list[float] = field(default_factory=list)
    details: dict[str, list[float]] = field(default_factory=dict)

    @property
    def value(self) -> float:
        return median(self.samples)

    def add(self, sample: float, **details: float) -> None:
        self.samples.append(sample)
        for name, value in details.items():
            self.details.setdefault(name, []).append(value)

    def detail(self, name: str) -> float:
        return median(self.details[name])


@dataclass(frozen=True)
class Key:
    """Names a row of a report."""

    contender: str
    case: str


@dataclass(frozen=True)
class Target:
    """A bound on a row, or on the ratio of two rows."""

    label: str
    numerator: Key
    denominator: Key | None = None
    at_least: float | None = None
    at_most: float | None = None


@dataclass(frozen=True)
class Outcome:
    """A target beside what was measured; no samples when one of its rows is missing."""

    target: Target
    samples: list[float]

    @property
    def measured(self) -> float | None:
        return median(self.samples) if self.samples else None

    @property
    def verdict(self) -> str:
        if self.measured is None:
            return "not measured"
        low, high = self.target.at_least, self.target.at_most
        held = (low is None or self.measured >= low) and (high is None or self.measured <= high)
        return "ok" if held else "MISSED"


@dataclass
class Report:
    """The result of one scenario."""

    title: str
    rows: list[Row] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    """Contenders that did not start or did not answer, with the reason."""

    def row(self, contender: str, case: str, unit: str) -> Row:
        """The row of that name, made when it is new."""
        found = self.find(Key(contender, case))
        if found is None:
            found = Row(contender, case, unit)
            self.rows.append(found)
        return found

    def find(self, key: Key) -> Row | None:
        return next((row for row in self.rows if (row.contender, row.case) == (key.contender, key.case)), None)

    def fail(self, contender: str, reason: str) -> None:
        self.failed.setdefault(contender, reason)

    def outcomes(self) -> list[Outcome]:
        return [Outcome(target, self._samples(target)) for target in self.targets]

    def advantage(self, row: Row) -> float | None:
        """How many times better Waypost does than this row in the same case."""
        own = self.find(Key(SUBJECT, row.case))
        if own is None or row.contender == SUBJECT:
            return None
        above, below = (own, row) if row.unit in RATES else (row, own)
        return median(paired(above.samples, below.samples) or [0.0]) or None

    def _samples(self, target: Target) -> list[float]:
        numerator = self.find(target.numerator)
        if numerator is None:
            return []
        if target.denominator is None:
            return numerator.samples
        denominator = self.find(target.denominator)
        return paired(numerator.samples, denominator.samples) if denominator else []

    def as_json(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "rows": [
                {
                    "contender": row.contender,
                    "case": row.case,
                    "unit": row.unit,
                    "median": row.value,
                    "rounds": row.samples,
                    **{name: median(values) for name, values in row.details.items()},
                    "waypost_advantage": self.advantage(row),
                }
                for row in self.rows
            ],
            "targets": [
                {
                    "label": outcome.target.label,
                    "at_least": outcome.target.at_least,
                    "at_most": outcome.target.at_most,
                    "measured": outcome.measured,
                    "rounds": outcome.samples,
                    "verdict": outcome.verdict,
                }
                for outcome in self.outcomes()
            ],
            "notes": self.notes,
            "failed": self.failed,
        }


def paired(above: list[float], below: list[float]) -> list[float]:
    """One ratio a round, so that a disturbance that hits a whole round cancels out."""
    return [a / b for a, b in zip(above, below, strict=False) if b]
