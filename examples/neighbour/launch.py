"""How `regdem tune` launches neighbour.cubin: a box of particles with random neighbour lists.

    regdem tune neighbour.cubin --launch launch.py:pair_forces -o faster.cubin

The function is called once for each set of inputs; what it launches is recorded and replayed for
every variant. Write one like it where a launch file won't do: here the fourth component of each
position holds the particle's type as the bits of an integer.
"""

import numpy as np

PARTICLES = 1 << 18
NEIGHBOURS = 96
TYPES = 4
THREADS = 256
BOX = np.dtype([("length", np.float32, 3), ("inverse", np.float32, 3)])


def pair_forces(run):
    """Records the launch for the inputs of `run.seed`."""
    rng = run.rng
    side = np.float32((PARTICLES / 0.8) ** (1 / 3))
    position = np.empty((PARTICLES, 4), np.float32)
    position[:, :3] = rng.random((PARTICLES, 3), dtype=np.float32) * side
    position[:, 3] = rng.integers(0, TYPES, PARTICLES, dtype=np.int32).view(np.float32)
    box = np.zeros((), BOX)
    box["length"], box["inverse"] = side, 1 / side
    # Neighbours lie near each other in memory, as after sorting particles by cell.
    near = rng.integers(1, 2048, (NEIGHBOURS, PARTICLES), dtype=np.int32)
    neighbours = (np.arange(PARTICLES, dtype=np.int32) + near) % np.int32(PARTICLES)
    args = [
        run.input(position),
        run.input(rng.standard_normal(PARTICLES, dtype=np.float32)),
        run.input(neighbours.astype(np.int32)),
        run.input(rng.integers(NEIGHBOURS // 2, NEIGHBOURS, PARTICLES, dtype=np.int32)),
        run.input(rng.random((TYPES * TYPES, 4), dtype=np.float32)),
        run.output((PARTICLES, 4), np.float32),
        run.output((PARTICLES, 7), np.float32),
        box[()],
        np.int32(TYPES),
        np.int32(PARTICLES),
        np.float32(side * side),
        np.float32(1.0),
        np.float32(0.5),
        np.int32(PARTICLES),
    ]
    run.launch(grid=PARTICLES // THREADS, block=THREADS, args=args)
