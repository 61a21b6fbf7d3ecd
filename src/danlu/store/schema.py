"""Upgrade a database to the schema of this version, or refuse it."""

from pathlib import Path

from sqlalchemy import Connection, inspect
from sqlalchemy.exc import ProgrammingError

from danlu.errors import Refused
from danlu.store import tables

_MIGRATIONS = Path(__file__).parent / "migrations"


def bring_up(connection: Connection) -> None:
    """In a single transaction: the schema is the old or the new one, even after a failure."""
    with connection.begin():
        found = _revision(connection)
        if found != tables.SCHEMA:
            _upgrade(connection, found)


def _revision(connection: Connection) -> str:
    if not inspect(connection).has_table("alembic_version"):
        return ""
    found = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalars().all()
    return " and ".join(sorted(found))


def _upgrade(connection: Connection, found: str) -> None:
    strange = set() if found else tables.metadata.tables.keys() & set(inspect(connection).get_table_names())
    if strange:
        raise Refused(
            f"the database has tables of another program ({', '.join(sorted(strange))})",
            "give Danlu a database of its own",
        )
    # The import costs 100 ms and some MB, and nearly every start finds the current schema.
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    known = {step.revision for step in ScriptDirectory.from_config(config).walk_revisions()}
    if found and found not in known:
        raise Refused(
            f"the database has schema {found}, this version of Danlu knows up to {tables.SCHEMA}",
            "start the version of Danlu that wrote it, or a newer one",
        )
    try:
        command.upgrade(config, "head")
    except ProgrammingError as error:
        raise Refused(
            f"the tables for schema {tables.SCHEMA} cannot be made: {error.orig}",
            "give Danlu a database of its own, where it may create tables",
        ) from error
