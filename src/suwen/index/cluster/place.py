"""Addresses of cluster indexes, connections to them, and what the server complains of put in words. No tables."""

from __future__ import annotations

import math
import re
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict

from suwen.index.cluster.patience import PatientConnection, know_session
from suwen.index.engine import DiskFull, IndexProblem

#: One database may hold several indexes, each in a schema: ``postgresql://host/db?index=NAME``.
DEFAULT_SCHEMA = "suwen"
#: A stalled network ends a call instead of holding it for ever; what the address says goes first. A server that says
#: nothing for as long as a connection may take is asked about over another one (:mod:`suwen.index.cluster.patience`).
_PATIENCE = {
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
    "application_name": "suwen",
}


class Unreachable(IndexProblem):
    """The database cannot be reached, or does not let this user in."""


class Place:
    """Where an index is: a database, and the schema of the index in it.

    Attributes:
        schema: The schema.
        milvus: The address of the Milvus that searches, if one does.
        shown: The address without its password: for messages.
    """

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        given = dict(parse_qsl(parts.query))
        self.schema = given.pop("index", DEFAULT_SCHEMA)
        if not re.fullmatch(r"[a-z][a-z0-9_]{0,40}", self.schema):
            raise IndexProblem(
                f"{self.schema!r} is no name for an index: small letters, digits and _, at most 41, a letter first"
            )
        self.milvus = _milvus(given.pop("milvus", ""))
        bare = urlunsplit(parts._replace(query=urlencode(given)))
        user = parts.netloc.rpartition("@")[0].partition(":")[0]
        host = parts.netloc.rpartition("@")[2]
        self.shown = urlunsplit(parts._replace(netloc=f"{user}@{host}" if user else host))
        try:
            self._settings: dict[str, Any] = _PATIENCE | conninfo_to_dict(bare)
        except psycopg.ProgrammingError as problem:
            raise IndexProblem(f"{self.shown} is no address of a database ({problem}): write {EXAMPLE}") from problem

    def connect(self) -> PatientConnection:
        """A connection that sees the index's tables first, and begins no transaction of its own."""
        try:
            connection = self._connect()
            know_session(connection, f'"{self.schema}", public')
            connection.ask = self._connect
        except (psycopg.Error, UnicodeError) as problem:
            raise self.complaint(problem) from problem
        return connection

    def _connect(self) -> PatientConnection:
        # Statements prepared before an index is made keep the plan without it.
        connection = PatientConnection.connect(**self._settings, autocommit=True, prepare_threshold=None)
        seconds = float(self._settings["connect_timeout"])
        connection.patience = seconds if seconds > 0 else math.inf
        return connection

    def complaint(self, problem: Exception) -> IndexProblem:
        """What the server or the way to it complains of, with what can be done."""
        said = " ".join(str(problem).split())
        if isinstance(problem, errors.DiskFull):
            return DiskFull(f"{self.shown}: {said}. Nothing of this call was stored: free space on the database server")
        if isinstance(problem, errors.ReadOnlySqlTransaction):
            return IndexProblem(f"{self.shown} is a standby, which cannot be written: give the primary's address")
        if "authentication failed" in said or "no password supplied" in said:
            return Unreachable(f"{self.shown} does not let this user in: check user and password (or PGPASSWORD)")
        if "does not exist" in said and "database" in said:
            return Unreachable(f"{self.shown}: {said}. Make the database first ('createdb NAME')")
        if isinstance(problem, psycopg.OperationalError | psycopg.InterfaceError):
            return Unreachable(f"{self.shown} cannot be reached ({said}): check the address and that the server runs")
        return IndexProblem(f"{self.shown}: the database refused this ({said}). Nothing of this call was stored")


def _milvus(address: str) -> str:
    """The address of a Milvus, whole."""
    if not address:
        return ""
    whole = address if "://" in address else f"http://{address}"
    parts = urlsplit(whole)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
        raise IndexProblem(f"{address!r} is no address of a Milvus: write ?milvus=HOST:19530, or https://HOST:19530")
    if "@" in parts.netloc:
        raise IndexProblem("the address of a Milvus names no user here: set MILVUS_TOKEN=USER:PASSWORD")
    return whole


EXAMPLE = "postgresql://USER@HOST:5432/DATABASE?index=NAME"
