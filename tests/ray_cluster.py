"""A small Ray cluster for tests: several nodes on this machine, each a machine for Ray."""

import contextlib
import importlib
import importlib.util
import warnings

import pytest

from trainer.testing import wait_until

STORE_BYTES = 100 * 2**20
CPUS_PER_NODE = 4
_GONE_WITHIN_S = 120.0


def why_no_ray():
    """Why there can be no cluster; "" if there can."""
    found = importlib.util.find_spec("ray")
    return "" if found else 'Ray is not installed: pip install "local-trainer[ray]"'


@contextlib.contextmanager
def cluster_for_tests():
    """Two nodes with 4 CPUs each, to which this process is connected.

    Tests are skipped, with the reason, on a machine where Ray cannot start its own processes.
    """
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, value in {
            "RAY_DEDUP_LOGS": "0",
            "RAY_AUTH_MODE": "disabled",
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
            "RAY_USAGE_STATS_ENABLED": "0",
        }.items():
            patch.setenv(name, value)
        patch.delenv("RAY_ADDRESS", raising=False)
        ray = importlib.import_module("ray")
        try:
            made = importlib.import_module("ray.cluster_utils").Cluster(
                initialize_head=True, head_node_args=_node(CPUS_PER_NODE)
            )
            made.add_node(**_node(CPUS_PER_NODE))
            made.wait_for_nodes()
            ray.init(address=made.address, logging_level="WARNING")
        except Exception as error:  # noqa: BLE001 - whatever Ray raises, ours has not begun
            pytest.skip(f"Ray starts no cluster on this machine: {type(error).__name__}: {error}")
        try:
            yield made
        finally:
            ray.shutdown()
            made.shutdown()


def _node(num_cpus, **arguments):
    return {"num_cpus": num_cpus, "object_store_memory": STORE_BYTES, **arguments}


@contextlib.contextmanager
def another_node(cluster, num_cpus=1, **resources):
    """One more node, until the end of the block or until the test removes it.

    Afterwards Ray knows that it is gone.
    """
    node = cluster.add_node(**_node(num_cpus, resources=resources))
    cluster.wait_for_nodes()
    try:
        yield node
    finally:
        remove(cluster, node)
        nodes = importlib.import_module("ray").nodes
        assert wait_until(
            lambda: not any(each["NodeID"] == node.node_id and each["Alive"] for each in nodes()),
            within_s=_GONE_WITHIN_S,
        )


def remove(cluster, node):
    """Removes a node at once, with all of its processes; nothing happens if it is gone."""
    if node in cluster.list_all_nodes():
        cluster.remove_node(node, allow_graceful=False)
