"""Old names of env runners (RLlib's `RolloutWorker`), their envs and groups (its `WorkerSet`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NoReturn, Protocol

from gymnasium.spaces import Dict

from trainer.connectors import SampleBatch
from trainer.env_runners import SingleAgentEnvRunner
from trainer.envs.multi_agent_env import EnvAgents
from trainer.episodes import SingleAgentEpisode, nested
from trainer.episodes.episode_columns import INFOS, NEW_OBS
from trainer.errors import ConfigError
from trainer.metrics import EpisodeRecord, EpisodeStatistics
from trainer.rllib_names.installing import renamed
from trainer.runner_group import EnvRunnerGroup

# ---- one runner


class _EnvRunner(Protocol):
    # Properties, because type checkers compare writable members exactly.
    @property
    def config(self) -> Any: ...
    @property
    def env(self) -> Any: ...
    @property
    def modules(self) -> Any: ...


class _VectorEnv(Protocol):
    @property
    def envs(self) -> list[Any]: ...


class VectorEnvNames:
    """Adds the older names of a runner's sub-envs (RLlib's `BaseEnv`)."""

    def get_sub_environments(self: _VectorEnv, as_dict: bool = False) -> list[Any] | dict[int, Any]:
        """The sub-envs; by their index with `as_dict=True`."""
        return dict(enumerate(self.envs)) if as_dict else list(self.envs)


class EnvRunnerNames:
    """Adds the older names to an env runner."""

    policy_config = renamed("config")

    @property
    def policy_map(self: _EnvRunner) -> dict[str, Any]:
        """The modules by id."""
        return dict(self.modules)

    def get_spaces(self: _EnvRunner) -> dict[str, tuple[Any, Any]]:
        """The spaces of observations and actions: of the sub-envs, and by module id.

        Under "__env__" stand those of all sub-envs together, under "__env_single__" those of one.
        With several agents both are Dicts by agent of one sub-env.
        """
        env = self.env
        if hasattr(env, "single_observation_space"):
            whole = env.observation_space, env.action_space
            single = env.single_observation_space, env.single_action_space
        else:
            agents: Any = EnvAgents.of(env.envs[0], name=type(env.envs[0].unwrapped).__name__)
            single = Dict(dict(agents.observation_spaces)), Dict(dict(agents.action_spaces))
            whole = single
        spaces = {"__env__": whole, "__env_single__": single}
        for id_, module in self.modules.items():
            spaces[id_] = module.observation_space, module.action_space
        return spaces

    def get_policy(self: _EnvRunner, policy_id: str | None = None) -> Any:
        """A module, by default the only one; None for an id that does not exist."""
        return self.modules.only if policy_id is None else self.modules.get(policy_id)

    @property
    def policy_mapping_fn(self: _EnvRunner) -> Callable[..., Any]:
        """Gives the module of an agent of an episode: `fn(agent_id, episode)`."""
        return _module_for

    def get_policies_to_train(self: _EnvRunner) -> set[str]:
        """The ids of the modules that the config trains."""
        named = self.config.policies_to_train
        return set(self.modules) if named is None or callable(named) else set(named)

    def is_policy_to_train(self: _EnvRunner, policy_id: str, batch: Any = None) -> bool:
        """Whether a module learns from a batch."""
        return _is_trained(self.config, policy_id, batch)

    def set_policy_mapping_fn(self, *_: Any, **__: Any) -> NoReturn:
        """Refused: see `_refuse_change`."""
        _refuse_change("set_policy_mapping_fn", "set_policy_mapping_fn(fn)")

    def set_is_policy_to_train(self, *_: Any, **__: Any) -> NoReturn:
        """Refused: see `_refuse_change`."""
        _refuse_change("set_is_policy_to_train", "set_policies_to_train(ids)")

    def add_policy(self, *_: Any, **__: Any) -> NoReturn:
        """Refused: see `_refuse_change`."""
        _refuse_change("add_policy", "add_module(module_id)")

    def remove_policy(self, *_: Any, **__: Any) -> NoReturn:
        """Refused: see `_refuse_change`."""
        _refuse_change("remove_policy", "remove_module(module_id)")

    def for_policy(
        self: _EnvRunner,
        func: Callable[..., Any],
        policy_id: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """Calls `func(module, **kwargs)`."""
        if policy_id is not None and policy_id not in self.modules:
            raise KeyError(
                f"There is no module {policy_id!r}; expected one of {', '.join(self.modules)}."
            )
        module = self.modules.only if policy_id is None else self.modules[policy_id]
        return func(module, **kwargs)

    def foreach_policy(self: _EnvRunner, func: Callable[..., Any], **kwargs: Any) -> list[Any]:
        """Calls `func(module, module_id, **kwargs)` for every module, in the order of ids."""
        return [func(module, id_, **kwargs) for id_, module in self.modules.items()]

    def foreach_policy_to_train(
        self: _EnvRunner, func: Callable[..., Any], **kwargs: Any
    ) -> list[Any]:
        """The same for the modules that `policies_to_train` of the settings names."""
        pairs = [pair for pair in self.modules.items() if _is_trained(self.config, pair[0])]
        return [func(module, id_, **kwargs) for id_, module in pairs]


def _is_trained(config: Any, policy_id: str, batch: Any = None) -> bool:
    named = config.policies_to_train
    if callable(named):
        return bool(named(policy_id, batch))
    return named is None or policy_id in named


def _module_for(agent_id: Any, episode: Any = None, **_: Any) -> Any:
    """The module that acts for an agent in an episode."""
    if episode is None:
        raise ConfigError(
            "policy_mapping_fn of an env runner was called without an episode; which module acts "
            "for an agent is decided once per episode. Call policy_mapping_fn(agent_id, episode)."
        )
    return episode.module_for(agent_id)


def _refuse_change(method: str, instead: str) -> NoReturn:
    """Raises a ConfigError: the next restart would lose it. It names the algorithm's call."""
    raise ConfigError(
        f"env_runner.{method}() was called: what is changed in one runner would be lost when its "
        f"process is replaced, and a checkpoint would not know it. Call algorithm.{instead}."
    )


