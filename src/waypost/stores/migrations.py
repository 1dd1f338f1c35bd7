"""The steps from an empty database to today's tables: numbered, forward only, never edited once released.

Each step is one transaction on both engines, its own row in `migrations` included: one that is interrupted anywhere has
not happened. Column types are written `{text}`, `{integer}` and `{real}`; text sorts by its bytes on both engines. A
table that is made `{loosely}` keeps room on its pages, so that PostgreSQL can change a row without touching indexes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from waypost.errors import StoreDamaged

SQLITE_WORDS: Final = {"text": "TEXT", "integer": "INTEGER", "real": "REAL", "loosely": ""}
POSTGRES_WORDS: Final = {
    "text": 'TEXT COLLATE "C"',
    "integer": "BIGINT",
    "real": "DOUBLE PRECISION",
    "loosely": " WITH (fillfactor = 70)",
}

CREATE: Final = "CREATE TABLE IF NOT EXISTS migrations (number INTEGER PRIMARY KEY, name TEXT NOT NULL)"
RECORD: Final = "INSERT INTO migrations (number, name) VALUES ({number}, '{name}')"
NEWEST: Final = "SELECT coalesce(max(number), 0) FROM migrations"


class Migration(NamedTuple):
    """One step."""

    number: int
    name: str
    script: str

    def statements(self, words: Mapping[str, str]) -> list[str]:
        """What to run, in order; the last one records that the step was made."""
        made = RECORD.format(number=self.number, name=self.name)
        return [*(part.strip() for part in self.script.format(**words).split(";") if part.strip()), made]


_FIRST: Final = """
CREATE TABLE sessions (
    id {text} PRIMARY KEY, version {integer} NOT NULL, principal {text} NOT NULL,
    expires_at {real} NOT NULL, body {text} NOT NULL);
CREATE INDEX sessions_by_expiry ON sessions (expires_at);

CREATE TABLE tasks (
    id {text} PRIMARY KEY, version {integer} NOT NULL, principal {text} NOT NULL, holder {text} NOT NULL,
    status {text} NOT NULL, expires_at {real} NOT NULL, body {text} NOT NULL){loosely};
CREATE INDEX tasks_by_principal ON tasks (principal, id);
CREATE INDEX tasks_by_holder ON tasks (holder, id) WHERE holder <> '';
CREATE INDEX tasks_by_expiry ON tasks (expires_at);

CREATE TABLE events (
    session {text} NOT NULL, stream {text} NOT NULL, number {integer} NOT NULL,
    expires_at {real} NOT NULL, message {text} NOT NULL, PRIMARY KEY (session, stream, number));
CREATE INDEX events_by_expiry ON events (expires_at);

CREATE TABLE instances (
    id {text} PRIMARY KEY, version {integer} NOT NULL,
    reservation {text} NOT NULL, reserved_until {real} NOT NULL, reserved {text} NOT NULL,
    definition {text} NOT NULL, principal {text} NOT NULL, state {text} NOT NULL, status {text} NOT NULL,
    due_at {real} NOT NULL, body {text} NOT NULL){loosely};
CREATE INDEX instances_by_principal ON instances (principal, id);
CREATE INDEX instances_by_definition ON instances (definition, id);
CREATE INDEX instances_by_due ON instances (due_at) WHERE due_at > 0 AND reservation = '';
CREATE INDEX instances_by_reservation ON instances (reserved_until) WHERE reserved_until > 0;
CREATE INDEX instances_reserved ON instances (id) WHERE reserved_until > 0;

CREATE TABLE history (
    instance {text} NOT NULL, version {integer} NOT NULL, at {real} NOT NULL, body {text} NOT NULL,
    PRIMARY KEY (instance, version));

CREATE TABLE notes (
    instance {text} NOT NULL, id {text} NOT NULL, at {real} NOT NULL, body {text} NOT NULL,
    PRIMARY KEY (instance, id));

CREATE TABLE requests (
    scope {text} NOT NULL, key {text} NOT NULL, digest {text} NOT NULL, expires_at {real} NOT NULL,
    answer {text} NOT NULL, PRIMARY KEY (scope, key));
CREATE INDEX requests_by_expiry ON requests (expires_at) WHERE expires_at > 0;

CREATE TABLE state (
    scope {text} NOT NULL, key {text} NOT NULL, version {integer} NOT NULL, value {text} NOT NULL,
    PRIMARY KEY (scope, key));

CREATE TABLE audit (
    chain {text} NOT NULL, number {integer} NOT NULL, at {real} NOT NULL, size {integer} NOT NULL,
    denials {integer} NOT NULL, entries {text} NOT NULL, PRIMARY KEY (chain, number));
CREATE INDEX audit_by_time ON audit (at, chain, number);
CREATE INDEX audit_of_denials ON audit (at, chain, number) WHERE denials > 0;

CREATE TABLE jobs (
    queue {text} NOT NULL, id {text} NOT NULL, version {integer} NOT NULL, status {text} NOT NULL,
    due_at {real} NOT NULL, attempts {integer} NOT NULL, reason {text} NOT NULL, body {text} NOT NULL,
    PRIMARY KEY (queue, id));
CREATE INDEX jobs_by_due ON jobs (queue, status, due_at, id);

CREATE TABLE holders (id {text} PRIMARY KEY, expires_at {real} NOT NULL);

CREATE TABLE skills (id {text} PRIMARY KEY, version {integer} NOT NULL, body {text} NOT NULL);
CREATE TABLE prompts (id {text} PRIMARY KEY, version {integer} NOT NULL, body {text} NOT NULL);
CREATE TABLE executables (id {text} PRIMARY KEY, version {integer} NOT NULL, body {text} NOT NULL);
CREATE TABLE definitions (id {text} PRIMARY KEY, version {integer} NOT NULL, body {text} NOT NULL);
CREATE TABLE keys (id {text} PRIMARY KEY, version {integer} NOT NULL, body {text} NOT NULL);
CREATE TABLE policies (id {text} PRIMARY KEY, version {integer} NOT NULL, body {text} NOT NULL)
"""

_REVISIONS: Final = """
CREATE TABLE revisions (kind {text} PRIMARY KEY, number {integer} NOT NULL){loosely}
"""

MIGRATIONS: Final = (Migration(1, "first tables", _FIRST), Migration(2, "revisions of documents", _REVISIONS))
LATEST: Final = MIGRATIONS[-1].number


def missing(newest: int, where: str) -> tuple[Migration, ...]:
    """The steps a database still needs; one that is newer than this program is refused."""
    if newest > LATEST:
        raise StoreDamaged(
            f"{where} was written by a newer Waypost (its tables are at step {newest}, this one knows {LATEST}); "
            "use that version, or restore a backup from before."
        )
    return MIGRATIONS[newest:]
