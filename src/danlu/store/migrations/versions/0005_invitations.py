"""Leaders invite people into teams."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "invitations",
        sa.Column("user", TEXT, primary_key=True),
        sa.Column("team", TEXT, primary_key=True),
        sa.Column("by", TEXT, nullable=False),
        sa.Column("invited_at", sa.BigInteger(), nullable=False),
    )
