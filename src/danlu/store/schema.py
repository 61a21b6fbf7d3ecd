"""Upgrade a database to the schema of this version, or refuse it."""

import sqlite3
from pathlib import Path

from sqlalchemy import Connection, inspect, text
from sqlalchemy.exc import OperationalError, ProgrammingError

from danlu.errors import Refused
from danlu.store import tables

_MIGRATIONS = Path(__file__).parent / "migrations"


def bring_up(connection: Connection) -> None:
    """In a single transaction: the schema is the old or the new one, even after a failure."""
    with connection.begin():
        found = _revision(connection)
        if found != tables.SCHEMA:
            _upgrade(connection, found)
        _check_tables(connection)


def _revision(connection: Connection) -> str:
    if not inspect(connection).has_table("alembic_version"):
        return ""
    found = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalars().all()
    return " and ".join(sorted(found))


def _check_tables(connection: Connection) -> None:
    """The number of a schema is only a claim: an edited migration, or a manual change, leaves other tables."""
    there = set(inspect(connection).get_table_names())
    for name, table in tables.metadata.tables.items():
        if name not in there:
            raise _unlike(f"the table `{name}`")
        found = set(connection.execute(text(f'SELECT * FROM "{name}" LIMIT 0')).keys())
        if missing := sorted({column.name for column in table.columns} - found):
            raise _unlike(f"the column `{missing[0]}` of the table `{name}`")


def _unlike(what: str) -> Refused:
    return Refused(
        f"the database says that it has schema {tables.SCHEMA}, but {what} is missing",
        "another build of Danlu made it, or somebody changed it by hand: start the build that made it, "
        "or put back a copy from before",
    )


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
    except (ProgrammingError, OperationalError) as error:
        if getattr(error.orig, "sqlite_errorcode", sqlite3.SQLITE_ERROR) != sqlite3.SQLITE_ERROR:
            raise  # a full disk, a lock: nothing is wrong with the tables
        raise _not_upgraded(found, str(error.orig)) from error


def _not_upgraded(found: str, why: str) -> Refused:
    why = (why.strip() or "no reason given").splitlines()[0]
    if not found:
        return Refused(
            f"the tables for schema {tables.SCHEMA} cannot be made: {why}",
            "give Danlu a database of its own, where it may create tables",
        )
    return Refused(
        f"the database says that it has schema {found}, and cannot be brought to {tables.SCHEMA}: {why}",
        f"nothing is changed; its tables are not those of schema {found}, or this user may not change them: "
        "start the version of Danlu that made it, or put back a copy from before",
    )