class StepFailedRecreateEnvError(Exception):
    """What an env of RLlib's may raise so that it is made again: here any other error does that."""


class RolloutWorker(SingleAgentEnvRunner):
    """An env runner of the user's own whose `sample()` gives a `SampleBatch`.

    worker = RolloutWorker(env_creator=lambda context: MyEnv(context), config=PPOConfig())
    batch = worker.sample()
    """

    def sample(self, **options: Any) -> SampleBatch:  # type: ignore[override]
        """Plays like `SingleAgentEnvRunner.sample` and gives the steps as one batch."""
        return batch_of(super().sample(**options))


class SampledEpisodes(list[Any]):
    """The episodes and chunks of one `sample()`, which counts their steps as a batch of RLlib does.

    Where old code asks for `samples.count`, that of lists would be a method.
    """

    @property
    def count(self) -> int:  # type: ignore[override]
        """Env steps."""
        return self.env_steps()

    def env_steps(self) -> int:
        """Env steps."""
        return sum(map(len, self))

    def agent_steps(self) -> int:
        """Completed rows of all agents."""
        return sum(episode.agent_steps() for episode in self)


def batch_of(episodes: Sequence[SingleAgentEpisode]) -> SampleBatch:
    """The steps of chunks one after another, as columns; infos as a list."""
    chunks = [episode for episode in episodes if len(episode) > 0]
    rows = []
    for chunk in chunks:
        observations = chunk.get_observations()
        after = nested.map_leaves(lambda leaf: leaf[1:], observations)
        rows.append({**chunk.get_data_dict(), NEW_OBS: after})
    batch = SampleBatch()
    for name in rows[0] if rows else ():
        columns = [row[name] for row in rows if name in row]
        if name == INFOS:
            batch[name] = [info for column in columns for info in column]
        elif len(columns) == len(rows):
            batch[name] = nested.concatenate(*columns)
    return batch


# ---- groups


class _EnvRunnerGroup(Protocol):
    # Properties, because type checkers compare writable members and signatures exactly.
    @property
    def local_env_runner(self) -> Any: ...
    @property
    def foreach_env_runner(self) -> Callable[..., list[Any]]: ...


