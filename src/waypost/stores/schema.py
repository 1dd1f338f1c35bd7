"""The tables as the newest migration leaves them, and the migrations that lead there.

Migrations are numbered, forward only, and never edited once released. Each is one transaction, its own row in
`migrations` included: one that is interrupted anywhere has not happened. Column types are written `{text}`, `{integer}`
and `{real}`; text sorts by its bytes on every engine. A table with `{loosely}` keeps free space on its pages, so that
PostgreSQL can update a row without touching indexes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from waypost.errors import StoreDamaged
from waypost.stores.database import INTEGER, REAL, TEXT, Table

SESSIONS: Final = Table("sessions", id=TEXT, version=INTEGER, principal=TEXT, expires_at=REAL, body=TEXT)
TASKS: Final = Table(
    "tasks", id=TEXT, version=INTEGER, principal=TEXT, holder=TEXT, status=TEXT, expires_at=REAL, body=TEXT
)
EVENTS: Final = Table("events", keys=3, session=TEXT, stream=TEXT, number=INTEGER, expires_at=REAL, message=TEXT)
INSTANCES: Final = Table(
    "instances",
    id=TEXT,
    version=INTEGER,
    reservation=TEXT,
    reserved_until=REAL,
    reserved=TEXT,
    definition=TEXT,
    principal=TEXT,
    state=TEXT,
    status=TEXT,
    due_at=REAL,
    body=TEXT,
)
HISTORY: Final = Table("history", keys=2, instance=TEXT, version=INTEGER, at=REAL, body=TEXT)
NOTES: Final = Table("notes", keys=2, instance=TEXT, id=TEXT, at=REAL, body=TEXT)
REQUESTS: Final = Table("requests", keys=2, scope=TEXT, key=TEXT, digest=TEXT, expires_at=REAL, answer=TEXT)
STATE: Final = Table("state", keys=2, scope=TEXT, key=TEXT, version=INTEGER, value=TEXT)
AUDIT: Final = Table("audit", keys=2, chain=TEXT, number=INTEGER, at=REAL, size=INTEGER, denials=INTEGER, entries=TEXT)
JOBS: Final = Table(
    "jobs",
    keys=2,
    queue=TEXT,
    id=TEXT,
    version=INTEGER,
    status=TEXT,
    due_at=REAL,
    attempts=INTEGER,
    reason=TEXT,
    body=TEXT,
)
HOLDERS: Final = Table("holders", id=TEXT, expires_at=REAL)
SKILLS, PROMPTS, EXECUTABLES, DEFINITIONS, KEYS, POLICIES = (
    Table(name, id=TEXT, version=INTEGER, body=TEXT)
    for name in ("skills", "prompts", "executables", "definitions", "keys", "policies")
)
REVISIONS: Final = Table("revisions", kind=TEXT, number=INTEGER)
"""How often the documents of a kind, or the values of a counted scope, were changed."""
REPLICAS: Final = Table(
    "replicas",
    id=TEXT,
    address=TEXT,
    version=TEXT,
    config_digest=TEXT,
    started_at=REAL,
    last_seen_at=REAL,
    status=TEXT,
)
WORKERS: Final = Table("workers", keys=2, replica=TEXT, id=TEXT, version=INTEGER, body=TEXT)
BUDGETS: Final = Table("budgets", id=TEXT, version=INTEGER, expires_at=REAL, body=TEXT)

TABLES: Final = (
    SESSIONS,
    TASKS,
    EVENTS,
    INSTANCES,
    HISTORY,
    NOTES,
    REQUESTS,
    STATE,
    AUDIT,
    JOBS,
    HOLDERS,
    SKILLS,
    PROMPTS,
    EXECUTABLES,
    DEFINITIONS,
    KEYS,
    POLICIES,
    REVISIONS,
    REPLICAS,
    WORKERS,
    BUDGETS,
)


SQLITE_TYPES: Final = {"text": "TEXT", "integer": "INTEGER", "real": "REAL", "loosely": ""}
POSTGRES_TYPES: Final = {
    "text": 'TEXT COLLATE "C"',
    "integer": "BIGINT",
    "real": "DOUBLE PRECISION",
    "loosely": " WITH (fillfactor = 70)",
}

CREATE_MIGRATIONS: Final = "CREATE TABLE IF NOT EXISTS migrations (number INTEGER PRIMARY KEY, name TEXT NOT NULL)"
RECORD: Final = "INSERT INTO migrations (number, name) VALUES ({number}, '{name}')"
SELECT_VERSION: Final = "SELECT coalesce(max(number), 0) FROM migrations"


class Migration(NamedTuple):
    """One step of the schema."""

    number: int
    name: str
    script: str

    def statements(self, words: Mapping[str, str]) -> list[str]:
        """The statements to run, in order; the last one records the migration."""
        made = RECORD.format(number=self.number, name=self.name)
        return [*(part.strip() for part in self.script.format(**words).split(";") if part.strip()), made]


# A partial index has only the rows that its query looks for, so most writes do not touch it. The planner uses it where
# the query repeats its condition.
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

_REPLICAS: Final = """
CREATE TABLE replicas (
    id {text} PRIMARY KEY, address {text} NOT NULL, version {text} NOT NULL, config_digest {text} NOT NULL,
    started_at {real} NOT NULL, last_seen_at {real} NOT NULL, status {text} NOT NULL){loosely}
"""

# The kind of a pending move is the beginning of what its reservation holds; see `stores.instances`.
_INSTANCE_FILTERS: Final = """
CREATE INDEX instances_by_status ON instances (status, id);
CREATE INDEX instances_by_definition_status ON instances (definition, status, id);
CREATE INDEX instances_by_definition_state ON instances (definition, state, id);
CREATE INDEX instances_by_pending ON instances (substr(reserved, 1, 13), id) WHERE reserved_until > 0
"""

_WORKERS: Final = """
CREATE TABLE workers (
    replica {text} NOT NULL, id {text} NOT NULL, version {integer} NOT NULL, body {text} NOT NULL,
    PRIMARY KEY (replica, id))
"""

_BUDGETS: Final = """
CREATE TABLE budgets (
    id {text} PRIMARY KEY, version {integer} NOT NULL, expires_at {real} NOT NULL, body {text} NOT NULL){loosely};
CREATE INDEX budgets_by_expiry ON budgets (expires_at)
"""

MIGRATIONS: Final = (
    Migration(1, "first tables", _FIRST),
    Migration(2, "revisions of documents", _REVISIONS),
    Migration(3, "replicas", _REPLICAS),
    Migration(4, "filters of instances", _INSTANCE_FILTERS),
    Migration(5, "workers of replicas", _WORKERS),
    Migration(6, "budgets of limits", _BUDGETS),
)
LATEST: Final = MIGRATIONS[-1].number


def missing_migrations(newest: int, where: str) -> tuple[Migration, ...]:
    """The migrations a database at version `newest` still needs; `StoreDamaged` when a newer program wrote it."""
    if newest > LATEST:
        raise StoreDamaged(
            f"{{where}} was written by a newer Waypost (its tables are at step {newest}, this one knows {LATEST}); "
            "use that version, or restore a backup from before.",
            where,
        )
    return MIGRATIONS[newest:]
