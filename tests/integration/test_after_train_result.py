"""What callbacks defer to the end of an iteration: order, completeness, exactness, undoing."""

import pytest

from callbacks import RLlibCallback
from tests.small_runs import known, small_ppo
from trainer import TrainerError


def _config(*callbacks, **events):
    made = small_ppo(env="CartPole-v1", num_slots=1, batch=100)
    return made.callbacks(list(callbacks), **events)


class _Counts(RLlibCallback):
    def __init__(self):
        self.num_results = 0

    def on_train_result(self, *, metrics_logger, **kwargs):
        self.num_results += 1
        metrics_logger.log_value("logged_late", self.num_results, reduce="max")


def test_functions_run_last_in_order_and_see_what_was_logged_late():
    calls = []

    def first(algorithm):
        algorithm.after_train_result(lambda result: calls.append(result["logged_late"]))
        algorithm.after_train_result(lambda result: calls.append("second"))
        calls.append("event")

    # A group, so that the functions of the event come after the class that counts.
    config = _config(_Counts, on_train_result=[first, lambda **kwargs: calls.append("last")])
    with config.build_algo() as algo:
        algo.train()
    assert calls == ["event", "last", 1, "second"]


def test_an_error_in_such_a_function_undoes_the_iteration():
    fails = [True]

    def defer(algorithm):
        def function(result):
            if fails.pop():
                raise OSError("disk full")

        algorithm.after_train_result(function)

    with _config(on_train_result=defer).build_algo() as algo:
        before = known(algo)
        with pytest.raises(OSError, match="disk full"):
            algo.train()
        assert known(algo) == before
        fails.append(False)
        assert algo.train()["training_iteration"] == 1


def test_outside_the_event_it_is_refused():
    with _config().build_algo() as algo:
        for _ in range(2):
            with pytest.raises(TrainerError, match="no on_train_result runs"):
                algo.after_train_result(print)
            algo.train()


def test_what_cannot_be_called_is_refused_at_once():
    refused = []

    def defer(algorithm):
        with pytest.raises(TrainerError, match=r"None.*expected a function that takes the result"):
            algorithm.after_train_result(None)
        refused.append(algorithm.training_iteration)

    with _config(on_train_result=defer).build_algo() as algo:
        algo.train()
    assert refused == [1]


@pytest.mark.parametrize("waits", [False, True])
def test_an_iteration_inside_another_one_is_refused(waits):
    inside = []

    def train(algorithm):
        with pytest.raises(TrainerError, match="called by a callback") as caught:
            algorithm.train()
        inside.append(str(caught.value))

    def listen(algorithm):
        if waits:
            algorithm.after_train_result(lambda result: train(algorithm))
        else:
            train(algorithm)

    with _config(on_train_result=listen).build_algo() as algo:
        assert [algo.train()["training_iteration"] for _ in range(2)] == [1, 2]
    assert len(inside) == 2
