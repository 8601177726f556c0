"""Linear algebra, finance, chemistry, hashing, sequence models and cryptography of the suite."""

from __future__ import annotations

import numpy as np

from bench.suite.paper import array_of
from bench.suite.spec import (
    HostArray,
    KernelSpec,
    Problem,
    blocks_for,
    f32,
    i32,
    read,
    rng_for,
    suite_spec,
    u32,
    write,
)

BN254 = 0x30644E72E131A029B85045B68181585D2833E84879B9709143E1F593F0000001
GOLDILOCKS = (1 << 64) - (1 << 32) + 1


def _svd3(seed: int, small: bool) -> Problem:
    rng = rng_for("svd3", seed)
    n = 1000 if small else 1 << 20
    return Problem(
        blocks_for(n, 256),
        (
            read(rng.random((9, n), dtype=np.float32) - np.float32(0.5)),
            write(np.float32, 21, n),
            i32(5),
            i32(n),
        ),
    )


def _swaption_paths(seed: int, small: bool) -> Problem:
    rng = rng_for("swaption_paths", seed)
    n = 1000 if small else 1 << 20
    return Problem(
        blocks_for(n, 256),
        (
            read(rng.random(12, dtype=np.float32) * 0.02 + np.float32(0.03)),
            read(rng.random(12, dtype=np.float32) * 0.1 + np.float32(0.1)),
            write(np.float32, n),
            f32(0.035),
            f32(0.25),
            i32(40),
            u32(int(rng.integers(1 << 32))),
            i32(n),
        ),
    )


