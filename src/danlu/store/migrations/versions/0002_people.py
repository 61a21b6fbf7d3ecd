"""People, teams, quotas, boosts, what was used, and the audit log; jobs know their team and queue."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    _extend_jobs()
    _create_people()
    _create_rules()
    _create_audit()
    _create_charges()


def _extend_jobs() -> None:
    op.add_column("jobs", sa.Column("team", TEXT))
    op.add_column("jobs", sa.Column("queue", TEXT))
    op.add_column("jobs", sa.Column("given_back", sa.BigInteger()))
    present = sa.text("team IS NOT NULL")
    op.create_index(
        "jobs_by_team_state", "jobs", ["team", "state", "seq"], sqlite_where=present, postgresql_where=present
    )


def _create_people() -> None:
    op.create_table(
        "people",
        sa.Column("name", TEXT, primary_key=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("role", TEXT, nullable=False),
        sa.Column("is_enabled", sa.BigInteger(), nullable=False),
        sa.Column("full_name", TEXT, nullable=False),
        sa.Column("email", TEXT, nullable=False),
        sa.Column("password", TEXT, nullable=False),
        sa.Column("subject", TEXT, nullable=False),
    )
    op.create_table(
        "teams",
        sa.Column("name", TEXT, primary_key=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
    )
    op.create_table(
        "members",
        sa.Column("user", TEXT, primary_key=True),
        sa.Column("team", TEXT, primary_key=True),
        sa.Column("is_leader", sa.BigInteger(), nullable=False),
        sa.Column("is_mapped", sa.BigInteger(), nullable=False),
    )
    op.create_table(
        "account_requests",
        sa.Column("id", TEXT, primary_key=True),
        sa.Column("name", TEXT, nullable=False),
        sa.Column("team", TEXT, nullable=False),
        sa.Column("asked_at", sa.BigInteger(), nullable=False),
        sa.Column("state", TEXT, nullable=False),
        sa.Column("full_name", TEXT, nullable=False),
        sa.Column("email", TEXT, nullable=False),
        sa.Column("why", TEXT, nullable=False),
        sa.Column("password", TEXT, nullable=False),
        sa.Column("decided_by", TEXT, nullable=False),
        sa.Column("decided_at", sa.BigInteger()),
    )


def _create_rules() -> None:
    op.create_table(
        "quotas",
        sa.Column("holder", TEXT, primary_key=True),
        sa.Column("gpus", sa.BigInteger()),
        sa.Column("shards", sa.BigInteger()),
        sa.Column("cpus", sa.BigInteger()),
        sa.Column("memory_mib", sa.BigInteger()),
        sa.Column("jobs", sa.BigInteger()),
        sa.Column("gpu_hours", sa.BigInteger()),
        sa.Column("period", TEXT, nullable=False),
        sa.Column("borrow", sa.BigInteger(), nullable=False),
    )
    op.create_table(
        "boosts",
        sa.Column("id", TEXT, primary_key=True),
        sa.Column("user", TEXT, nullable=False),
        sa.Column("team", TEXT, nullable=False),
        sa.Column("by", TEXT, nullable=False),
        sa.Column("why", TEXT, nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=False),
    )


def _create_audit() -> None:
    op.create_table(
        "audit",
        sa.Column("seq", KEY, primary_key=True),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("who", TEXT, nullable=False),
        sa.Column("what", TEXT, nullable=False),
        sa.Column("target", TEXT, nullable=False),
        sa.Column("detail", TEXT, nullable=False),
        sa.Column("origin", TEXT, nullable=False),
    )
    op.create_index("audit_by_at", "audit", ["at"])


def _create_charges() -> None:
    op.create_table(
        "charges",
        sa.Column("run_id", TEXT, primary_key=True),
        sa.Column("user", TEXT, nullable=False),
        sa.Column("team", TEXT),
        sa.Column("queue", TEXT),
        sa.Column("submitted_at", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=False),
        sa.Column("gpus", sa.BigInteger(), nullable=False),
        sa.Column("shards", sa.BigInteger(), nullable=False),
        sa.Column("shards_per_gpu", sa.BigInteger(), nullable=False),
        sa.Column("cpus", sa.BigInteger(), nullable=False),
        sa.Column("memory_mib", sa.BigInteger(), nullable=False),
        sa.Column("time_limit", sa.BigInteger()),
    )
    op.create_index("charges_by_end", "charges", ["ended_at"])
    held = sa.text("gpus + shards > 0")
    op.create_index("charges_of_gpus", "charges", ["ended_at"], sqlite_where=held, postgresql_where=held)
    op.create_index("charges_by_user", "charges", ["user", "ended_at"])
    present = sa.text("team IS NOT NULL")
    op.create_index("charges_by_team", "charges", ["team", "ended_at"], sqlite_where=present, postgresql_where=present)
