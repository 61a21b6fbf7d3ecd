"""The tables, as this version expects them. Migrations create them.

Text goes through `job_rows.stored`, times are microseconds since 1970 (UTC), structured values are ASCII JSON.
"""

from typing import Any

from sqlalchemy import BigInteger, Column, Index, Integer, MetaData, Table, Text, text

# The newest migration. Alembic is imported only if the schema is not current.
SCHEMA = "0005"

metadata = MetaData()

# Byte order on both databases: ranges of ids must not depend on the server's locale.
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
    # Assigned by the writer in order of submission, for writes in bulk.
    Column("seq", _KEY, primary_key=True, autoincrement=False),
    Column("id", _TEXT, nullable=False),
    Column("array_id", _TEXT),
    Column("array_index", BigInteger),
    Column("user", _TEXT, nullable=False),
    Column("name", _TEXT),
    Column("submitted_at", BigInteger, nullable=False),
    Column("spec_id", BigInteger, nullable=False),
    Column("submit_key", _TEXT),
    # Copies from the spec, for lists; None for the many jobs without.
    Column("team", _TEXT),
    Column("queue", _TEXT),
    # The columns that change during a job's life start here, in the order of `job_rows._standing`.
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
    Column("given_back", BigInteger),  # None: never; `requeued` too
    Column("requeued", BigInteger),
    Column("version", BigInteger, nullable=False),
)

# Every filter has an index that ends in `seq`, so the cost of a page does not depend on the length of the history.
Index("jobs_by_id", jobs.c.id, unique=True)
Index("jobs_by_state", jobs.c.state, jobs.c.seq)
Index("jobs_by_user", jobs.c.user, jobs.c.seq)
Index("jobs_by_user_state", jobs.c.user, jobs.c.state, jobs.c.seq)


def _sparse(name: str, *columns: Column[Any], over: Column[str]) -> None:
    """An index without the many rows with an empty `over`. Declared for SQLite only, although PostgreSQL has the same
    index: declaring it for PostgreSQL would load the whole dialect."""
    Index(name, *columns, sqlite_where=over.is_not(None))


_sparse("jobs_by_name", jobs.c.name, jobs.c.seq, over=jobs.c.name)
_sparse("jobs_by_user_name", jobs.c.user, jobs.c.name, jobs.c.seq, over=jobs.c.name)
_sparse("jobs_by_array", jobs.c.array_id, jobs.c.seq, over=jobs.c.array_id)
_sparse("jobs_by_key", jobs.c.user, jobs.c.submit_key, jobs.c.seq, over=jobs.c.submit_key)
_sparse("jobs_by_team_state", jobs.c.team, jobs.c.state, jobs.c.seq, over=jobs.c.team)

# The columns written by an update.
STANDING = tuple(column.name for column in jobs.c)[-15:]

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

people = Table(
    "people",
    metadata,
    Column("name", _TEXT, primary_key=True),
    Column("created_at", BigInteger, nullable=False),
    Column("role", _TEXT, nullable=False),
    Column("is_enabled", BigInteger, nullable=False),
    Column("full_name", _TEXT, nullable=False),
    Column("email", _TEXT, nullable=False),
    Column("password", _TEXT, nullable=False),
    Column("subject", _TEXT, nullable=False),
)

teams = Table(
    "teams",
    metadata,
    Column("name", _TEXT, primary_key=True),
    Column("created_at", BigInteger, nullable=False),
)

members = Table(
    "members",
    metadata,
    Column("user", _TEXT, primary_key=True),
    Column("team", _TEXT, primary_key=True),
    Column("is_leader", BigInteger, nullable=False),
    Column("is_mapped", BigInteger, nullable=False),
)

invitations = Table(
    "invitations",
    metadata,
    Column("user", _TEXT, primary_key=True),
    Column("team", _TEXT, primary_key=True),
    Column("by", _TEXT, nullable=False),
    Column("invited_at", BigInteger, nullable=False),
)

account_requests = Table(
    "account_requests",
    metadata,
    Column("id", _TEXT, primary_key=True),
    Column("name", _TEXT, nullable=False),
    Column("team", _TEXT, nullable=False),
    Column("asked_at", BigInteger, nullable=False),
    Column("state", _TEXT, nullable=False),
    Column("full_name", _TEXT, nullable=False),
    Column("email", _TEXT, nullable=False),
    Column("why", _TEXT, nullable=False),
    Column("password", _TEXT, nullable=False),
    Column("decided_by", _TEXT, nullable=False),
    Column("decided_at", BigInteger),
)

quotas = Table(
    "quotas",
    metadata,
    Column("holder", _TEXT, primary_key=True),
    Column("gpus", BigInteger),
    Column("shards", BigInteger),
    Column("cpus", BigInteger),
    Column("memory_mib", BigInteger),
    Column("jobs", BigInteger),
    Column("gpu_hours", BigInteger),
    Column("period", _TEXT, nullable=False),
    Column("borrow", BigInteger, nullable=False),
)

boosts = Table(
    "boosts",
    metadata,
    Column("id", _TEXT, primary_key=True),
    Column("user", _TEXT, nullable=False),
    Column("team", _TEXT, nullable=False),
    Column("by", _TEXT, nullable=False),
    Column("why", _TEXT, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("until", BigInteger, nullable=False),
)

audit = Table(
    "audit",
    metadata,
    Column("seq", _KEY, primary_key=True),  # assigned by the database
    Column("at", BigInteger, nullable=False),
    Column("who", _TEXT, nullable=False),
    Column("what", _TEXT, nullable=False),
    Column("target", _TEXT, nullable=False),
    Column("detail", _TEXT, nullable=False),
    Column("origin", _TEXT, nullable=False),
)
Index("audit_by_who", audit.c.who, audit.c.what, audit.c.seq)
Index("audit_by_what", audit.c.what, audit.c.seq)
Index("audit_by_target", audit.c.target, audit.c.seq)

charges = Table(
    "charges",
    metadata,
    Column("run_id", _TEXT, primary_key=True),
    Column("user", _TEXT, nullable=False),
    Column("team", _TEXT),
    Column("queue", _TEXT),
    Column("submitted_at", BigInteger, nullable=False),
    Column("started_at", BigInteger, nullable=False),
    Column("ended_at", BigInteger, nullable=False),
    Column("gpus", BigInteger, nullable=False),
    Column("shards", BigInteger, nullable=False),
    Column("shards_per_gpu", BigInteger, nullable=False),
    Column("cpus", BigInteger, nullable=False),
    Column("memory_mib", BigInteger, nullable=False),
    Column("time_limit", BigInteger),
)
Index("charges_by_end", charges.c.ended_at)
# The scheduler reads only these charges, at every start. In literals, because otherwise no query plan uses the index.
HELD_GPUS = text("gpus + shards > 0")
Index("charges_of_gpus", charges.c.ended_at, sqlite_where=HELD_GPUS)
Index("charges_by_user", charges.c.user, charges.c.ended_at)
_sparse("charges_by_team", charges.c.team, charges.c.ended_at, over=charges.c.team)
