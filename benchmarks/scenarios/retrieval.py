"""How often the right tool is found, beside FastMCP's ranker; `benchmarks/retrieval.py` prints the same as a table."""

from __future__ import annotations

from benchmarks.report import Key, Report, Settings, Target
from benchmarks.retrieval import VARIABLE, NoData, folder, measure, rankers, sets


def run(_settings: Settings) -> Report:
    """Each question is asked once: another round would find the same."""
    report = Report("Finding the right tool for a sentence (R@5)")
    data = folder()
    try:
        found = sets(data)
    except NoData as error:
        report.notes.append(str(error))
        data, found = None, sets(None)
    if data is None:
        report.notes.append(f"only our own small set; {VARIABLE} may name a folder of others")
    for each in found:
        case = f"{each.name}: {len(each.questions)} queries, {len(each.tools)} tools"
        for name, ranker in rankers(each.tools).items():
            measured = measure(ranker, each.questions)
            report.row(name, case, "R@5").add(measured.recall, p50_ms=measured.p50_ms)
            report.row(name, f"{case}, nDCG@10", "").add(measured.ndcg)
            report.row(name, f"{case}, MRR@10", "").add(measured.mrr)
        for better in ("hybrid words", "hybrid"):
            for other in ("fastmcp bm25", "weighted"):
                label = f"{better} / {other}, {each.name}"
                report.targets.append(Target(label, Key(better, case), Key(other, case), at_least=1.0))
    return report
