"""Containers: what is found in them, and that hostile ones cost little and fail clearly."""

from __future__ import annotations

import io
import json
import os
import random
import struct
import subprocess
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regdem.binary import Cubin, open_container
from regdem.binary.archives import Limits
from regdem.errors import InputError

from .support import CUBINS, DATA, tool

FATBINS = sorted((DATA / "containers").glob("*.fatbin"))
CUBIN = (DATA / "linked_sm_75.cubin").read_bytes()
FATBIN = FATBINS[0].read_bytes()


def zipped(members: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return stream.getvalue()


def ar(members: dict[str, bytes]) -> bytes:
    out = bytearray(b"!<arch>\n")
    for name, content in members.items():
        out += f"{name + '/':<16}{0:<12}{0:<6}{0:<6}{644:<8}{len(content):<10}`\n".encode()
        out += content + b"\n" * (len(content) & 1)
    return bytes(out)


@pytest.mark.parametrize("path", CUBINS, ids=lambda p: p.stem)
def test_a_cubin_is_its_own_container(path: Path) -> None:
    (entry,) = open_container(path)
    assert entry.kind == "cubin"
    assert entry.arch == Cubin.parse(path.read_bytes()).arch
    assert entry.read() == path.read_bytes()
    assert entry.size == len(path.read_bytes())


@pytest.mark.parametrize("path", FATBINS, ids=lambda p: p.stem)
def test_fat_binaries_of_both_compressions(path: Path) -> None:
    entries = open_container(path)
    assert [(e.kind, e.arch) for e in entries] == [
        ("cubin", "sm_75"),
        ("ptx", "sm_90"),
        ("cubin", "sm_90"),
    ]
    for entry in entries:
        data = entry.read()
        assert len(data) == entry.size
        if entry.kind == "cubin":
            assert len(Cubin.parse(data).kernels) == 5
        else:
            assert b".target sm_90" in data


def test_both_compressions_hold_the_same_code() -> None:
    first, second = ([e.read() for e in open_container(path)] for path in FATBINS)
    assert first == second


def test_bytes_and_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(open_container(FATBIN, name="x")) == 3

    class Input:
        buffer = io.BytesIO(FATBIN)

    monkeypatch.setattr("sys.stdin", Input())
    entries = open_container("-")
    assert len(entries) == 3
    assert entries[0].name.startswith("<stdin>!")


def test_zip_archives_and_archives_in_them(tmp_path: Path) -> None:
    inner = ar({"a.o": FATBIN, "b.txt": b"text"})
    data = zipped(
        {
            "../../escape.cubin": CUBIN,
            "lib/libx.a": inner,
            "notes.txt": b"nothing here",
            "deep.zip": zipped({"k.cubin": CUBIN}),
        }
    )
    path = tmp_path / "x.whl"
    path.write_bytes(data)
    entries = open_container(path)
    assert [e.kind for e in entries].count("cubin") == 4
    assert any("libx.a!a.o" in e.name for e in entries)
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["x.whl"]
    assert not (tmp_path.parent.parent / "escape.cubin").exists()


def test_a_large_member_is_read_from_a_temporary_file(tmp_path: Path) -> None:
    rng = random.Random(1)
    big = CUBIN + rng.randbytes(6 << 20)
    path = tmp_path / "x.pt2"
    path.write_bytes(zipped({"k.cubin": big}))
    (entry,) = open_container(path)
    assert entry.read() == big


def test_a_triton_cache_has_sidecars(tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "HASH"
    folder.mkdir(parents=True)
    (folder / "kernel.cubin").write_bytes(CUBIN)
    (folder / "kernel.ptx").write_text(".version 8.4\n.target sm_90a, texmode\n")
    (folder / "kernel.json").write_text(
        json.dumps({"name": "kernel", "num_warps": 8, "shared": 24576, "cluster_dims": [2, 1, 1]})
    )
    (folder / "broken.cubin").write_bytes(CUBIN[:30])
    (folder / "other.cubin").write_bytes(CUBIN)
    (folder / "other.json").write_text("[not json")
    (folder / "__grp__kernel.json").write_text("{}")
    os.symlink("/etc", folder / "link")
    entries = {Path(e.name).name: e for e in open_container(tmp_path)}
    assert set(entries) == {"kernel.cubin", "kernel.ptx", "broken.cubin", "other.cubin"}
    sidecar = entries["kernel.cubin"].sidecar
    assert sidecar is not None
    assert (sidecar.threads, sidecar.dynamic_shared_bytes) == (256, 24576)
    assert (sidecar.cluster, sidecar.name) == ((2, 1, 1), "kernel")
    assert entries["kernel.ptx"].arch == "sm_90a"
    assert entries["other.cubin"].sidecar is None
    with pytest.raises(InputError):
        Cubin.parse(entries["broken.cubin"].read())


def test_a_damaged_member_does_not_hide_the_others() -> None:
    entries = open_container(zipped({"a.so": FATBIN[:100], "b.cubin": CUBIN}))
    assert [(e.kind, e.problem is not None) for e in entries] == [
        ("unreadable", True),
        ("cubin", False),
    ]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "empty"),
        (b"some text that is neither", "not a file that regdem knows"),
        (b"\0\1\2\3" * 50, "not a file that regdem knows"),
        (FATBIN[:10], "truncated"),
        (FATBIN[:-3], "truncated"),
        (b"PK\x03\x04" + bytes(100), "zip archive is damaged"),
        (zipped({"a.txt": b"x"}), "no device code"),
        (ar({"a.txt": b"x"}), "no device code"),
        (ar({"a.o": FATBIN})[:-5], "truncated"),
        (b"\x7fELF" + bytes(10), "truncated"),
    ],
)
def test_bad_containers_give_one_sentence(data: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        open_container(data, name="some.file")
    assert caught.value.file == "some.file"
    assert "\n" not in str(caught.value)


def test_missing_files_and_devices() -> None:
    with pytest.raises(InputError, match="no such file"):
        open_container("/nonexistent/x.cubin")
    with pytest.raises(InputError, match="not a regular file"):
        open_container("/dev/null")


def test_a_zip_bomb_is_not_expanded() -> None:
    bomb = zipped({"a.cubin": b"\x7fELF" + bytes(64 << 20)})
    assert len(bomb) < 200_000
    (entry,) = open_container(bomb)
    assert entry.kind == "unreadable"
    assert "expands beyond reason" in (entry.problem or "")


def test_nesting_and_totals_are_limited() -> None:
    data = CUBIN
    for _ in range(8):
        data = zipped({"x.zip": data})
    (entry,) = open_container(data)
    assert "nested too deeply" in (entry.problem or "")
    with pytest.raises(InputError, match="more entries"):
        open_container(FATBIN, limits=Limits(entries=2))
    with pytest.raises(InputError, match="more files"):
        open_container(zipped({str(i): CUBIN for i in range(9)}), limits=Limits(files=5))
    (entry,) = open_container(zipped({"a.cubin": CUBIN}), limits=Limits(member_bytes=100))
    assert entry.kind == "unreadable"


@pytest.mark.parametrize("flag", [0x2000, 0x8000])
def test_a_payload_that_lies_about_its_size_is_refused(flag: int) -> None:
    payload = bytes(64)
    entry = struct.pack(
        "<HHIQIIHHIIIQQQ", 2, 0x101, 64, 64, 64, 0, 8, 1, 90, 0, 0, flag, 0, 1 << 31
    )
    data = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entry) + 64) + entry + payload
    (found,) = open_container(data)
    with pytest.raises(InputError, match="beyond reason"):
        found.read()


