"""Limits on JSON Schemas and on the cost of checking values.

The engine checks most values in a few hundred nanoseconds, but its worst cases multiply: references that double at
every level, unions whose branches are all tried, patterns with many states, exact arithmetic on large numbers. What a
schema may cost is estimated before it is used, in *checks* of about 20 ns, the time of one `type`.
"""

from __future__ import annotations

from typing import Final

MAX_SCHEMA_BYTES: Final = 1024 * 1024
"""Maximum size of the JSON text of a schema; compiling a long `enum` or `required` takes about 40 ns a byte."""

MAX_DEPTH: Final = 64
"""Maximum nesting of subschemas."""

MAX_SUBSCHEMAS: Final = 4_000
"""Measuring and compiling takes up to 25 µs a subschema, on the event loop: at most 100 ms."""

MAX_LOOKUPS: Final = 100_000
"""References times embedded `$id`s, for a reference may lead into each of them."""

MAX_PATTERNS: Final = 500
"""Different patterns in one schema; each has its own cache once it is used."""

MAX_PATTERN_SIZE: Final = 40_000
"""Positions in all patterns of a schema, see `PatternSize.units`: at most 80 ms to compile, and 10 MB."""

MAX_PATTERN_CACHE_BYTES: Final = 64 * 1024
"""What the engine may keep of each pattern while it searches; its default of 2 MB is not faster."""

MAX_CHECKS: Final = 50_000_000
"""Checks that one value may need: a second in the worst case, for which a schema and a value must be made."""

MAX_CHECKS_PER_PLACE: Final = MAX_CHECKS // 100
"""Checks that a schema may need at one place of a value; beyond that not even 100 places could be checked."""

FREE_CHECKS_PER_PLACE: Final = 60
"""Schemas up to this cost are used without counting the places of a value first."""

FREE_CHECKS_PER_CHARACTER: Final = 10
"""Patterns up to this cost are used without counting the characters of a value first."""

MAX_PROBLEM_STEPS: Final = 10_000
"""Steps in which the reasons for a refusal are sought, of a few microseconds each; a costly check is several."""

MAX_PROBLEM_SECONDS: Final = 0.2
"""Processor time after which the search ends in any case, as a step may be an expensive one."""

MAX_PROBLEMS: Final = 100
"""Problems reported of one value."""

MAX_PROBLEMS_BYTES: Final = 16 * 1024
"""What the reported problems of one value may have together."""

MAX_BLAMED_BYTES: Final = 16 * 1024
"""A larger schema that is invalid is refused without the place: the engine copies the schema at every level."""
