"""A trained policy without the rest: from a checkpoint to actions, as light as a network.

No env is made, no process is started, no learner and no callback exists. What an algorithm does to
observations and actions when it acts is done here by the same code, so the actions are the same to
the last bit.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import gymnasium as gym

from checkpoints import (
    CheckpointMismatchError,
    PathLike,
    check_shape,
    read_checkpoint,
    read_code,
    read_manifest,
)
from checkpoints.components import naming_component
from checkpoints.reader import checkpoint_of_run
from trainer.algorithms.building import algorithm_class
from trainer.algorithms.checkpointing import CONFIG, only_module_of
from trainer.algorithms.inference import (
    FILTER_AS_SETTING,
    ActionRequest,
    Inference,
    known_module,
)
from trainer.algorithms.policy_in_torch import policy_in_torch
from trainer.config import AlgorithmConfig
from trainer.config.algorithm_config import normalization_settings
from trainer.connectors import NormalizationStatistics, ObservationEncoder
from trainer.connectors.encoding import NOTHING
from trainer.episodes.episode_columns import STATE_OUT
from trainer.errors import ConfigError
from trainer.modules import RLModule, RLModuleSpec
from trainer.modules.rl_module import is_class_there
from trainer.name_resolution import stranger
from trainer.types import DEFAULT_MODULE_ID, ModuleId

_Self = TypeVar("_Self", bound="TrainedPolicy")
_LEARNER, _MODULE = "learner", "rl_module"
_STATISTICS = "connectors"
_ARGUMENT = "TrainedPolicy.from_checkpoint(module_id=…)"
_CONFIG = "config"
_SETTINGS = (
    "normalize_actions",
    "clip_actions",
    "observation_filter",
    "normalize_rewards",
    "clip_rewards",
    "gamma",
)
"""What a config says about acting, and about the statistics; nothing else is taken from one."""
_CONNECTORS = frozenset({"env_to_module_connector", "module_to_env_connector"})


class TrainedPolicy:
    """Gives the actions that a trained algorithm gives, without an algorithm.

        policy = TrainedPolicy.from_checkpoint("runs/pendulum")
        action = policy.predict(observation)

    An action is what `algorithm.compute_single_action(observation, explore=False)` returns:
    observations are encoded and normalised as in training, the most likely action is taken, scaled
    from [-1, 1] to the bounds of its space (`normalize_actions`) and clipped (`clip_actions`).

    Attributes:
        module: the network.
        algorithm: the name of the algorithm that trained it.
        training_iteration: of the checkpoint.
        module_id: of the network.
        is_of_several: whether the run has several modules.
        config: what is said about acting; nothing else was taken from the checkpoint.
        normalization: what observations go through first.
    """

    def __init__(
        self,
        module: RLModule,
        config: AlgorithmConfig,
        *,
        statistics: NormalizationStatistics | None = None,
        algorithm: str = "",
        training_iteration: int = 0,
        module_id: ModuleId = DEFAULT_MODULE_ID,
        is_of_several: bool = False,
    ) -> None:
        """Puts a policy together; users call `from_checkpoint`.

        Args:
            module: the network, with its weights.
            config: says what is done to observations and actions.
            statistics: of the observations that were seen in training.
            algorithm: see the class.
            training_iteration: see the class.
            module_id: see the class.
            is_of_several: see the class.
        """
        self.module, self.module_id, self.is_of_several = module, module_id, is_of_several
        self.algorithm = algorithm
        self.training_iteration = training_iteration
        self.config = config
        self._inference = Inference(module, config, root_seed=0)
        self.normalization = NOTHING if statistics is None else statistics.current()
        self._inference.normalize_with(self.normalization)

    @classmethod
    def from_checkpoint(
        cls: type[_Self],
        path: PathLike,
        *,
        module_id: ModuleId | None = None,
        module_class: type[RLModule] | None = None,
        allow_code: bool = False,
    ) -> _Self:
        """The policy of a checkpoint.

        Nothing that the checkpoint names is imported or called. A class of networks of your own
        that this program does not have yet is taken from the code in the checkpoint if you saved
        it on this machine, or with `allow_code`.

        Args:
            path: a checkpoint of an algorithm, or the directory of a run, which stands for its
                newest whole checkpoint.
            module_id: whose policy, if the run has several modules; None is the only one.
            module_class: the class of the network, if it is yours and was not imported yet.
            allow_code: run code saved in the checkpoint; say True only for one from a source that
                you trust like a program.

        Raises:
            CheckpointError: the checkpoint is missing or damaged, of another kind, of an algorithm
                with connector pieces, or of a class of networks that this program does not have.
            ConfigError: there is no such module, or several and none was named; or what it says
                about acting is no setting.
        """
        path = checkpoint_of_run(path)
        manifest = read_manifest(path)
        metadata, name = manifest.metadata, manifest.metadata.get("algorithm")
        if not isinstance(name, str):
            raise CheckpointMismatchError(
                f"{path} is no checkpoint of an algorithm: its manifest names none. Give what "
                "algo.save_to_path() wrote, or the directory of a run."
            )
        algorithm = algorithm_class(name)
        place = _place_of_module(manifest.components, module_id)
        statistics_name = f"{_STATISTICS}{place}"
        names = [_CONFIG, *({statistics_name} & manifest.components.keys())]
        states = read_checkpoint(path, names, migrations=algorithm.state_migrations).components
        config = _acting_config(algorithm.config_class(), states[_CONFIG])
        if not place:
            only = only_module_of(states[_CONFIG])
            if only is not None:
                known_module(module_id, [only], _ARGUMENT)
            module_id = only
        where = Path(path) / f"{_LEARNER}{place}/{_MODULE}"
        may_run_code = manifest.code is not None and (allow_code or manifest.is_own)
        code = None
        if module_class is None and may_run_code and not is_class_there(where):
            code = read_code(path, allow_code=allow_code)  # which makes the class
        module = (module_class or RLModule).from_checkpoint(where)
        del code  # not before: a class that nothing refers to may be gone
        statistics = None
        if statistics_name in states:
            encoder = ObservationEncoder(
                module.observation_space, action_mask_key=module.action_mask_key
            )
            spec = RLModuleSpec.from_module(module)
            settings = normalization_settings(config, module=spec, num_slots=1)
            statistics = NormalizationStatistics(settings, encoder)
            statistics.check_state(states[statistics_name])
            statistics.set_state(states[statistics_name])
        iteration = metadata.get("training_iteration")
        return cls(
            module,
            config,
            statistics=statistics,
            algorithm=name,
            training_iteration=iteration if type(iteration) is int else 0,
            module_id=module_id or DEFAULT_MODULE_ID,
            is_of_several=bool(place),
        )

    @property
    def observation_space(self) -> gym.Space[Any]:
        """Of the env that it was trained in."""
        space: gym.Space[Any] = self.module.observation_space
        return space

    @property
    def action_space(self) -> gym.Space[Any]:
        """Of the env that it was trained in."""
        space: gym.Space[Any] = self.module.action_space
        return space

    def predict(
        self,
        observation: Any,
        state: Any = None,
        *,
        prev_action: Any = None,
        prev_reward: float | None = None,
    ) -> Any:
        """The action for one observation, as the env takes it.

        Args:
            observation: one element of the observation space.
            state: of a network with memory (`module.is_stateful()`): what the call before returned;
                None at the beginning of an episode.
            prev_action: the action before, for a network with `lstm_use_prev_action`, as the
                network gave it: within [-1, 1] where `normalize_actions` scales it for the env.
            prev_reward: the reward before, for a network with `lstm_use_prev_reward`.

        Returns:
            The action; of a network with memory: (action, state after).

        Raises:
            EnvContractError: the observation is not of the observation space, or not finite.
            ModuleError: the state is not of the network.
        """
        request = ActionRequest(
            0, explore=False, state=state, prev_action=prev_action, prev_reward=prev_reward
        )
        if not self.module.is_stateful():
            return self._inference.action(observation, request)
        action, outputs = self._inference.action_with_outputs(observation, request)
        return action, outputs[STATE_OUT]

    def to_torch(self) -> Any:
        """The policy as a plain `torch.nn.Module` in evaluation mode, of its own memory.

            network = policy.to_torch()
            action = network(observations)["action"]

        It takes tensors for batches of any size, in the order of `network.inputs`, each with a
        `name`, a `shape` without the batch, and a `dtype`: "obs", [batch, *shape] (of Dict and
        Tuple observations every part, such as "obs/speed"), an "action_mask" if observations have
        one, and of a network with memory its state, which `network.initial_state(batch_size)` gives
        at the beginning of an episode. It returns a dict: "action" as the env takes it, [batch,
        ...]; "action_dist_inputs" [batch, K]; of a network with memory "state_out/...", in the
        order of the state's inputs. Observations are normalised, and actions masked, scaled and
        clipped within. Layers of a `TorchRLModule` are parameters that gradients reach; weights of
        the ready-made networks are buffers. Results agree with `predict` to rounding (about 1e-6).

        Raises:
            ImportError: Torch is not installed (the extra `torch`).
            ModuleError: the network is a class of your own in NumPy, or a ready-made one that reads
                several images, or one beside other numbers.
            UnsupportedSpaceError: actions are neither Discrete nor a Box of floats.
        """
        return policy_in_torch(self.module, self.config, self.normalization.observations)

    def predict_all(self, observations: Sequence[Any]) -> list[Any]:
        """The actions for several observations, in their order; see `predict`.

        Raises:
            ConfigError: the network has memory: an observation alone says too little.
        """
        if self.module.is_stateful():
            raise ConfigError(
                "predict_all() was called, but the network has memory: what it does follows from "
                "the observations before. Ask one after another: action, state = "
                "policy.predict(observation, state)."
            )
        if not len(observations):
            return []
        return self._inference.actions(observations, ActionRequest(0, explore=False))


def _place_of_module(components: Collection[str], module_id: ModuleId | None) -> str:
    """What names a module in the paths of its components: "/main"; nothing for an only one."""
    parts = [name.split("/") for name in components]
    ids = sorted(part[1] for part in parts if part[0] == _LEARNER and part[2:] == [_MODULE])
    return f"/{known_module(module_id, ids, _ARGUMENT)}" if ids else ""


def _acting_config(config: AlgorithmConfig, state: Mapping[str, Any]) -> AlgorithmConfig:
    """The config with what the saved one says about acting."""
    with naming_component(_CONFIG):
        check_shape(state, CONFIG)
    connectors = sorted(_CONNECTORS.intersection(state["code"]))
    if connectors:
        raise CheckpointMismatchError(
            f"The algorithm was trained with connector pieces (`{'`, `'.join(connectors)}`): they "
            "see episodes, and what they would make of a single observation is not known. Play "
            "episodes with `Algorithm.from_checkpoint(path, …)` and `evaluate()`, or change "
            "observations and actions in a wrapper of the env instead of a connector. "
            + FILTER_AS_SETTING
        )
    saved = state["settings"]
    acting = {name: saved[name] for name in _SETTINGS if name in saved}
    config.update_from_dict(acting, source=stranger(""))
    config.validate()
    return config