class EnvRunnerGroupNames:
    """Adds the older names to an env runner group."""

    def foreach_worker(
        self: _EnvRunnerGroup,
        func: Callable[..., Any] | str,
        *,
        local_worker: bool = True,
        **options: Any,
    ) -> list[Any]:
        """Older name of `foreach_env_runner`."""
        return self.foreach_env_runner(func, local_env_runner=local_worker, **options)

    foreach_worker_async = renamed("foreach_env_runner_async")
    foreach_worker_with_id = renamed("foreach_env_runner_with_id")
    num_remote_workers = renamed("num_remote_env_runners")
    num_healthy_workers = renamed("num_healthy_env_runners")
    probe_unhealthy_workers = renamed("probe_unhealthy_env_runners")
    healthy_worker_ids = renamed("healthy_env_runner_ids")

    def foreach_policy(
        self: _EnvRunnerGroup, func: Callable[[Any, str], Any], **kwargs: Any
    ) -> list[Any]:
        """Calls `func(module, module_id, **kwargs)` in every runner: one list of all results."""
        answers = self.foreach_env_runner(_OfModules(func, kwargs))
        return [result for answer in answers for result in answer]

    def foreach_policy_to_train(
        self: _EnvRunnerGroup, func: Callable[[Any, str], Any], **kwargs: Any
    ) -> list[Any]:
        """The same for the modules that `policies_to_train` of the settings names."""
        answers = self.foreach_env_runner(_OfModules(func, kwargs, trained_only=True))
        return [result for answer in answers for result in answer]

    def get_spaces(self: _EnvRunnerGroup) -> dict[str, tuple[Any, Any]]:
        """The spaces that the runners work with: see `EnvRunner`."""
        spaces: dict[str, tuple[Any, Any]] = self.foreach_env_runner("get_spaces")[0]
        return spaces

    def local_worker(self: _EnvRunnerGroup) -> Any:
        """Older name of `local_env_runner`."""
        return self.local_env_runner


class _OfModules:
    """Calls the user's function with each module of a runner."""

    def __init__(
        self, function: Callable[..., Any], keywords: dict[str, Any], *, trained_only: bool = False
    ) -> None:
        self._function = function
        self._keywords = keywords
        self._trained_only = trained_only

    def __call__(self, env_runner: Any) -> Any:
        if self._trained_only:
            return env_runner.foreach_policy_to_train(self._function, **self._keywords)
        return env_runner.foreach_policy(self._function, **self._keywords)


# ---- collecting

_SUMMARY: Final = {
    "episode_reward_mean": "episode_return_mean",
    "episode_reward_min": "episode_return_min",
    "episode_reward_max": "episode_return_max",
    "episode_len_mean": "episode_len_mean",
    "episodes_this_iter": "num_episodes",
    "custom_metrics": "custom_metrics",
    "hist_stats": "hist_stats",
}


def collect_episodes(
    workers: EnvRunnerGroup,
    remote_worker_ids: Sequence[int] | None = None,
    timeout_seconds: float | None = None,
) -> list[EpisodeRecord]:
    """What is left of the episodes that evaluation runners have ended since this was last called.

    Args:
        workers: the group that a custom evaluation function is given.
        remote_worker_ids: no effect: records are in the main process already.
        timeout_seconds: no effect, likewise.

    Returns:
        a record per episode, ordered by call of `foreach_env_runner`, then runner, then time.
    """
    del remote_worker_ids, timeout_seconds
    return workers.take_records()


def summarize_episodes(
    episodes: Iterable[EpisodeRecord],
    new_episodes: Iterable[EpisodeRecord] | None = None,
    keep_custom_metrics: bool = False,
) -> dict[str, Any]:
    """Mean, smallest and largest return of some episodes, and more, under RLlib's old names.

    Args:
        episodes: from `collect_episodes`.
        new_episodes: those to count in `episodes_this_iter`; None counts all.
        keep_custom_metrics: give custom metrics as lists instead of mean, min and max.

    Returns:
        `episode_reward_mean`, `episode_reward_min`, `episode_reward_max`, `episode_len_mean`,
        `episodes_this_iter`, `custom_metrics`, `hist_stats`; NaN where there is no episode.
    """
    statistics = EpisodeStatistics(
        smoothing=None, keep_per_episode_custom_metrics=keep_custom_metrics
    )
    statistics.add(episodes)
    found = statistics.result()
    summary = {old: found[name] for old, name in _SUMMARY.items()}
    if new_episodes is not None:
        summary["episodes_this_iter"] = len(list(new_episodes))
    return summary
