"""An asynchronous parameter server: workers push gradients whenever they have them.

A linear model is fitted to data of which each worker has a part. The server is an actor, which does
one call at a time: no gradient is lost, and no lock is needed. docs/actors.md has the synchronous
one, in which the main process hands futures around.
"""

from __future__ import annotations

import numpy as np

from trainer import actors


class ParameterServer:
    """Holds the weights."""

    def __init__(self, size: int, learning_rate: float) -> None:
        self.weights = np.zeros(size)
        self.learning_rate = learning_rate
        self.num_gradients = 0

    def get(self) -> np.ndarray:
        return self.weights

    def push(self, gradient: np.ndarray) -> np.ndarray:
        """Applies a gradient and gives the new weights, in one call."""
        self.weights = self.weights - self.learning_rate * gradient
        self.num_gradients += 1
        return self.weights

    def count(self) -> int:
        return self.num_gradients


class Worker:
    """Has a part of the data; finds the server by its name."""

    def __init__(self, rank: int, true_weights: np.ndarray, num_rows: int) -> None:
        rng = np.random.default_rng([7, rank])
        self.inputs = rng.standard_normal((num_rows, len(true_weights)))
        self.targets = self.inputs @ true_weights + 0.01 * rng.standard_normal(num_rows)

    def work(self, num_gradients: int) -> None:
        server = actors.get_actor("parameter_server")
        weights = actors.get(server.get.remote())
        for _ in range(num_gradients):
            # Others push meanwhile, so these weights may be some steps old.
            errors = self.inputs @ weights - self.targets
            gradient = self.inputs.T @ errors / len(errors)
            weights = actors.get(server.push.remote(gradient))


def main(num_workers: int = 2, num_gradients: int = 200, size: int = 8) -> float:
    """Fits the model; returns the largest error of a weight."""
    true_weights = np.linspace(-1.0, 1.0, size)
    server = actors.remote(ParameterServer).options(name="parameter_server").remote(size, 0.1)
    worker_class = actors.remote(
        Worker
    )  # `@actors.remote` on the class does the same, unseen by mypy
    workers = [worker_class.remote(rank, true_weights, 500) for rank in range(num_workers)]
    actors.get([worker.work.remote(num_gradients) for worker in workers])
    weights, count = actors.get([server.get.remote(), server.count.remote()])
    error = float(np.abs(weights - true_weights).max())
    print(f"{count} gradients of {num_workers} workers; largest error of a weight: {error:.4f}")
    actors.shutdown()
    return error


if __name__ == "__main__":
    main()
