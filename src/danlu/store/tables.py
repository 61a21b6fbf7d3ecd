"""The tables. Migrations make them; this is what the code believes they look like.

Text goes through `rows.stored`, times are microseconds since 1970 (UTC), structured values are ASCII JSON."""

from sqlalchemy import BigInteger, Column, Index, Integer, MetaData, Table, Text

# The newest migration. Alembic itself is only imported when a database is not there yet.
SCHEMA = "0001"

metadata = MetaData()

# Byte order on both databases: ranges of ids must not depend on the server's language.
_TEXT = Text().with_variant(Text(collation="C"), "postgresql")
# SQLite's rowid is only an alias of a column declared exactly INTEGER.
_KEY = BigInteger().with_variant(Integer(), "sqlite")

specs = Table(
    "specs",
    metadata,
    Column("id", _KEY, primary_key=True, autoincrement=False),
    Column("spec", _TEXT, nullable=False),
)

jobs = Table(
    "jobs",
    metadata,
    # Given by the one writer in order of submission, so that rows can be written in bulk.
    Column("seq", _KEY, primary_key=True, autoincrement=False),
    Column("id", _TEXT, nullable=False),
    Column("array_id", _TEXT),
    Column("array_index", BigInteger),
    Column("user", _TEXT, nullable=False),
    Column("name", _TEXT),
    Column("submitted_at", BigInteger, nullable=False),
    Column("spec_id", BigInteger, nullable=False),
    Column("submit_key", _TEXT),
    # From here on what changes in a job's life, in the order of `rows._standing`.
    Column("state", _TEXT, nullable=False),
    Column("reason_code", _TEXT, nullable=False),
    Column("reason_text", _TEXT, nullable=False),
    Column("attempt", BigInteger, nullable=False),
    Column("started_at", BigInteger),
    Column("ended_at", BigInteger),
    Column("exit_code", BigInteger),
    Column("seat", _TEXT),
    Column("handle", _TEXT),
    Column("waiting_for", _TEXT),
    Column("stop_requested_at", BigInteger),
    Column("notes", _TEXT),
    Column("version", BigInteger, nullable=False),
)

# Every filter has an index that ends in `seq`, so a page costs the same however long the history is.
Index("jobs_by_id", jobs.c.id, unique=True)
Index("jobs_by_state", jobs.c.state, jobs.c.seq)
Index("jobs_by_user", jobs.c.user, jobs.c.seq)
Index("jobs_by_user_state", jobs.c.user, jobs.c.state, jobs.c.seq)


def _sparse(name: str, *columns: Column[str], over: Column[str]) -> None:
    """An index without the many rows that have nothing in `over`."""
    Index(name, *columns, jobs.c.seq, sqlite_where=over.is_not(None), postgresql_where=over.is_not(None))


_sparse("jobs_by_name", jobs.c.name, over=jobs.c.name)
_sparse("jobs_by_user_name", jobs.c.user, jobs.c.name, over=jobs.c.name)
_sparse("jobs_by_array", jobs.c.array_id, over=jobs.c.array_id)
_sparse("jobs_by_key", jobs.c.user, jobs.c.submit_key, over=jobs.c.submit_key)

# What an update writes.
STANDING = tuple(column.name for column in jobs.c)[-13:]

labels = Table(
    "labels",
    metadata,
    Column("key", _TEXT, primary_key=True),
    Column("value", _TEXT, primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
)
Index("labels_by_seq", labels.c.seq)

past_runs = Table(
    "past_runs",
    metadata,
    Column("job_id", _TEXT, primary_key=True),
    Column("attempt", BigInteger, primary_key=True, autoincrement=False),
    Column("state", _TEXT, nullable=False),
    Column("reason_code", _TEXT, nullable=False),
    Column("reason_text", _TEXT, nullable=False),
    Column("started_at", BigInteger),
    Column("ended_at", BigInteger, nullable=False),
    Column("exit_code", BigInteger),
    Column("node", _TEXT, nullable=False),
)

environs = Table(
    "environs",
    metadata,
    Column("id", _TEXT, primary_key=True),
    Column("environ", _TEXT, nullable=False),
    Column("created_at", BigInteger, nullable=False),
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", _TEXT, primary_key=True),
    Column("digest", _TEXT, nullable=False),
    Column("user", _TEXT, nullable=False),
    Column("role", _TEXT, nullable=False),
    Column("name", _TEXT, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger),
)
Index("tokens_by_digest", tokens.c.digest, unique=True)
