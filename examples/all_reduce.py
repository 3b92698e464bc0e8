"""A ring all-reduce: every member gives a vector, and every member gets the sum of all.

The vector is cut into as many chunks as there are members. Each chunk goes round the ring once and
grows into the sum, then once more to tell it to all. So each member sends the same number of bytes,
however many there are.

The main process writes down all calls at once and waits for none: a chunk is a future until it is
there, and calls to one actor keep their order. A member never waits for another, so none can wait
in a circle.
"""

from __future__ import annotations

import numpy as np

from trainer import actors


class Member:
    """Holds a vector, in chunks."""

    def __init__(self, vector: np.ndarray, num_chunks: int) -> None:
        self.chunks: list[np.ndarray] = [
            chunk.copy() for chunk in np.array_split(vector, num_chunks)
        ]

    def give(self, chunk: int) -> np.ndarray:
        return self.chunks[chunk]

    def add(self, chunk: int, values: np.ndarray) -> None:
        self.chunks[chunk] += values

    def replace(self, chunk: int, values: np.ndarray) -> None:
        self.chunks[chunk] = values

    def vector(self) -> np.ndarray:
        return np.concatenate(self.chunks)


def all_reduce(num_members: int) -> None:
    """Lets the members `member_0`, `member_1`, … exchange what they hold; returns at once."""
    ring = [actors.get_actor(f"member_{rank}") for rank in range(num_members)]
    for method, first in (("add", 0), ("replace", 1)):
        for step in range(num_members - 1):
            chunks = [(rank + first - step) % num_members for rank in range(num_members)]
            # First all give, then all take: so that they do it side by side.
            given = [member.give.remote(chunk) for member, chunk in zip(ring, chunks, strict=True)]
            for rank, (chunk, values) in enumerate(zip(chunks, given, strict=True)):
                getattr(ring[(rank + 1) % num_members], method).remote(chunk, values)


def main(num_members: int = 3, size: int = 100_000) -> list[np.ndarray]:
    """Reduces vectors of random numbers; returns what each member has in the end."""
    rng = np.random.default_rng(7)
    vectors = [rng.standard_normal(size) for _ in range(num_members)]
    members = [
        actors.remote(Member).options(name=f"member_{rank}").remote(vector, num_members)
        for rank, vector in enumerate(vectors)
    ]
    all_reduce(num_members)
    sums: list[np.ndarray] = actors.get([member.vector.remote() for member in members])
    error = max(float(np.abs(total - np.sum(vectors, axis=0)).max()) for total in sums)
    print(f"{num_members} members, {size} numbers each: largest error {error:.1e}")
    actors.shutdown()
    return sums


if __name__ == "__main__":
    main()
