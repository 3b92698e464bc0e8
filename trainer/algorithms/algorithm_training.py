"""One training iteration: sampling, learning, evaluation when due, and the result."""

from __future__ import annotations

import abc
import time
from collections.abc import Callable, Mapping
from typing import Any

from checkpoints.arguments import judges_arguments
from trainer.algorithms.algorithm_evaluation import AlgorithmEvaluation
from trainer.algorithms.iteration_result import IterationResult, merge_late_values
from trainer.env_runners import GroupSample
from trainer.errors import TrainerError
from trainer.metrics import ResultDict

AfterResult = Callable[[ResultDict], object]


class AlgorithmTraining(AlgorithmEvaluation, abc.ABC):
    """Adds the training iteration to an algorithm."""

    _iteration_under_way: IterationResult | None = None
    _after_result: list[AfterResult] | None = None
    _is_training: bool = False

    @abc.abstractmethod
    def training_step(self) -> None:
        """Samples and learns once."""

    @property
    def _iteration(self) -> IterationResult:
        """What this iteration adds up to."""
        if not self._is_training or self._iteration_under_way is None:
            raise TrainerError(
                f"A part of {type(self).__name__}.train() was called by itself (training_step(), "
                "sample_env_steps() or learn()): there is no iteration that it belongs to. Call "
                "train(); to do something else in an iteration, override training_step()."
            )
        return self._iteration_under_way

    def _refuse_within_train(self) -> None:
        """Raises a TrainerError if a callback calls `train()` while it runs."""
        if self._is_training:
            raise TrainerError(
                "train() was called by a callback while train() runs; an iteration cannot be a "
                "part of another one. Leave a note in the callback, and call it in your own loop."
            )

    def _train(self) -> ResultDict:
        """Makes one iteration; whoever calls it undoes it if it raises."""
        self._note_training(is_training=True)
        before = self.counters.training_iteration
        returned: Any = self.step()
        result = self._checked_result(returned, before)
        self._set_tasks(result)
        self._tell_result(result)
        self._note_training(is_training=False)
        return result

    def step(self) -> ResultDict:
        """Samples, learns, evaluates when due, and puts the result together: the middle of `train`.

        A subclass may add to it: `result = super().step()`, then its own entries. `env_task_fn` and
        `on_train_result` see what it returns.

        Raises:
            TrainerError: it was called by itself; only `train()` can undo what fails.
        """
        if not self._is_training:
            raise TrainerError(
                f"{type(self).__name__}.step() was called by itself. It is a part of an iteration, "
                "which train() completes, and undoes if it fails. Call train()."
            )
        return self._make_iteration()

    def _checked_result(self, result: Any, iteration_before: int) -> ResultDict:
        """What `step()` returned, if a subclass left a whole iteration in it."""
        name = type(self).__name__
        if self.counters.training_iteration != iteration_before + 1:
            raise TrainerError(
                f"{name}.step() made {self.counters.training_iteration - iteration_before} "
                "iterations; expected one. Call super().step() once in it; what is sampled and "
                "learnt is changed in training_step()."
            )
        if not isinstance(result, Mapping):
            raise TrainerError(
                f"{name}.step() returned {result!r:.80}; expected the result. Write `result = "
                "super().step()`, add to it, and `return result`."
            )
        return result if isinstance(result, ResultDict) else ResultDict(result)

    def _note_training(self, *, is_training: bool) -> None:
        self._is_training = self.env_runner_group.is_training = is_training

    def _make_iteration(self) -> ResultDict:
        started_at = time.monotonic()
        result = IterationResult(self.counters)
        self.episode_statistics.begin_iteration()
        is_due = self._is_evaluation_due(self.counters.training_iteration + 1)
        if self._interrupted is not None or (
            is_due and self.config.evaluation_parallel_to_training
        ):
            with result.time("evaluation_iteration"):
                self._begin_evaluation_beside_training(is_due=is_due)
        while not self._has_done_enough(result, time.monotonic() - started_at):
            self._iteration_under_way = result
            self.training_step()
            self.apply_normalization()
            self._look_after_evaluation()
            result.num_training_steps += 1
            self.counters.num_training_steps += 1
        self.counters.training_iteration += 1
        if is_due or self._running_evaluation is not None:
            with result.time("evaluation_iteration"):
                self._evaluate_after_training_step(is_due=is_due)
        return self._compile(result, time.monotonic() - started_at)

    def _set_tasks(self, result: ResultDict) -> None:
        """Lets `env_task_fn` choose the task of each training env."""
        function = self.config.env_task_fn
        if function is not None:
            results = ResultDict({key: value for key, value in result.items() if key != "config"})
            self.env_runner_group.set_tasks_by(function, results, name="env_task_fn")

    def _tell_result(self, result: ResultDict) -> None:
        """Fires `on_train_result`, then calls those who wait for the complete result."""
        peeked = self.metrics.peek()
        waiting = self._after_result = []
        try:
            self.callbacks.fire(
                "on_train_result", algorithm=self, metrics_logger=self.metrics, result=result
            )
            merge_late_values(result, before=peeked, after=self.metrics.compile())
            for function in waiting:  # which grows while it is gone through
                function(result)
        finally:
            self._after_result = None

    @judges_arguments
    def after_train_result(self, function: AfterResult) -> None:
        """Calls `function(result)` once the iteration is complete; for use in `on_train_result`.

        By then all callbacks have heard of the result, and what they logged is in it. So a
        checkpoint that is saved there goes on exactly, while one that is saved directly in
        `on_train_result` lacks what the callbacks that come later would have remembered. Functions
        are called in the order given; one that is given by another such function comes after all
        that are waiting, so that what decides comes before what saves. If one raises, `train()`
        raises the very same exception, not a `CallbackError` around it, and the iteration is
        undone; it will be made again with the same bytes.

        Args:
            function: called with what `train()` is about to return.

        Raises:
            TrainerError: no `on_train_result` is running, or `function` cannot be called.
        """
        if self._after_result is None:
            raise TrainerError(
                "after_train_result() was called while no on_train_result runs; no result is on "
                "its way. Call it in on_train_result, or just call the function."
            )
        if not callable(function):
            raise TrainerError(
                f"after_train_result() got {function!r}; expected a function that takes the "
                "result. Give the function itself, without calling it: "
                "`algorithm.after_train_result(save)`."
            )
        self._after_result.append(function)

    def _has_done_enough(self, result: IterationResult, elapsed_s: float) -> bool:
        config = self.config
        return (
            result.num_training_steps > 0
            and elapsed_s >= (config.min_time_s_per_iteration or 0)
            and result.num_env_steps_sampled >= (config.min_sample_timesteps_per_iteration or 0)
            and result.num_env_steps_trained >= (config.min_train_timesteps_per_iteration or 0)
        )

    def sample_env_steps(self, num_env_steps: int) -> GroupSample:
        """Lets the training runners play, and counts what they report.

        Args:
            num_env_steps: exactly so many steps, or at least so many with
                `batch_mode="complete_episodes"`.
        """
        result, timestep = self._iteration, self.counters.num_env_steps_sampled
        with result.time("env_runner_sampling_timer"):
            sample = self.env_runner_group.sample_env_steps(
                num_env_steps,
                whole_episodes=self.config.batch_mode == "complete_episodes",
                timestep=timestep,
            )
        self._look_after_evaluation()
        self.counters.num_env_steps_sampled += sample.num_env_steps
        self.counters.num_episodes += len(sample.records)
        self.counters.num_episodes_lost += sample.num_episodes_lost
        self.counters.num_env_steps_lost += sample.num_env_steps_lost
        result.add_sample(sample)
        self.episode_statistics.add(sample.records)
        self.metrics.aggregate(sample.metrics, key="env_runners")
        sample = self._explored(sample, timestep)
        if self.normalization_statistics.has_state:
            self.normalization_statistics.add(sample.episodes)
        return sample

    def _explored(self, sample: GroupSample, timestep: int) -> GroupSample:
        """Shows the sample to the exploration strategy, which may change rewards to learn from."""
        exploration = self.sample_exploration
        before = exploration.strategy.runner_state()
        sample = exploration.observe(
            sample, timestep=timestep, iteration=self.counters.training_iteration
        )
        if exploration.strategy.runner_state() != before:
            self._send_weights()
        return sample

    def _compile(self, result: IterationResult, elapsed_s: float) -> ResultDict:
        self._clock.add(elapsed_s)
        result.add_group(self.env_runner_group)
        return result.compile(
            user_metrics=self.metrics.peek(),
            episodes=self.episode_statistics.result(),
            evaluation=self._evaluation_to_show(),
            clock=self._clock,
            config=self.config,
            elapsed_s=elapsed_s,
        )
