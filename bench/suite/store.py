"""Results in SQLite: one row per fact, so that tables and plots are queries.

Every run has a row with the device, driver, clocks, compiler, command and the manifest's hash;
everything else refers to it. Runs are added, never changed.
"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

Record = dict[str, Any]

SCHEMA = """
create table if not exists run (
  id integer primary key, date text, device text, driver text, clocks text, nvcc text,
  command text, manifest_sha256 text, host text);
create table if not exists kernel (
  run integer, name text, grp text, source text, source_sha256 text, block text,
  dynamic_shared_bytes integer, cliffs text, reference_error real, reference_passed integer,
  note text, primary key (run, name));
create table if not exists variant (
  run integer, kernel text, name text, family text, status text, reason text, sha256 text,
  commands text, registers integer, spill_store_bytes integer, spill_load_bytes integer,
  driver_registers integer, driver_shared_bytes integer, driver_local_bytes integer,
  active_blocks integer, tool text, primary key (run, kernel, name));
create table if not exists equality (
  run integer, kernel text, variant text, seed integer, identical integer, detail text);
create table if not exists timing (
  run integer, kernel text, variant text, median_ms real, p10_ms real, p90_ms real,
  rounds integer, samples_ms text);
create table if not exists sanitizer (
  run integer, kernel text, variant text, tool text, status text, detail text);
create table if not exists counter (
  run integer, kernel text, variant text, metric text, unit text, value text);
"""


class Store:
    """An open results database. `path` may exist: runs are appended."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, check_same_thread=False)
        self._db.row_factory = sqlite3.Row
        self._db.executescript(SCHEMA)

    def close(self) -> None:
        self._db.commit()
        self._db.close()

    def add_run(self, **facts: Any) -> int:
        names = ("date", "device", "driver", "clocks", "nvcc", "command", "manifest_sha256", "host")
        cursor = self._db.execute(
            f"insert into run ({', '.join(names)}) values ({', '.join('?' * len(names))})",
            [facts.get(name) for name in names],
        )
        self._db.commit()
        return int(cursor.lastrowid or 0)

    def set_device(self, run: int, device: str) -> None:
        self._db.execute("update run set device = ? where id = ?", (device, run))
        self._db.commit()

    def add_kernel(self, run: int, prepared: Record, result: Record) -> None:
        """Stores a kernel's manifest entry together with what the worker's events said."""
        reference: Record = result.get("reference") or {}
        self._db.execute(
            "insert or replace into kernel values (?,?,?,?,?,?,?,?,?,?,?)",
            (
                run,
                prepared["name"],
                prepared.get("group"),
                prepared.get("source"),
                prepared.get("source_sha256"),
                json.dumps(prepared.get("block")),
                prepared.get("dynamic_shared_bytes"),
                json.dumps(prepared.get("cliffs")),
                reference.get("relative_error"),
                reference.get("passed"),
                "; ".join(result.get("notes", ())) or prepared.get("error"),
            ),
        )
        for variant in prepared["variants"]:
            name = variant["name"]
            facts: Record = result["facts"].get(name, {})
            failed = result["failed"].get(name)
            self._db.execute(
                "insert or replace into variant values (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
                (
                    run,
                    prepared["name"],
                    name,
                    variant["family"],
                    "failed" if failed else variant["status"],
                    failed or variant.get("reason"),
                    variant.get("sha256"),
                    json.dumps(variant.get("commands")),
                    variant.get("registers"),
                    variant.get("spill_store_bytes"),
                    variant.get("spill_load_bytes"),
                    facts.get("registers_per_thread"),
                    facts.get("static_shared_bytes"),
                    facts.get("local_bytes"),
                    facts.get("active_blocks"),
                    json.dumps(variant.get("tool")),
                ),
            )
        for check in result["checks"]:
            self._db.execute(
                "insert into equality values (?,?,?,?,?,?)",
                (
                    run,
                    prepared["name"],
                    check["variant"],
                    check["seed"],
                    check["identical"],
                    json.dumps(check["where"]),
                ),
            )
        for name, timing in result["timings"].items():
            self._db.execute(
                "insert into timing values (?,?,?,?,?,?,?,?)",
                (
                    run,
                    prepared["name"],
                    name,
                    timing["median_ms"],
                    timing["p10_ms"],
                    timing["p90_ms"],
                    timing["rounds"],
                    json.dumps(timing["samples_ms"]),
                ),
            )
        self._db.commit()

    def add_sanitizer(
        self, run: int, kernel: str, variant: str, tool: str, status: str, detail: str
    ) -> None:
        self._db.execute(
            "insert into sanitizer values (?,?,?,?,?,?)",
            (run, kernel, variant, tool, status, detail),
        )
        self._db.commit()

    def add_counters(
        self, run: int, kernel: str, variant: str, rows: list[tuple[str, str, str]]
    ) -> None:
        """`rows` are (metric, unit, value)."""
        self._db.executemany(
            "insert into counter values (?,?,?,?,?,?)",
            [(run, kernel, variant, *row) for row in rows],
        )
        self._db.commit()

    def rows(self, query: str, *values: Any) -> list[Record]:
        """The rows of a query, as dictionaries."""
        return [dict(row) for row in self._db.execute(query, values)]

    def last_run(self) -> int:
        found = self.rows("select max(id) as id from run")
        return int(found[0]["id"] or 0)
