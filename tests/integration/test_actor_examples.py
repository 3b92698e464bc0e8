"""The examples with actors run, and what they compute is right."""

import numpy as np
import pytest

from examples import all_reduce, named_counter, parameter_server

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("actors_end")]


def test_the_counter_hears_of_every_fall_in_all_runners():
    counts = named_counter.main(num_env_runners=2, iterations=1, batch=400)
    assert set(counts) == {"left", "right"}
    assert 8 < sum(counts.values()) < 50  # 400 steps; a random policy falls after some 20


def test_the_parameter_server_finds_the_weights():
    assert parameter_server.main(num_workers=2, num_gradients=60, size=3) < 0.02
    assert parameter_server.main(num_workers=1, num_gradients=1, size=3) > 0.5  # too few


@pytest.mark.parametrize("num_members", [1, 3])
def test_all_members_of_the_ring_get_the_same_sum(num_members):
    size = 10  # not a multiple of the number of chunks
    sums = all_reduce.main(num_members=num_members, size=size)
    rng = np.random.default_rng(7)
    expected = np.sum([rng.standard_normal(size) for _ in range(num_members)], axis=0)
    for total in sums:
        np.testing.assert_allclose(total, expected, atol=1e-12)
        assert total.tobytes() == sums[0].tobytes()
