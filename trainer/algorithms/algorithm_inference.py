"""Actions for observations of the user's own: `compute_single_action` and its relatives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from checkpoints.arguments import judges_arguments
from trainer.algorithms.algorithm_parts import AlgorithmParts
from trainer.algorithms.inference import ActionRequest
from trainer.connectors import ConnectorFactories
from trainer.episodes import nested
from trainer.errors import ConfigError, EnvContractError
from trainer.types import DEFAULT_MODULE_ID

_MODULE_IDS = frozenset({DEFAULT_MODULE_ID, "default_policy"})


class AlgorithmInference(AlgorithmParts):
    """Adds acting outside of training to an algorithm."""

    def compute_single_action(
        self,
        observation: Any = None,
        state: Sequence[Any] | None = None,
        *,
        input_dict: Mapping[str, Any] | None = None,
        policy_id: str = DEFAULT_MODULE_ID,
        full_fetch: bool = False,
        explore: bool | None = None,
        timestep: int | None = None,
        unsquash_action: bool | None = None,
        clip_action: bool | None = None,
        prev_action: Any = None,
        prev_reward: Any = None,
        info: Any = None,
        episode: Any = None,
    ) -> Any:
        """The action for one observation, as the env takes it.

        Args:
            observation: one element of the observation space.
            state: of recurrent networks, which are not here: an empty list.
            input_dict: {"obs": observation}, instead of `observation`.
            policy_id: the module that acts.
            full_fetch: return more than the action.
            explore: use the exploration strategy (True), or take the most likely action (False);
                None as configured.
            timestep: where schedules of exploration stand; None: the env steps sampled so far.
            unsquash_action: scale from [-1, 1] to the bounds; None: `normalize_actions`.
            clip_action: clip to the bounds; None: `clip_actions`.
            prev_action: networks here do not read it.
            prev_reward: networks here do not read it.
            info: networks here do not read it.
            episode: networks here do not read it.

        Returns:
            The action; with `full_fetch` or a state: (action, [], {"action_dist_inputs",
            "action_logp", "action_prob"}), the last two under the module's distribution.

        Raises:
            ConfigError: there is no such module, or no observation.
            EnvContractError: the observation is not of the observation space, or not finite.
            AlgorithmStoppedError: `stop()` was called.
        """
        self._refuse_if_stopped("compute_single_action")
        del prev_action, prev_reward, info, episode
        self._refuse_with_connectors("compute_single_action")
        if policy_id not in _MODULE_IDS:
            raise ConfigError(
                f"policy_id={policy_id!r}: there is one module, {DEFAULT_MODULE_ID!r}. Leave it "
                "out."
            )
        if observation is None and input_dict is not None:
            observation = input_dict["obs"]
        if observation is None:
            raise ConfigError(
                "compute_single_action() got no observation. Give an element of the observation "
                "space, e.g. what `env.reset()` returns first."
            )
        self.counters.num_actions_computed += 1
        request = ActionRequest(
            number=self.counters.num_actions_computed,
            timestep=self.counters.num_env_steps_sampled if timestep is None else timestep,
            explore=explore,
            unsquash=unsquash_action,
            clip=clip_action,
            exploration_state=self.sample_exploration.strategy.runner_state(),
        )
        if not full_fetch and state is None:
            return self._inference.action(observation, request)
        action, outputs = self._inference.action_with_outputs(observation, request)
        return action, [], outputs

    def _refuse_with_connectors(self, what: str) -> None:
        """Connector pieces work beside a sub-env, in its episode; there is none here.

        Raises:
            ConfigError: the config has connectors of the user's.
        """
        if ConnectorFactories.of(self.config) is not None:
            raise ConfigError(
                f"{what}() was called, and the config has an `env_to_module_connector` or a "
                "`module_to_env_connector`: pieces see episodes, and what they would make of a "
                "single observation is not known. Play episodes with "
                "`EnvRunnerGroup(config=…)` or `evaluate()`, or change observations in a wrapper "
                "of the env instead of a connector."
            )

    @judges_arguments
    def compute_actions(
        self,
        observations: Mapping[Any, Any],
        state: Mapping[Any, Any] | None = None,
        *,
        full_fetch: bool = False,
        unsquash_actions: bool | None = None,
        clip_actions: bool | None = None,
        episodes: Any = None,
        **options: Any,
    ) -> Any:
        """An action for each observation of a dict, under the same keys.

        Args:
            observations: by agent.
            state: see `compute_single_action`, by agent.
            full_fetch: return more than the actions.
            unsquash_actions: see `unsquash_action` there.
            clip_actions: see `clip_action` there.
            episodes: networks here do not read it.
            options: further arguments of `compute_single_action`, for all observations.

        Returns:
            The actions; with `full_fetch` or a state: (actions, states, extra outputs), each by
            agent.

        Raises:
            EnvContractError: the observations are no dict; see also `compute_single_action`.
        """
        del episodes
        if not isinstance(observations, Mapping):
            raise EnvContractError(
                f"compute_actions() got {nested.describe(observations)}; expected a dict of "
                "observations by agent. For a single one, ask compute_single_action(observation)."
            )
        options |= {"unsquash_action": unsquash_actions, "clip_action": clip_actions}
        if not full_fetch and state is None:
            return {
                key: self.compute_single_action(observation, **options)
                for key, observation in observations.items()
            }
        fetched = {
            key: self.compute_single_action(observation, full_fetch=True, **options)
            for key, observation in observations.items()
        }
        return tuple({key: parts[index] for key, parts in fetched.items()} for index in range(3))
