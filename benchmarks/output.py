"""Reports as text for a terminal."""

from __future__ import annotations

from benchmarks.report import Outcome, Report, Row

DETAILS = {
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "busy_ms": "on a core ms",
    "busy_p99_ms": "on a core p99 ms",
    "server_cpu": "server cpu",
    "per_cpu_second": "per cpu second",
    "bytes": "bytes",
}


def render(report: Report) -> str:
    lines = [f"\n{report.title}", "-" * len(report.title)]
    for case in dict.fromkeys(row.case for row in report.rows):
        lines += _case(report, case)
    lines += [f"  note: {note}" for note in report.notes]
    lines += [f"  FAILED {name}: {reason}" for name, reason in report.failed.items()]
    outcomes = report.outcomes()
    if outcomes:
        lines.append("  targets")
        lines += [target(outcome) for outcome in outcomes]
    return "\n".join(lines)


def _case(report: Report, case: str) -> list[str]:
    rows = [row for row in report.rows if row.case == case and row.samples]
    return [f"  {case}", *(_row(report, row) for row in rows)]


def _row(report: Report, row: Row) -> str:
    advantage = report.advantage(row)
    cells = [
        f"    {row.contender:<13}{_number(row.value):>10} {row.unit:<6}{_range(row):<17}",
        f"{f'waypost {advantage:.2f}x' if advantage else '':<17}",
        *(f"{label} {_number(row.detail(name))}" for name, label in DETAILS.items() if name in row.details),
    ]
    return "  ".join(cells).rstrip()


def _range(row: Row) -> str:
    return f"({_number(min(row.samples))}-{_number(max(row.samples))})" if len(row.samples) > 1 else ""


def target(outcome: Outcome) -> str:
    target = outcome.target
    bound = f">= {target.at_least:g}" if target.at_least is not None else f"<= {target.at_most:g}"
    if outcome.measured is None:
        return f"    {target.label:<58}{'-':>9}            {bound:<9} {outcome.verdict}"
    spread = f"({min(outcome.samples):.3g}-{max(outcome.samples):.3g})"
    return f"    {target.label:<58}{outcome.measured:>9.3g} {spread:<14} {bound:<9} {outcome.verdict}"


def _number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
