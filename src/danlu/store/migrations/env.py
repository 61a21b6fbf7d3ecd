"""Run by Alembic. The connection is the store's own, so a migration is one transaction with its lock."""

from alembic import context

from danlu.store import tables

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=tables.metadata,
    transactional_ddl=True,
)
context.run_migrations()
