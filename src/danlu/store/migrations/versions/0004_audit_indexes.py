"""The audit log has a line for every job: whom and what it is asked about, it finds at once."""

from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.drop_index("audit_by_at", "audit")
    op.create_index("audit_by_who", "audit", ["who", "what", "seq"])
    op.create_index("audit_by_what", "audit", ["what", "seq"])
    op.create_index("audit_by_target", "audit", ["target", "seq"])
