"""What a callback may touch of the objects it receives, as structural protocols.

The classes of `trainer` satisfy these protocols without inheriting from them, so that this package
never imports `trainer`. They are the documented part of the objects; a callback that uses more does
so at its own risk. Use them to annotate callbacks and to write stand-ins in tests:

    def on_episode_end(self, *, episode: EpisodeView, **kwargs: Any) -> None: ...

`isinstance(x, EnvRunnerView)` checks that the members exist, not what they return.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, runtime_checkable

MetricKey = str | tuple[str, ...]
"""The name of a metric: one part, or the parts of a nested path."""


@runtime_checkable
class ConfigView(Protocol):
    """A read-only view of the configuration."""

    @property
    def in_evaluation(self) -> bool:
        """Whether the runner that holds it plays evaluation episodes."""


@runtime_checkable
class MetricsLoggerView(Protocol):
    """Where a callback logs values; they appear in the results.

    What is logged in events of an env runner appears under `env_runners/` (in evaluation under
    `evaluation/env_runners/`); what is logged in events of the algorithm appears at the top.
    """

    def log_value(
        self,
        key: MetricKey,
        value: Any,
        *,
        reduce: str | None = "mean",
        window: int | float | None = None,
        ema_coeff: float | None = None,
        clear_on_reduce: bool = False,
    ) -> None:
        """Log one value; by default a result shows the mean since the last result."""

    def log_dict(self, value_dict: Mapping[str, Any], *, key: MetricKey | None = None) -> None:
        """Log each leaf of a nested dict under `key`."""

    def log_time(self, key: MetricKey) -> AbstractContextManager[Any]:
        """A context that logs the seconds spent inside it."""

    def set_value(self, key: MetricKey, value: Any) -> None:
        """Replace the newest value."""

    def peek(self, key: MetricKey) -> Any:
        """The value as a result would show it now."""


@runtime_checkable
class RLModuleView(Protocol):
    """The network of one module id."""

    @property
    def observation_space(self) -> Any:
        """The gymnasium space of its observations."""

    @property
    def action_space(self) -> Any:
        """The gymnasium space of its actions."""

    def forward_inference(self, batch: dict[str, Any]) -> dict[str, Any]:
        """`{"obs": float32, [B, D]}` to `{"action_dist_inputs": float32, [B, K]}`."""

    def forward_exploration(self, batch: dict[str, Any]) -> dict[str, Any]:
        """As `forward_inference`, when actions are explored."""

    def get_state(self) -> dict[str, Any]:
        """Its weights: {name: array}."""


@runtime_checkable
class SampleBatchView(Protocol):
    """Columns with one row per env step; a dict whose length is the number of rows."""

    @property
    def count(self) -> int:
        """The number of rows (env steps)."""

    def __len__(self) -> int:
        """The number of rows (env steps)."""

    def __getitem__(self, column: str, /) -> Any:
        """A column, [T, ...]; change it in place, or assign another."""

    def __setitem__(self, column: str, values: Any, /) -> None:
        """Replace a column, or add one."""

    def __contains__(self, column: object, /) -> bool:
        """Whether there is a column of that name."""

    def __iter__(self) -> Iterator[str]:
        """The names of the columns."""

    def copy(self) -> Any:
        """A copy that shares nothing."""


@runtime_checkable
class VectorEnvView(Protocol):
    """The envs of one runner, stepped together."""

    @property
    def envs(self) -> Sequence[Any]:
        """The sub-envs by `env_index`; `envs[i].unwrapped` is the user's own object."""

    @property
    def num_envs(self) -> int:
        """How many sub-envs there are."""

    @property
    def unwrapped(self) -> Any:
        """The vector env without wrappers."""


