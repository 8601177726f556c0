"""Files are written whole or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from regdem.binary import write_atomically
from regdem.errors import UsageError


def test_a_file_is_written_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "out.cubin"
    write_atomically(path, b"one")
    assert path.read_bytes() == b"one"
    path.chmod(0o640)
    write_atomically(path, b"two")
    assert path.read_bytes() == b"two"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert [p.name for p in tmp_path.iterdir()] == ["out.cubin"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"old")
    os.symlink(tmp_path / "real", tmp_path / "link")
    write_atomically(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


def test_failures_leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="can't be written"):
        write_atomically(tmp_path / "missing" / "x", b"1")
    with pytest.raises(UsageError, match="folder"):
        write_atomically(tmp_path, b"1")
    path = tmp_path / "x"
    path.write_bytes(b"old")

    def broken(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", broken)
    with pytest.raises(UsageError, match="no space left"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def test_a_device_is_written_directly() -> None:
    write_atomically("/dev/null", b"data")
