"""The first schema: jobs and their specs, labels, past runs, environments, tokens."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "specs",
        sa.Column("id", KEY, primary_key=True, autoincrement=False),
        sa.Column("spec", TEXT, nullable=False),
    )
    _create_jobs()
    op.create_table(
        "labels",
        sa.Column("key", TEXT, primary_key=True),
        sa.Column("value", TEXT, primary_key=True),
        sa.Column("seq", sa.BigInteger(), primary_key=True, autoincrement=False),
    )
    op.create_index("labels_by_seq", "labels", ["seq"])
    op.create_table(
        "past_runs",
        sa.Column("job_id", TEXT, primary_key=True),
        sa.Column("attempt", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("state", TEXT, nullable=False),
        sa.Column("reason_code", TEXT, nullable=False),
        sa.Column("reason_text", TEXT, nullable=False),
        sa.Column("started_at", sa.BigInteger()),
        sa.Column("ended_at", sa.BigInteger(), nullable=False),
        sa.Column("exit_code", sa.BigInteger()),
        sa.Column("node", TEXT, nullable=False),
    )
    op.create_table(
        "environs",
        sa.Column("id", TEXT, primary_key=True),
        sa.Column("environ", TEXT, nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
    )
    op.create_table(
        "tokens",
        sa.Column("id", TEXT, primary_key=True),
        sa.Column("digest", TEXT, nullable=False),
        sa.Column("user", TEXT, nullable=False),
        sa.Column("role", TEXT, nullable=False),
        sa.Column("name", TEXT, nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger()),
    )
    op.create_index("tokens_by_digest", "tokens", ["digest"], unique=True)


def _create_jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("seq", KEY, primary_key=True, autoincrement=False),
        sa.Column("id", TEXT, nullable=False),
        sa.Column("array_id", TEXT),
        sa.Column("array_index", sa.BigInteger()),
        sa.Column("user", TEXT, nullable=False),
        sa.Column("name", TEXT),
        sa.Column("submitted_at", sa.BigInteger(), nullable=False),
        sa.Column("spec_id", sa.BigInteger(), nullable=False),
        sa.Column("submit_key", TEXT),
        sa.Column("state", TEXT, nullable=False),
        sa.Column("reason_code", TEXT, nullable=False),
        sa.Column("reason_text", TEXT, nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.BigInteger()),
        sa.Column("ended_at", sa.BigInteger()),
        sa.Column("exit_code", sa.BigInteger()),
        sa.Column("seat", TEXT),
        sa.Column("handle", TEXT),
        sa.Column("waiting_for", TEXT),
        sa.Column("stop_requested_at", sa.BigInteger()),
        sa.Column("notes", TEXT),
        sa.Column("version", sa.BigInteger(), nullable=False),
    )
    op.create_index("jobs_by_id", "jobs", ["id"], unique=True)
    op.create_index("jobs_by_state", "jobs", ["state", "seq"])
    op.create_index("jobs_by_user", "jobs", ["user", "seq"])
    op.create_index("jobs_by_user_state", "jobs", ["user", "state", "seq"])
    for name, columns in {
        "jobs_by_name": ["name", "seq"],
        "jobs_by_user_name": ["user", "name", "seq"],
        "jobs_by_array": ["array_id", "seq"],
        "jobs_by_key": ["user", "submit_key", "seq"],
    }.items():
        present = sa.text(f"{columns[-2]} IS NOT NULL")
        op.create_index(name, "jobs", columns, sqlite_where=present, postgresql_where=present)
