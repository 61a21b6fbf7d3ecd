"""Jobs know how often their engine began the present run again."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.add_column("jobs", sa.Column("requeued", sa.BigInteger()))
