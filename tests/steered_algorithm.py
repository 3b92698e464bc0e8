"""A stand-in for an algorithm: tells results to callbacks as `train()` does, and saves small files.

It has no envs and no learner, so that tests of callbacks can say which results there are.
"""

from pathlib import Path
from types import SimpleNamespace

import numpy as np

from callbacks import CallbackChain, CallbackSpec
from callbacks.chain import ResultPhases
from callbacks.ready_made.metric_values import RETURN
from checkpoints import CheckpointWriteError
from checkpoints.writer import encode_checkpoint, write_encoded


class SteeredAlgorithm:
    """Life: `tell(result)` as often as wanted; `chain` holds the copies of the callbacks.

    Attributes:
        num_failures_to_come: so many saves fail, with `failure`.
        saved: names of what was saved, in order.
    """

    def __init__(self, *callbacks, evaluation_interval=None):
        self.training_iteration = 0
        self.is_stopped = False
        self.config = SimpleNamespace(evaluation_interval=evaluation_interval)
        self.metrics = None
        self.env_runner_group = None
        self.eval_env_runner_group = None
        self.weights = {"default_policy": {"pi": np.ones((2, 3), np.float32)}}
        self.num_failures_to_come = 0
        self.failure = OSError(28, "no space left")
        self.saved = []
        self._waiting = ResultPhases()
        self._under_way = None
        self.callbacks = CallbackChain(CallbackSpec(list(callbacks)))
        self.callbacks.fire("on_algorithm_init", algorithm=self, metrics_logger=None)

    @property
    def first(self):
        """The copy of the first callback."""
        return self.callbacks.objects[0]

    def tell(self, result=None, /, **changes):
        """Makes an iteration with this result (default: `result_of`), and returns it."""
        self.training_iteration += 1
        told = result_of(self.training_iteration, **changes) if result is None else result
        self._waiting = ResultPhases()
        self.callbacks.fire(
            "on_train_result", algorithm=self, metrics_logger=self.metrics, result=told
        )
        self._waiting.run(told)
        return told

    def tell_returns(self, values):
        """An iteration for each mean return."""
        return [self.tell(mean=value) for value in values]

    def go_on(self, iteration):
        """As after a checkpoint of this iteration was loaded; returns itself."""
        self.training_iteration = iteration
        self.callbacks.fire("on_checkpoint_loaded", algorithm=self, metrics_logger=self.metrics)
        return self

    def after_train_result(self, function, *, phase=None):
        self._waiting.add(function, phase)

    def save_to_path(self, path=None, *, background=False, when_over=None):
        """In the background, nothing is written before `finish_saving()`, or the next save."""
        self.finish_saving()
        if background:
            self._under_way = self._encoded(), str(path), when_over
            return str(path)
        if self.num_failures_to_come:
            self.num_failures_to_come -= 1
            raise self.failure
        return self._write(path, self._encoded())

    def finish_saving(self):
        if self._under_way is None:
            return
        (encoded, path, when_over), self._under_way = self._under_way, None
        error = None
        if self.num_failures_to_come:
            self.num_failures_to_come -= 1
            error = CheckpointWriteError("in the background")
            error.__cause__ = self.failure
        else:
            self._write(path, encoded)
        if when_over is not None:
            when_over(error)

    def _encoded(self):
        return encode_checkpoint(
            components={"callbacks": self.callbacks.get_state()},
            metadata={"training_iteration": self.training_iteration},
        )

    def _write(self, path, encoded):
        write_encoded(path, encoded)
        self.saved.append(Path(path).name)
        self.callbacks.fire(
            "on_checkpoint_saved", algorithm=self, metrics_logger=self.metrics, path=str(path)
        )
        return str(path)

    def evaluate(self):
        raise NotImplementedError

    def get_module(self, module_id="default_policy", /):
        raise NotImplementedError

    def get_weights(self):
        return self.weights


def result_of(iteration, *, mean=1.0, steps_per_iteration=100, episodes_per_iteration=5, **more):
    """What `train()` would return after so many equal iterations of 2 seconds each."""
    return {
        "training_iteration": iteration,
        "done": False,
        "num_env_steps_sampled_lifetime": iteration * steps_per_iteration,
        "time_total_s": 2.0 * iteration,
        "time_this_iter_s": 2.0,
        "env_runners": {
            RETURN.rpartition("/")[2]: mean,
            "num_env_steps_sampled": steps_per_iteration,
            "num_episodes": episodes_per_iteration,
            "num_episodes_lifetime": iteration * episodes_per_iteration,
        },
        "learners": {"default_policy": {"total_loss": 0.5}},
        "fault_tolerance": {},
        **more,
    }