def _docking_energy(seed: int, small: bool) -> Problem:
    rng = rng_for("docking_energy", seed)
    n, protein, ligand = (512, 40, 8) if small else (1 << 20, 120, 26)
    atoms = rng.random((protein, 4), dtype=np.float32) * 20
    return Problem(
        blocks_for((n + 3) // 4, 64),
        (
            read(atoms),
            read(rng.integers(0, 16, protein, dtype=np.int32)),
            i32(protein),
            read(rng.random((ligand, 4), dtype=np.float32) * 6),
            read(rng.integers(0, 16, ligand, dtype=np.int32)),
            i32(ligand),
            read(rng.random((16, 4), dtype=np.float32) + np.float32(0.5)),
            read(rng.random((6, n), dtype=np.float32) * 6),
            write(np.float32, n),
            i32(n),
        ),
    )


def _hash_probe(seed: int, small: bool) -> Problem:
    """Half of the keys are in the table: placed at their first bucket's first free slot."""
    rng = rng_for("hash_probe", seed)
    n, buckets = (500, 1 << 8) if small else (1 << 19, 1 << 20)
    count = buckets * 2
    stored = rng.integers(1, 1 << 32, (count, 4), dtype=np.uint32)
    bucket = _bucket(stored, buckets)
    order = np.argsort(bucket, kind="stable")
    stored, bucket = stored[order], bucket[order]
    first = np.searchsorted(bucket, np.arange(buckets))
    rank = np.arange(count) - first[bucket]
    fits = rank < 4
    slots = np.zeros((buckets * 4, 4), np.uint32)
    slots[bucket[fits] * 4 + rank[fits]] = stored[fits]
    keys = rng.integers(1, 1 << 32, (4 * n, 4), dtype=np.uint32)
    known = rng.integers(0, count, 2 * n)
    keys[: 2 * n] = stored[known]
    keys = keys[rng.permutation(4 * n)]
    return Problem(
        blocks_for(n, 256),
        (
            read(keys),
            read(slots),
            read(rng.integers(0, 1 << 31, buckets * 4, dtype=np.uint32)),
            write(np.uint32, 4, n),
            u32(buckets - 1),
            i32(n),
        ),
    )


def _mix(x: HostArray) -> HostArray:
    x = x ^ (x >> np.uint64(33))
    x = x * np.uint64(0xFF51AFD7ED558CCD)
    x = x ^ (x >> np.uint64(33))
    x = x * np.uint64(0xC4CEB9FE1A85EC53)
    return x ^ (x >> np.uint64(33))


def _bucket(keys: HostArray, buckets: int) -> HostArray:
    words = np.ascontiguousarray(keys).view(np.uint64)
    mixed = _mix(words[:, 0] ^ _mix(words[:, 1])).astype(np.uint32)
    return (mixed & np.uint32(buckets - 1)).astype(np.int64)


def _hash_reference(problem: Problem) -> dict[int, HostArray]:
    keys, slots, values = (array_of(problem, k) for k in range(3))
    buckets = slots.shape[0] // 4
    start = _bucket(keys, buckets)
    found = np.full(len(keys), 0xFFFFFFFF, np.uint32)
    done = np.zeros(len(keys), bool)
    for probe in range(4):
        at = (start + probe) % buckets * 4
        full = np.ones(len(keys), bool)
        for k in range(4):
            slot = slots[at + k]
            hit = np.all(slot == keys, axis=1) & (found == 0xFFFFFFFF) & ~done
            found[hit] = values[at[hit] + k]
            full &= (slot[:, 0] | slot[:, 1]) != 0
        # a thread stops when none of its four keys is open; those probe on to no effect
        # unless a key sits beyond a gap, which placement excludes
        done |= ~full
    return {3: found.reshape(4, -1)}


def _selective_state(seed: int, small: bool) -> Problem:
    rng = rng_for("selective_state", seed)
    batch, channels = (2, 512) if small else (256, 8192)

    def normal(*shape: int) -> HostArray:
        return rng.random(shape, dtype=np.float32) * 2 - 1

    return Problem(
        ((channels + 255) // 256, batch, 1),
        (
            read(normal(batch, channels, 16)),
            read(normal(batch, channels)),
            read(normal(batch, channels)),
            read(-np.exp(normal(channels, 16))),
            read(normal(batch, 16)),
            read(normal(batch, 16)),
            read(normal(batch, channels)),
            write(np.float32, batch, channels, 16),
            write(np.float32, batch, channels),
            i32(channels),
        ),
    )


def _state_reference(problem: Problem) -> dict[int, HostArray]:
    state, x, dt, a, b, c, gate = (array_of(problem, k).astype(np.float64) for k in range(7))
    step = np.log1p(np.exp(dt))
    new = state * np.exp(a[None] * step[..., None]) + b[:, None, :] * (step * x)[..., None]
    total = np.sum(new * c[:, None, :], axis=2) + 0.5 * x
    return {7: new, 8: total * gate / (1 + np.exp(-gate))}


def _field(rng: np.random.Generator, count: int) -> HostArray:
    """Random 256-bit residues below the prime: the top word is kept under the prime's."""
    words = rng.integers(0, 1 << 32, (count, 8), dtype=np.uint32)
    words[:, 7] %= np.uint32(BN254 >> 224)
    return words


def _ntt_butterfly(seed: int, small: bool) -> Problem:
    rng = rng_for("ntt_butterfly", seed)
    quarter = 500 if small else 1 << 20
    return Problem(
        blocks_for(quarter, 128),
        (
            read(_field(rng, 4 * quarter)),
            read(_field(rng, 2 * quarter)),
            write(np.uint32, 4 * quarter, 8),
            i32(quarter),
        ),
    )


def _ntt_reference(problem: Problem) -> dict[int, HostArray]:
    def numbers(position: int) -> list[int]:
        data = array_of(problem, position)
        return [int.from_bytes(row.tobytes(), "little") for row in data]

    values, twiddles = numbers(0), numbers(1)
    quarter = len(values) // 4
    inverse = pow(1 << 256, -1, BN254)

    def mul(a: int, b: int) -> int:
        return a * b * inverse % BN254

    out = [0] * len(values)
    for t in range(quarter):
        a, b, c, d = (values[k * quarter + t] for k in range(4))
        w, v = twiddles[t], twiddles[quarter + t]
        s, p = (a + c) % BN254, (b + d) % BN254
        u, q = mul(a - c, w), mul(b - d, v)
        results = ((s + p) % BN254, mul(s - p, w), (u + q) % BN254, mul(u - q, v))
        for k, result in enumerate(results):
            out[k * quarter + t] = result
    data = b"".join(value.to_bytes(32, "little") for value in out)
    return {2: np.frombuffer(data, np.uint32).reshape(-1, 8)}


def _poseidon_rounds(seed: int, small: bool) -> Problem:
    rng = rng_for("poseidon_rounds", seed)
    n, rounds = (200, 3) if small else (1 << 20, 8)
    return Problem(
        blocks_for(n, 128),
        (
            read(rng.integers(0, GOLDILOCKS, (8, n), dtype=np.uint64)),
            read(rng.integers(0, GOLDILOCKS, (rounds, 8), dtype=np.uint64)),
            write(np.uint64, 8, n),
            i32(rounds),
            i32(n),
        ),
    )


def _poseidon_reference(problem: Problem) -> dict[int, HostArray]:
    row = (7, 1, 3, 8, 8, 3, 4, 9)
    states = array_of(problem, 0).T.tolist()
    constants = array_of(problem, 1).tolist()
    done: list[list[int]] = []
    for state in states:
        for line in constants:
            state = [pow(s + c, 7, GOLDILOCKS) for s, c in zip(state, line, strict=True)]
            state = [
                sum(state[k] * row[(k - i) % 8] for k in range(8)) % GOLDILOCKS for i in range(8)
            ]
        done.append(state)
    return {2: np.array(done, np.uint64).T}


OTHERS: tuple[KernelSpec, ...] = (
    suite_spec("svd3", _svd3, "3x3 singular value decomposition", 256),
    suite_spec("swaption_paths", _swaption_paths, "swaption Monte Carlo", 256),
    suite_spec("docking_energy", _docking_energy, "protein-ligand docking", 64),
    suite_spec(
        "hash_probe",
        _hash_probe,
        "hash-table probe, 128-bit keys",
        256,
        reference=_hash_reference,
        tolerance=0.0,
    ),
    suite_spec(
        "selective_state",
        _selective_state,
        "selective state-space update",
        256,
        reference=_state_reference,
    ),
    suite_spec(
        "ntt_butterfly",
        _ntt_butterfly,
        "256-bit modular multiplication: NTT butterflies",
        128,
        reference=_ntt_reference,
        tolerance=0.0,
    ),
    suite_spec(
        "poseidon_rounds",
        _poseidon_rounds,
        "Poseidon rounds over a 64-bit prime",
        128,
        reference=_poseidon_reference,
        tolerance=0.0,
    ),
)