@runtime_checkable
class EpisodeView(Protocol):
    """One episode, single-agent or multi-agent.

    In `on_episode_end`, `get_return()` is the return of the whole episode, also if it was cut into
    chunks.
    """

    @property
    def id_(self) -> str:
        """The same for every chunk of one episode."""

    @property
    def t(self) -> int:
        """The number of env steps, those of earlier chunks included."""

    @property
    def is_terminated(self) -> bool:
        """Whether the env reached a terminal state."""

    @property
    def is_truncated(self) -> bool:
        """Whether the episode was ended from outside, such as by a time limit."""

    @property
    def is_done(self) -> bool:
        """Whether it is terminated or truncated."""

    @property
    def task(self) -> Any:
        """The task of the env at the first step; None for envs without tasks."""

    @property
    def custom_data(self) -> dict[str, Any]:
        """A place for the data of callbacks; it survives the cut into chunks."""

    def __len__(self) -> int:
        """The number of env steps."""

    def get_observations(self, indices: Any = None, /) -> Any:
        """Observations: all, one (`-1` is the newest), or a slice."""

    def get_actions(self, indices: Any = None, /) -> Any:
        """Actions, indexed as observations."""

    def get_rewards(self, indices: Any = None, /) -> Any:
        """Rewards, indexed as observations."""

    def get_infos(self, indices: Any = None, /) -> Any:
        """Info dicts, indexed as observations."""

    def get_extra_model_outputs(self, key: str | None = None, indices: Any = None, /) -> Any:
        """What the module gave beside actions: {name: items}, or the items of one name."""

    def get_return(self) -> float:
        """The sum of all rewards, as the env paid them."""

    def get_rewritten_return(self) -> float | None:
        """The same with the rewards that callbacks wrote; None if they wrote none."""

    def env_steps(self) -> int:
        """The number of env steps."""

    def add_temporary_timestep_data(self, key: str, data: Any) -> None:
        """Append one entry to the list `key`; entries survive the cut into chunks."""

    def get_temporary_timestep_data(self, key: str) -> list[Any]:
        """The list `key`, empty when nothing was added."""


@runtime_checkable
class EnvRunnerView(Protocol):
    """The object that steps envs in one process."""

    @property
    def worker_index(self) -> int:
        """0 for the local env runner, 1, 2, ... for the others; the same after a restart."""

    @property
    def config(self) -> ConfigView:
        """A read-only view of the configuration, with `in_evaluation`."""

    @property
    def env(self) -> Any:
        """The vector env (see `VectorEnvView`)."""

    @property
    def module(self) -> Any:
        """The module that acts; None until it is built."""

    @property
    def metrics(self) -> Any:
        """The logger of this runner (see `MetricsLoggerView`)."""

    @property
    def num_envs(self) -> int:
        """How many sub-envs it steps."""

    @property
    def weights_version(self) -> int:
        """The number of updates behind the weights it acts with."""

    def env_seed(self, env_index: int, /) -> int | None:
        """What `env.reset(seed=...)` was given for the running episode of a sub-env."""


@runtime_checkable
class EnvRunnerGroupView(Protocol):
    """All env runners for training, or all for evaluation."""

    @property
    def local_env_runner(self) -> Any:
        """The env runner in the main process, or None."""

    def foreach_env_runner(
        self,
        func: Callable[[Any], Any],
        *,
        local_env_runner: bool = True,
        remote_worker_ids: Sequence[int] | None = None,
    ) -> list[Any]:
        """Call `func(env_runner)` on each: local first, then in order of their index."""

    def set_task(self, task: Any, /) -> None:
        """Give all sub-envs a task, with the next thing their runner is asked."""

    def get_tasks(self) -> list[Any]:
        """The tasks of all sub-envs, in order; None where there is none."""

    def healthy_env_runner_ids(self) -> list[int]:
        """The indices of the env runners in other processes that can be called."""


@runtime_checkable
class AlgorithmView(Protocol):
    """The algorithm as callbacks in the main process see it."""

    @property
    def training_iteration(self) -> int:
        """How many iterations are complete; 1 in the first `on_train_result`."""

    @property
    def config(self) -> Any:
        """The frozen configuration."""

    @property
    def metrics(self) -> Any:
        """The logger of the algorithm (see `MetricsLoggerView`)."""

    @property
    def is_stopped(self) -> bool:
        """Whether `stop()` was called: it will make no iteration any more."""

    @property
    def env_runner_group(self) -> Any:
        """The env runners for training (see `EnvRunnerGroupView`)."""

    @property
    def eval_env_runner_group(self) -> Any:
        """The env runners for evaluation, or None."""

    def evaluate(self) -> Any:
        """Play evaluation episodes now, without touching training."""

    def save_to_path(
        self,
        path: Any = None,
        *,
        background: bool = False,
        when_over: Callable[[Any], object] | None = None,
    ) -> Any:
        """Write a checkpoint; in the background, it holds this moment and training goes on.

        `when_over(error)` is called in the main thread when the end of such a save is noticed, with
        None if all is well; an error is then raised nowhere else.
        """

    def finish_saving(self) -> None:
        """Wait for a save in the background; the one who began it hears how it ended."""

    def after_train_result(
        self, function: Callable[[Any], object], *, phase: str | None = None
    ) -> None:
        """Call `function(result)` when all listeners of `on_train_result` have run.

        The phases are "decide" (the default), "save", "save_last" and "report".
        What it raises comes out of `train()` as it is, and the iteration is undone.
        """

    def get_module(self, module_id: str = "default_policy", /) -> Any:
        """The module being trained under this id."""

    def get_weights(self) -> Any:
        """Copies of all weights: module id → name → array."""
