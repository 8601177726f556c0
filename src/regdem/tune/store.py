"""What a tuning has done already, kept so that a second run goes on where the first one ended.

Problem: making variants takes minutes of CPU, measuring them minutes of a GPU, and either may be
interrupted, or happen on different machines.

Method: an SQLite file in the evidence folder, one row for each variant made and each variant
measured, written in one transaction when it is done. Rows are keyed by hashes of all that decides
them: of making, the input, the request and regdem's own code; of measuring, the bytes of original
and variant, the launch with its inputs, seeds, rounds, the GPU's name and the driver. A changed
input or launch so finds nothing, and nothing has to be deleted. Cubins lie beside the file under
`variants/`, written whole before their row; a file whose hash is not the row's counts as absent.

Invariants: one process at a time (a lock file); a row once written never changes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import sqlite3
import threading
from functools import cache
from pathlib import Path
from typing import IO, Any

import regdem
from regdem.binary.atomic import write_atomically
from regdem.errors import InputError, UsageError
from regdem.tune.made import Made
from regdem.tune.results import Measurement

STORE_NAME = "store.sqlite"
_NO_MAKERS = ("cli", "report", "study")
"""Parts of regdem that have no say in what a variant is."""
_SCHEMA = """
create table if not exists made (
    making text not null, name text not null, position integer not null, row text not null,
    primary key (making, name));
create table if not exists complete (making text primary key);
create table if not exists measured (
    key text primary key, name text not null, limit_s real not null, row text not null);
create table if not exists compared (key text primary key, row text not null);
"""


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def key_of(*parts: Any) -> str:
    """One hash of several plain values."""
    return sha256(json.dumps(parts, sort_keys=True).encode())


@cache
def code_fingerprint() -> str:
    """Hash of regdem's own code and tables: variants made by other code are made again."""
    folder = Path(regdem.__file__).resolve().parent
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder).parts
        if path.is_file() and "__pycache__" not in inside and inside[0] not in _NO_MAKERS:
            digest.update("/".join(inside).encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def file_name(name: str) -> str:
    """A variant's name as a file name: readable, and different for different names."""
    plain = re.sub(r"[^A-Za-z0-9_.+-]", "_", name)[:80]
    return plain if plain == name else f"{plain}-{sha256(name.encode())[:8]}"


class Store:
    """The store of one evidence folder. Use as a context manager; safe from several threads.

    Raises UsageError where another process holds it, InputError where the file is damaged.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._guard = threading.Lock()
        try:
            (folder / "variants").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise UsageError(f"can't be made: {reason}", file=str(folder)) from error
        self._lock = _lock(folder / ".lock")
        try:
            self._base = sqlite3.connect(folder / STORE_NAME, check_same_thread=False)
            self._base.executescript(_SCHEMA)
        except sqlite3.Error as error:
            self._lock.close()
            raise self._damaged(error) from error

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Lets go of the folder."""
        self._base.close()
        self._lock.close()

    def _damaged(self, error: sqlite3.Error) -> InputError:
        return InputError(
            f"can't be used: {error}",
            file=str(self.folder / STORE_NAME),
            hint="give another folder, or remove this file to start anew",
        )

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        with self._guard:
            try:
                return self._base.execute(query, values).fetchall()
            except sqlite3.Error as error:
                raise self._damaged(error) from error

    def _write(self, query: str, *values: Any) -> None:
        with self._guard:
            try:
                with self._base:
                    self._base.execute(query, values)
            except sqlite3.Error as error:
                raise self._damaged(error) from error

    # --- variants -------------------------------------------------------------------------------

    def path_of(self, name: str) -> Path:
        """Where a variant's cubin lies."""
        return self.folder / "variants" / f"{file_name(name)}.cubin"

    def put_made(self, making: str, made: Made, position: int) -> None:
        """Keeps a variant, or the reason why there is none."""
        if made.cubin is not None:
            write_atomically(self.path_of(made.name), made.cubin)
        row = json.dumps(made.to_dict())
        self._write(
            "insert or replace into made values (?, ?, ?, ?)", making, made.name, position, row
        )

    def made(self, making: str) -> dict[str, Made]:
        """Variants made so far, by name, in the order of their making; without damaged ones."""
        rows = self.rows("select row from made where making = ? order by position", making)
        found: dict[str, Made] = {}
        for (text,) in rows:
            value: dict[str, Any] = json.loads(text)
            cubin: bytes | None = None
            wanted = value.pop("cubin_sha256")
            if wanted is not None:
                with contextlib.suppress(OSError):
                    cubin = self.path_of(value["name"]).read_bytes()
                if cubin is None or sha256(cubin) != wanted:
                    continue
            made = Made.from_dict(value, cubin)
            found[made.name] = made
        return found

    def set_complete(self, making: str) -> None:
        """Notes that every variant has been made."""
        self._write("insert or ignore into complete values (?)", making)

    def is_complete(self, making: str) -> bool:
        """Whether every variant has been made, and none of their files is lost."""
        if not self.rows("select 1 from complete where making = ?", making):
            return False
        (count,) = self.rows("select count(*) from made where making = ?", making)[0]
        return count == len(self.made(making))

    # --- measurements ---------------------------------------------------------------------------

    def put_measured(self, key: str, name: str, limit_s: float, value: Measurement) -> None:
        """Keeps a measurement."""
        row = json.dumps(value.to_dict())
        self._write("insert or replace into measured values (?, ?, ?, ?)", key, name, limit_s, row)

    def measured(self, key: str, limit_s: float) -> Measurement | None:
        """A measurement of that key; a failure counts only if it had as much time as now."""
        rows = self.rows("select row, limit_s from measured where key = ?", key)
        if not rows:
            return None
        value = Measurement.from_dict(json.loads(rows[0][0]))
        return None if value.status == "failed" and rows[0][1] < limit_s else value

    def put_compared(self, key: str, samples: dict[str, list[float]]) -> None:
        """Keeps the times of a final session."""
        self._write("insert or replace into compared values (?, ?)", key, json.dumps(samples))

    def compared(self, key: str) -> dict[str, list[float]] | None:
        """Times of a final session of that key."""
        rows = self.rows("select row from compared where key = ?", key)
        return json.loads(rows[0][0]) if rows else None


def _lock(path: Path) -> IO[str]:
    """Holds a folder for this process, where the system has such locks."""
    try:
        handle = open(path, "w")  # noqa: SIM115 - held until the store is closed
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UsageError(f"can't be written: {reason}", file=str(path.parent)) from error
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:
        return handle
    except OSError as error:
        handle.close()
        raise UsageError(
            "another regdem tune is at work in this folder",
            file=str(path.parent),
            hint="wait for it, or give another --out",
        ) from error
    return handle
