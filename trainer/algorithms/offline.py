"""`training_step()` of algorithms that learn from recordings: nothing is sampled from envs.

BC, MARWIL and CQL. Training runners play nothing; the env gives the spaces, and evaluations play in
it. Where reading stands is a part of the state.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final

from checkpoints import HasState
from trainer.algorithms.algorithm import Algorithm
from trainer.algorithms.offline_section import OfflineDataSection
from trainer.algorithms.training_iteration import IterationResult, batch_listener
from trainer.config import AlgorithmConfig
from trainer.config.settings import Problem, assignment
from trainer.config.validation import COMMON_RULES, Rule
from trainer.errors import ConfigError
from trainer.learners import EpisodeLearner, LearnerGroup
from trainer.modules import ByModule
from trainer.offline import RecordingReader, Recordings
from trainer.offline.checking import RecordingForm
from trainer.offline.files import absolute_inputs

_RECORDINGS: Final = "recordings"

# ---- settings


def named_recordings(config: OfflineConfig) -> list[str]:
    """What `input_` names, if there is something and the user has named it.

    Raises:
        ConfigError: it is None, or a stranger's file says what to read on this machine.
    """
    given = config.input_
    inputs = list(given) if isinstance(given, (list, tuple)) else [given]
    if given is None:
        raise ConfigError(
            f"{type(config).__name__}: there is nothing to learn from: `input_=None`. Name "
            "recordings: config.offline_data(input_='recordings'). `EpisodeRecorder` and "
            "`local-trainer record RUN` write some; see docs/recordings.md."
        )
    source = config.source
    handed_in = {absolute_inputs(name) for name in source.handed_in}
    for name in inputs:
        if not (source.is_trusted or name in handed_in):
            raise ConfigError(
                f"The file that this config was read from names the recordings {name!r}; nothing "
                "was read, because it may be a stranger's. Name yours: "
                "from_checkpoint(path, input_='recordings')."
            )
    return inputs


def nothing_is_sampled(config: OfflineConfig) -> Iterator[Problem]:
    """No setting waits for env steps of training, or changes how they are made."""
    advice = {
        "min_sample_timesteps_per_iteration": "Give min_train_timesteps_per_iteration.",
        "sample_ahead": "Leave it out.",
    }
    for name, text in advice.items():
        if config.read_value(name):
            yield Problem(
                assignment(name, config.read_value(name)),
                "no env steps are sampled when learning from recordings.",
                text,
                (name,),
            )


def one_module_learns(config: OfflineConfig) -> Iterator[Problem]:
    """Recordings are those of a single agent."""
    if len(config.policies_by_id()) > 1:
        yield Problem(
            assignment("policies", sorted(config.policies_by_id())),
            "recordings are of a single agent, so one module can learn from them.",
            "Name one module, or none.",
            ("policies",),
        )


def previous_steps_are_not_read(config: OfflineConfig) -> Iterator[Problem]:
    """Recordings do not say what a network with memory read of the step before."""
    for name in ("lstm_use_prev_action", "lstm_use_prev_reward"):
        if config.model_config.get(name):
            yield Problem(
                f"model_config: {assignment(name, True)}",
                "not offered when learning from recordings.",
                "Leave it out, or put it into the observation with a wrapper of the env.",
                ("model_config",),
            )


OFFLINE_RULES: Final[tuple[Rule, ...]] = (
    Rule(("min_sample_timesteps_per_iteration", "sample_ahead"), nothing_is_sampled),
    Rule(("policies",), one_module_learns),
    Rule(("model_config",), previous_steps_are_not_read),
)


class OfflineConfig(OfflineDataSection, AlgorithmConfig):
    """What algorithms have in common that learn from recordings."""

    changed_defaults: ClassVar[Mapping[str, Any]] = MappingProxyType(
        {"num_env_runners": 0, "batch_mode": "complete_episodes", "num_epochs": 1}
    )
    rules: ClassVar[tuple[Rule, ...]] = (*COMMON_RULES, *OFFLINE_RULES)


# ---- algorithm


class OfflineAlgorithm(Algorithm):
    """Learns from recorded episodes, read in an order that follows from seed and position.

    The steps learnt from are those that schedules count, and `num_env_steps_sampled_lifetime` of
    results, which runs are stopped by; below `env_runners` that stays 0.

    Attributes:
        reader: the recordings, and where reading them stands.
    """

    clips_actions: ClassVar[bool] = False
    """Whether modules choose within the bounds of a Box alone."""

    config: OfflineConfig
    learners: LearnerGroup[EpisodeLearner]
    reader: RecordingReader

    def setup(self, config: AlgorithmConfig) -> None:
        """Reads and checks all recordings; normalisation is that of their observations."""
        inputs = named_recordings(self.config)
        super().setup(config)
        spec = self.module_spec
        if spec.observation_space is None or spec.action_space is None:
            raise ConfigError("The env has no spaces; recordings cannot be checked without them.")
        form = RecordingForm(
            spec.observation_space,
            spec.action_space,
            normalize_actions=config.normalize_actions,
            are_actions_normalized=self.config.actions_in_input_normalized,
            clips_actions=self.clips_actions,
        )
        recordings = Recordings(inputs, form, schema=self.config.input_read_schema)
        self.reader = RecordingReader(recordings)
        statistics = self.normalizations.only
        if statistics.has_state:
            for number in range(len(recordings)):
                statistics.add([recordings.episode(number)])
        self.apply_normalization()

    def training_step(self) -> None:
        """Makes so many updates as `dataset_num_iters_per_learner` says, or those of one pass."""
        num_updates, num_passes = self.config.dataset_num_iters_per_learner, self.reader.num_passes
        num_made = 0
        while num_made < num_updates if num_updates else self.reader.num_passes == num_passes:
            self.learn_from_recordings()
            num_made += 1
        with self._iteration.time("synch_weights"):
            self.send_policy()

    def learn_from_recordings(self) -> None:
        """Makes one update from the next recorded episodes."""
        result, id_ = self._iteration, self.module_specs.only_id
        with result.time("offline_sampling_timer"):
            episodes = self.reader.next_episodes(
                self.config.total_train_batch_size, root_seed=self.root_seed
            )
        num_env_steps = sum(map(len, episodes))
        with result.time("learner_update_timer"):
            metrics = self.learners.update(
                self.trained(ByModule({id_: episodes})),
                num_env_steps_sampled_before=self.counters.trained.num_env_steps,
                on_batch=batch_listener(self.callbacks),
            )
        result.add_update(metrics, num_env_steps=num_env_steps, num_agent_steps=num_env_steps)

    def add_to_result(self, result: IterationResult) -> None:
        """Adds what there is to learn from, and how often it was read."""
        recordings = self.reader.recordings
        result.add_section(
            _RECORDINGS,
            {
                "num_episodes": len(recordings),
                "num_env_steps": recordings.num_steps,
                "num_env_steps_read": result.trained.num_env_steps,
                "num_passes_lifetime": self.reader.num_passes,
            },
        )

    def get_checkpointable_components(self) -> Collection[tuple[str, HasState]]:
        """The parts of every algorithm, and where reading stands."""
        return [*super().get_checkpointable_components(), (_RECORDINGS, self.reader)]