def exhaust(data: bytes) -> None:
    try:
        for entry in open_container(data, name="x"):
            if entry.size < 1 << 24:
                entry.read()
    except InputError:
        pass


@given(base=st.sampled_from(["fatbin", "fatbin2", "zip", "ar"]), data=st.data())
def test_damaged_containers_only_raise_input_errors(base: str, data: st.DataObject) -> None:
    whole = {
        "fatbin": FATBIN,
        "fatbin2": FATBINS[1].read_bytes(),
        "zip": zipped({"a.cubin": CUBIN, "b.fatbin": FATBIN, "a.json": b"{}"}),
        "ar": ar({"a.o": FATBIN}),
    }[base]
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(damaged) - 1))
        near = data.draw(st.sampled_from([at, at % 128, len(damaged) - 1 - at % 200]))
        damaged[near] = data.draw(st.integers(0, 255))
    exhaust(bytes(damaged))
    exhaust(bytes(damaged[: data.draw(st.integers(0, len(damaged)))]))


@given(
    st.binary(max_size=200),
    st.sampled_from([b"", b"PK\x03\x04", b"\x50\xed\x55\xba", b"!<arch>\n"]),
)
def test_arbitrary_bytes(data: bytes, magic: bytes) -> None:
    exhaust(magic + data)


@pytest.mark.tools
def test_programs_objects_and_libraries_of_nvcc(tmp_path: Path) -> None:
    compiler = tool("nvcc")
    assert compiler is not None
    source = tmp_path / "prog.cu"
    source.write_text("__global__ void k(float *a) { *a += 1; }\nint main() { return 0; }\n")
    base = [compiler, "-gencode", "arch=compute_80,code=sm_80", "-gencode"]
    base += ["arch=compute_90,code=[sm_90,compute_90]", "--compress-mode=size"]
    builds = {
        "prog": [str(source)],
        "libprog.so": ["-shared", "-Xcompiler", "-fPIC", str(source)],
        "prog.o": ["-c", str(source)],
        "rdc.o": ["-dc", str(source)],
        "prog.fatbin": ["-fatbin", str(source)],
    }
    for name, options in builds.items():
        out = tmp_path / name
        done = subprocess.run([*base, *options, "-o", str(out)], capture_output=True, text=True)
        if done.returncode and "libcudart" in done.stderr:
            continue  # a toolkit without its run-time library can't link programs
        if "Unsupported .version" in done.stderr:
            pytest.skip("the nvcc and the ptxas found here are of different toolkits")
        assert done.returncode == 0, done.stderr
        found = [
            (kernel.name, entry.arch)
            for entry in open_container(out)
            if entry.kind == "cubin"
            for kernel in Cubin.parse(entry.read(), entry.name).kernels
        ]
        assert sorted(found) == [("_Z1kPf", "sm_80"), ("_Z1kPf", "sm_90")], name
        assert [e.arch for e in open_container(out) if e.kind == "ptx"] == ["sm_90"], name
