"""Coverage-guided fuzzing of one parser with atheris: `python -m tests.fuzz.guided NAME FOLDER SECONDS`.

Runs until the time is up or an input is found that the parser does not hold for, which is kept in the folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris  # type: ignore[import-not-found,import-untyped,unused-ignore]

with atheris.instrument_imports(include=["waypost"]):
    from tests.fuzz.parsers import PARSERS


def main() -> None:
    """Write the examples and the dictionary of a parser, and fuzz it."""
    name, folder, seconds = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    parser = PARSERS[name]
    seeds = folder / name / "corpus"
    seeds.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(parser.seeds):
        (seeds / f"seed-{number}").write_bytes(seed)
    words = folder / name / "words"
    escaped = ["".join(f"\\x{byte:02x}" for byte in word) for word in parser.words]
    words.write_text("".join(f'"{word}"\n' for word in escaped))
    options = [f"-max_total_time={seconds}", "-timeout=5", "-max_len=4096", "-rss_limit_mb=2048", "-verbosity=0"]
    atheris.Setup(
        [sys.argv[0], *options, f"-dict={words}", f"-artifact_prefix={folder / name}/failed-", str(seeds)], parser.fuzz
    )
    atheris.Fuzz()


if __name__ == "__main__":
    main()
