"""Env runners on two machines: a Ray cluster of two nodes on this one, and a node that is lost.

Run this file (it needs `pip install "local-trainer[ray]"`). It trains on processes of this machine,
then on the two nodes, one of which is removed in the middle of training, and compares what was
learnt: the same bytes. docs/scale-out.md explains what can be relied on.
"""

from __future__ import annotations

import argparse
import hashlib
from typing import Any

import ray
from ray.cluster_utils import Cluster

from trainer import PPOConfig

SMALL = {"num_cpus": 2, "object_store_memory": 100 * 2**20}


def config(engine: str) -> PPOConfig:
    """Two runners; in the cluster each reserves a CPU, and they are spread over the nodes."""
    return (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=2, num_envs_per_env_runner=2, num_cpus_per_env_runner=1)
        .training(train_batch_size=400, minibatch_size=100, num_epochs=2)
        .resources(engine=engine, placement_strategy="SPREAD")
        .debugging(seed=5)
    )


def digest(weights: dict[str, Any]) -> str:
    """A short digest of all weights."""
    arrays = weights["default_policy"]
    return hashlib.sha256(b"".join(arrays[name].tobytes() for name in sorted(arrays))).hexdigest()


def main() -> None:
    """Trains twice and compares."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=4)
    iterations = max(2, parser.parse_args().iterations)

    with config("local").build_algo() as algo:
        for _ in range(iterations):
            algo.train()
        undisturbed = digest(algo.get_weights())

    # Where your cluster runs already, this is ray.init(address="auto"), and nothing else changes.
    cluster = Cluster(initialize_head=True, head_node_args=SMALL)
    second = cluster.add_node(**SMALL)
    cluster.wait_for_nodes()
    ray.init(address=cluster.address, logging_level="ERROR")
    try:
        with config("ray").build_algo() as algo:
            for number in range(1, iterations + 1):
                result = algo.train()
                episodes = result["env_runners"]["num_episodes"]
                restarts = result["fault_tolerance"]["num_remote_worker_restarts"]
                print(f"iteration {number}: {episodes} episodes, {restarts} runners replaced")
                if number == iterations // 2:
                    cluster.remove_node(second, allow_graceful=False)
                    print("a machine is lost")
            learnt = digest(algo.get_weights())
    finally:
        ray.shutdown()
        cluster.shutdown()
    print(f"local {undisturbed[:16]}, on two nodes {learnt[:16]}")
    print("the same bytes" if learnt == undisturbed else "other bytes")


if __name__ == "__main__":
    main()
