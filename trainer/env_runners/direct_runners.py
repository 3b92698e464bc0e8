"""Env runners that users make without an algorithm, from a config: RLlib's way to try them out.

runner = SingleAgentEnvRunner(config=PPOConfig().environment("CartPole-v1"))
group = EnvRunnerGroup(config=PPOConfig().environment("CartPole-v1"))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from trainer.env_runners.messages import EnvRunnerSpec
from trainer.errors import ConfigError
from trainer.runtime.restart_policy import RestartPolicy


@dataclass(frozen=True)
class DirectRunners:
    """What a config says about its env runners.

    Attributes:
        spec: of any of them.
        num_env_runners: processes, ≥ 0.
        policy: what to do about failures.
        stall_limit_s: see `EnvRunnerGroup`.
        start_limit_s: likewise.
    """

    spec: EnvRunnerSpec
    num_env_runners: int
    policy: RestartPolicy
    stall_limit_s: float | None
    start_limit_s: float | None

    @classmethod
    def of(cls, config: Any, rllib_arguments: Mapping[str, Any]) -> DirectRunners:
        """What a config and RLlib's further arguments ask for.

        Args:
            config: an `AlgorithmConfig`; it is checked, and not changed.
            rllib_arguments: those of RLlib's constructors, by name.

        Raises:
            ConfigError: it is no config, or wrong, or an argument asks for what is not offered.
        """
        make = getattr(config, "direct_runners", None)
        if make is None:
            raise ConfigError(
                f"An env runner was to be made from config={config!r:.80}; expected a config, such "
                'as PPOConfig().environment("CartPole-v1").'
            )
        _refuse_what_is_not_offered(rllib_arguments)
        creator: Callable[[Any], Any] | None = rllib_arguments.get("env_creator")
        if creator is not None:
            config = config.copy(copy_frozen=False).environment(env=creator)
        runners: DirectRunners = config.direct_runners()
        if rllib_arguments.get("num_env_runners") is not None:
            runners = replace(runners, num_env_runners=int(rllib_arguments["num_env_runners"]))
        return runners

    def at(self, worker_index: int, num_workers: int | None) -> EnvRunnerSpec:
        """The spec of one runner that stands alone.

        Args:
            worker_index: which of them it is to be.
            num_workers: of how many; None as configured.
        """
        number = self.num_env_runners if num_workers is None else num_workers
        return self.spec.at_place(worker_index, max(number, worker_index))


_NO_EFFECT: Final = frozenset(
    {
        *("num_env_runners", "num_rollout_workers", "num_workers", "worker_index"),
        *("local_env_runner", "recreated_worker", "setup", "spaces", "env_creator", "env_context"),
        *("dataset_shards", "disable_env_checking", "log_dir", "logdir", "tune_trial_id"),
    }
)
_POLICIES: Final = (
    "Policies are networks here: give an own `RLModule` with "
    "`config.rl_module(rl_module_spec=RLModuleSpec(module_class=…))`."
)
_ADVICE: Final = {
    "default_policy_class": _POLICIES,
    "policy_spec": _POLICIES,
    "validate_env": "Check the env where it is made, in its creator.",
}


def _refuse_what_is_not_offered(arguments: Mapping[str, Any]) -> None:
    for name, value in arguments.items():
        if value is None or name in _NO_EFFECT:
            continue
        advice = _ADVICE.get(name, f"There are {', '.join(sorted(_NO_EFFECT | _ADVICE.keys()))}.")
        raise ConfigError(f"`{name}={value!r:.80}` is not offered for env runners. {advice}")
