"""One BLAS thread while somebody computes; afterwards as many as before, however blocks overlap."""

import os
import threading
import weakref

import gymnasium as gym
import pytest

from trainer.modules import ActorCriticModule, RLModuleSpec
from trainer.runtime import threads
from trainer.runtime.threads import SingleThreadedBlas, single_threaded_blas


class Blas:
    """A BLAS as far as it is asked here."""

    def __init__(self):
        self.number = 4

    def get(self):
        return self.number

    def set(self, number):
        self.number = number


@pytest.fixture
def blas(monkeypatch):
    blas = Blas()
    monkeypatch.setattr(threads, "_thread_functions", lambda: (blas.get, blas.set))
    assert SingleThreadedBlas._users == {}
    yield blas
    assert SingleThreadedBlas._users == {}


def test_the_number_is_put_back_also_after_an_error(blas):
    with pytest.raises(ValueError, match="inside"), single_threaded_blas():  # noqa: PT012
        assert blas.number == 1
        raise ValueError("inside")
    assert blas.number == 4


def test_a_block_within_a_block_leaves_it_to_the_outer_one(blas):
    with single_threaded_blas():
        with single_threaded_blas():
            assert blas.number == 1
        assert blas.number == 1
    assert blas.number == 4


def test_the_last_of_overlapping_threads_puts_it_back(blas):
    """The first one goes while the second is still inside."""
    is_inside, may_go, numbers = threading.Event(), threading.Event(), []

    def second():
        with single_threaded_blas():
            is_inside.set()
            assert may_go.wait(10)
            numbers.append(blas.number)

    thread = threading.Thread(target=second)
    with single_threaded_blas():
        thread.start()
        assert is_inside.wait(10)
    may_go.set()
    thread.join()
    assert numbers == [1]
    assert blas.number == 4


def test_networks_draw_their_weights_with_one_thread(blas):
    """Two threads of BLAS wait for each other where other processes need the cores, too."""
    numbers = []

    class Network(ActorCriticModule):
        def setup(self):
            super().setup()
            numbers.append(blas.number)

    space = gym.spaces.Discrete(2)
    RLModuleSpec(Network, observation_space=space, action_space=space).build()
    assert numbers == [1]
    assert blas.number == 4


@pytest.mark.skipif(not hasattr(os, "register_at_fork"), reason="no fork here")
def test_a_forked_process_does_not_wait_for_threads_that_it_does_not_have(blas):
    """The hooks of a fork, called one after the other: other tests may have left threads."""
    SingleThreadedBlas._users[-1] = weakref.ref(
        single_threaded_blas()
    )  # a thread that computes meanwhile
    SingleThreadedBlas._before, blas.number = 4, 1
    with single_threaded_blas():
        SingleThreadedBlas._lock.acquire()
        SingleThreadedBlas.forget_other_threads()
        assert blas.number == 1
    assert blas.number == 4

    SingleThreadedBlas._users[-1] = weakref.ref(single_threaded_blas())
    SingleThreadedBlas._before, blas.number = 4, 1
    SingleThreadedBlas._lock.acquire()
    SingleThreadedBlas.forget_other_threads()
    assert blas.number == 4
