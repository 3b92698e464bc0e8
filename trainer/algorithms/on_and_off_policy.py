"""`training_step()` as algorithms share it: learning from each sample once, or from replay.

PPO and PG are on policy, DQN, SAC and TD3 off policy. The settings of replay are declared here.
"""

from __future__ import annotations

import logging
from bdb import BdbQuit
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Final, TypeVar

from checkpoints import HasState
from trainer.algorithms.algorithm import Algorithm
from trainer.algorithms.off_policy_section import OffPolicyTrainingSection
from trainer.algorithms.stretch import Stretch, StretchError
from trainer.algorithms.training_iteration import IterationResult, batch_listener
from trainer.config import AlgorithmConfig
from trainer.config.settings import Problem, assignment
from trainer.config.validation import COMMON_RULES, Rule
from trainer.env_runners.messages import PlayCounts
from trainer.errors import AlgorithmStoppedError, ModuleError, ReplayError
from trainer.learners import EpisodeLearner, LearnerGroup, ReplayLearner
from trainer.metrics import EpisodeRecord, ResultDict
from trainer.modules import ByModule, component_of
from trainer.modules.by_module import kept_over
from trainer.replay import PrioritizedReplayBuffer, ReplayBuffer, make_replay_buffer
from trainer.runner_group import GroupSample
from trainer.types import ModuleId, State
from trainer_toolkit.trees import same
from trainer_toolkit.undo import Undo

# ---- on policy


class OnPolicyAlgorithm(Algorithm):
    """Samples with the current weights, learns from that sample alone, and samples again."""

    learners: LearnerGroup[EpisodeLearner]

    def training_step(self) -> None:
        """Samples one train batch and makes one update from it."""
        self.learn_from_sample(self.sample_steps(self.config.total_train_batch_size))

    def learn_from_sample(self, sample: GroupSample) -> None:
        """Makes an update from sampled episodes and hands the new weights to the runners."""
        learn_from_sample(self, sample)


def learn_from_sample(algorithm: Algorithm, sample: GroupSample) -> None:
    """See `OnPolicyAlgorithm`; for algorithms of users, too, whose learners learn from episodes."""
    result = algorithm._iteration
    before = algorithm.counters.num_env_steps_sampled - sample.num_env_steps
    chunks = algorithm.trained(algorithm.chunks_of(sample))
    with result.time("learner_update_timer"):
        metrics = algorithm.learners.update(
            chunks,
            num_env_steps_sampled_before=before,
            on_batch=batch_listener(algorithm.callbacks),
        )
    result.add_update(
        metrics,
        num_env_steps=sample.num_env_steps,
        num_agent_steps=sum(len(chunk) for of_module in chunks.values() for chunk in of_module),
    )
    with result.time("synch_weights"):
        algorithm.send_policy()


def learn_from_played(algorithm: Algorithm, episodes: Sequence[Any]) -> None:
    """Learns from episodes that users' functions let training runners play, and counts them.

    Args:
        algorithm: whose learners learn from episodes.
        episodes: as `env_runner.sample()` gave them, in the order of the runners.
    """
    records = [
        EpisodeRecord(
            episode.id_,
            episode_return=float(episode.get_return()),
            length=int(getattr(episode, "env_t", episode.t)),
            duration_s=episode.get_duration_s(),
            module_id=getattr(episode, "module_id", None),
        )
        for episode in episodes
        if episode.is_done
    ]
    counts = PlayCounts(num_env_steps=sum(map(len, episodes)), num_episodes=len(records))
    algorithm.counters.played += counts
    algorithm._iteration.played += counts
    algorithm.episode_statistics.add(records)
    learn_from_sample(algorithm, GroupSample(list(episodes), records, [], [], counts))


# ---- off policy: settings

ConfigT = TypeVar("ConfigT", bound="OffPolicyConfig")


_DRAWN: Final = (
    "Leave it out: every update draws its own batch from the replay buffer. For more updates, set "
    "`training_intensity`."
)
_FROM_REPLAY: Final = (
    "Leave it out: learning from replay reads single steps, not episodes. Change observations with "
    "`env_to_module_connector`, batches in the callback `on_learn_on_batch`."
)
_SCHEDULES: Final = (
    "Leave it out, and give a schedule: `lr=[[0, 1e-3], [1_000_000, 1e-4]]`, by env steps."
)
_ROUNDS: Final = (
    "Leave it out: a round that is short against its updates has little to play ahead. For envs as "
    "slow as updates, use PPO with it, or more sub-envs."
)


def refused(advice: Mapping[str, str]) -> Rule:
    """A rule that accepts settings of RLlib with values that ask for nothing, and no others.

    Args:
        advice: what to do instead, a sentence, by setting.
    """

    def ask_for_nothing(config: OffPolicyConfig) -> Iterator[Problem]:
        for name, text in advice.items():
            value = config.read_value(name)
            if not same(value, getattr(type(config), name).default):
                yield Problem(
                    assignment(name, value), "not offered in this version.", text, (name,)
                )

    return Rule(tuple(advice), ask_for_nothing)


def replay_buffer_can_be_made(config: OffPolicyConfig) -> Iterator[Problem]:
    """The replay buffer's type exists and takes the settings."""
    if config.in_evaluation:
        return
    try:
        make_replay_buffer(config.replay_buffer_config)
    except ReplayError as error:
        yield Problem(
            assignment("replay_buffer_config", config.replay_buffer_config),
            str(error),
            "Correct it.",
            ("replay_buffer_config",),
        )


def fragment_reaches_n_steps(config: OffPolicyConfig) -> Iterator[Problem]:
    """A fragment is at least as long as a transition over n steps."""
    fragment, steps = config.rollout_fragment_length, config.max_n_step
    if not isinstance(fragment, str) and fragment < steps and not config.in_evaluation:
        yield Problem(
            assignment("rollout_fragment_length", fragment),
            f"a fragment is shorter than n_step={config.n_step}.",
            f'Give rollout_fragment_length={steps} or more, or "auto".',
            ("rollout_fragment_length", "n_step"),
        )


class OffPolicyConfig(OffPolicyTrainingSection, AlgorithmConfig):
    """What DQN, SAC and TD3 have in common: a replay buffer, and target networks."""

    changed_defaults: ClassVar[Mapping[str, Any]] = MappingProxyType(
        {
            "num_env_runners": 0,
            "rollout_fragment_length": "auto",
            "evaluation_config": {"explore": False},
        }
    )
    rules: ClassVar[tuple[Rule, ...]] = (
        *COMMON_RULES,
        refused(
            {
                **dict.fromkeys(
                    ("num_epochs", "minibatch_size", "shuffle_batch_per_epoch"), _DRAWN
                ),
                "sample_ahead": _ROUNDS,
                "learner_connector": _FROM_REPLAY,
                "torch_lr_schedulers": _SCHEDULES,
            }
        ),
        Rule(("replay_buffer_config",), replay_buffer_can_be_made),
        Rule(("rollout_fragment_length", "n_step"), fragment_reaches_n_steps),
    )

    @property
    def num_steps_of_round(self) -> int:
        """Env steps that are sampled in a round, by all env slots together."""
        return self.get_rollout_fragment_length() * self.num_env_slots

    @property
    def max_n_step(self) -> int:
        """The longest transition, in env steps."""
        steps = self.n_step
        return int(steps[1]) if isinstance(steps, (tuple, list)) else int(steps)

    def get_rollout_fragment_length(self, worker_index: int = 0) -> int:
        """Env steps that each env owes per round: with "auto" as many as `n_step`."""
        if self.rollout_fragment_length == "auto" and not self.in_evaluation:
            return self.max_n_step
        return super().get_rollout_fragment_length(worker_index)


# ---- off policy: rounds of sampling, storing and learning

_LOGGER = logging.getLogger(__name__)
_BUFFER: Final = "replay_buffer"

_LONGEST_STRETCH: Final = 256
"""Rounds; longer ones gain nothing, and an error is told when the stretch is made again."""
_MOST_BYTES: Final = 64 * 2**20
"""Of the steps of a stretch, whose episodes are kept until it is over."""
_LISTENERS: Final = (
    *("on_episode_created", "on_episode_start", "on_episode_step", "on_episode_end"),
    *("on_postprocess_trajectory", "on_sample_end", "on_learn_on_batch"),
)
"""Events of single rounds: chunks, and metrics that are logged in requests, would be others."""
_OF_ROUNDS: Final = (
    *("training_step", "sample_steps", "sample_env_steps", "learn_from_replay"),
    *("chunks_of", "trained", "is_trained", "send_policy", "apply_normalization"),
)
"""What a class of the user's may have changed of a round."""


class OffPolicyAlgorithm(Algorithm):
    """A round: every env makes a fragment of steps, they are stored, then some updates follow.

    Attributes:
        replay_buffers: the last steps of all training episodes, by module.
    """

    config: OffPolicyConfig
    learners: LearnerGroup[ReplayLearner]
    replay_buffers: ByModule[ReplayBuffer]
    _makes_single_rounds = False

    _by_module: ClassVar[tuple[str, ...]] = (*Algorithm._by_module, "replay_buffers")

    def make_parts_by_module(self) -> None:
        """See `Algorithm`; modules have a replay buffer, too."""
        super().make_parts_by_module()
        known = self.__dict__.get("replay_buffers", {})
        self.replay_buffers = self._make_buffers(known)

    def _make_buffers(self, known: Mapping[ModuleId, ReplayBuffer]) -> ByModule[ReplayBuffer]:
        config = self.config.replay_buffer_config
        return kept_over(known, self.module_specs.ids, lambda _: make_replay_buffer(config))

    @property
    def local_replay_buffer(self) -> ReplayBuffer:
        """The last steps of all training episodes, of an algorithm with one module.

        Raises:
            ModuleError: there are several; see `replay_buffers`.
        """
        return self.replay_buffers.only

    # ---- training

    def training_step(self) -> None:
        """One round, or as many as can be made in one stretch."""
        num_rounds = self._num_rounds_at_once()
        if num_rounds > 1:
            self._make_stretch(num_rounds)
            return
        config = self.config
        sample = self.sample_steps(config.num_steps_of_round)
        with self._iteration.time("replay_buffer_add_timer"):
            for id_, chunks in self.chunks_of(sample).items():
                clipped = self.normalizations[id_].with_clipped_rewards(chunks)
                self.replay_buffers[id_].add(clipped)
        num_updates = self._num_updates_due(
            self.counters.played.num_steps(config.count_steps_by),
            sample.counts.num_steps(config.count_steps_by),
        )
        self.learn_from_replay(num_updates, num_new_env_steps=sample.num_env_steps)

    def learn_from_replay(self, num_updates: int, *, num_new_env_steps: int = 0) -> None:
        """Makes updates and hands the new weights to the runners.

        Args:
            num_updates: how many, ≥ 0.
            num_new_env_steps: env steps that were sampled in this round; schedules are read
                before them.
        """
        if num_updates == 0:
            return
        result, counters = self._iteration, self.counters
        with result.time("learner_update_timer"):
            metrics = self.learners.update_from(
                self.trained(self.replay_buffers),
                num_updates=num_updates,
                num_env_steps_sampled_lifetime=counters.num_env_steps_sampled,
                num_env_steps_sampled_before=counters.num_env_steps_sampled - num_new_env_steps,
                on_batch=batch_listener(self.callbacks),
            )
        num_rows = num_updates * self.config.train_batch_size
        result.add_update(metrics, num_env_steps=num_rows, num_agent_steps=num_rows * len(metrics))
        with result.time("synch_weights"):
            self.send_policy()

    def _num_updates_due(self, num_sampled: int, num_new: int) -> int:
        """Updates that a round pays for; what is left over is carried on.

        None before enough was sampled, and enough of it is stored: after a restore without the
        buffer, learning on from the first few fresh steps would spoil what was learnt.

        Args:
            num_sampled: steps of the whole run, this round included.
            num_new: steps of this round.
        """
        config, counters = self.config, self.counters
        needed = max(1, config.num_steps_sampled_before_learning_starts)
        buffers = self.replay_buffers.values()
        if num_sampled < needed or not any(
            len(buffer) >= min(needed, buffer.capacity) for buffer in buffers
        ):
            return 0
        if config.training_intensity is None:
            return 1
        owed = counters.num_rows_owed + config.training_intensity * num_new
        num_updates, counters.num_rows_owed = divmod(owed, config.train_batch_size)
        return int(num_updates)

    # ---- stretches

    def _train(self) -> ResultDict:
        try:
            return super()._train()
        except StretchError as error:
            failure = error.__cause__
        # The iteration was undone. In single rounds the same failure comes again, with all that
        # belongs to it: the request of its round, its crash file.
        self._makes_single_rounds = True
        try:
            result = super()._train()
        finally:
            self._makes_single_rounds = False
        _LOGGER.warning(
            "Something failed in this iteration that did not fail when the iteration was made "
            "again: an env, most likely, that does not follow from its seed and actions alone.",
            exc_info=failure,
        )
        return result

    def _num_rounds_at_once(self) -> int:
        """How many rounds the next request may be for; 1 where somebody looks at single ones."""
        config = self.config
        wanted = config.min_sample_timesteps_per_iteration or 0
        left = wanted - self._iteration.played.num_steps(config.count_steps_by)
        num_steps = config.num_steps_of_round
        num_rounds = min(-(-left // num_steps), _LONGEST_STRETCH)
        if num_rounds < 2 or self._makes_single_rounds or not self._can_make_stretches():
            return 1
        buffer = self.replay_buffers.only
        most_steps = min(buffer.capacity, _MOST_BYTES // buffer.num_bytes_per_step)
        return max(1, min(num_rounds, most_steps // num_steps))

    def _can_make_stretches(self) -> bool:
        kind, ids = type(self), self.module_specs.ids
        if any(getattr(kind, name) is not getattr(OffPolicyAlgorithm, name) for name in _OF_ROUNDS):
            return False
        if len(ids) > 1 or not self.env_runner_group.can_play_in_rounds:
            return False
        buffer, trained = self.replay_buffers.only, self._modules.now.trained
        return (
            type(buffer) in (ReplayBuffer, PrioritizedReplayBuffer)
            and buffer.num_added > 0
            and not callable(trained)
            and self.is_trained(ids[0])
            and not self.normalizations.only.has_effect
            and self.explorations.only.ignores_samples
            and self.config.batch_mode == "truncate_episodes"
            and not any(map(self.callbacks.listens_to, _LISTENERS))
        )

    def _make_stretch(self, num_rounds: int) -> None:
        """Makes many rounds in one request; see `trainer.algorithms.stretch`."""
        config, counters, result = self.config, self.counters, self._iteration
        timestep, num_steps = counters.num_env_steps_sampled, config.num_steps_of_round
        id_, buffer = self.module_specs.only_id, self.replay_buffers.only
        with buffer.writing(num_rounds * num_steps) as writer:
            stretch = Stretch(
                learner=self.learners[id_],
                writer=writer,
                buffer=buffer,
                result=result,
                steps_per_slot=config.get_rollout_fragment_length(),
                num_slots=config.num_env_slots,
                num_sampled=timestep,
                num_updates_due=self._num_updates_due,
                look_after=self._look_after,
            )
            try:
                sample = self._sampled(num_rounds * num_steps, by_agent=False, rounds=stretch)
                writer.check(sample.episodes)
            except (AlgorithmStoppedError, BdbQuit):
                raise
            except Exception as error:
                # Of wrong numbers single rounds say where they came from.
                if error is stretch.own_error and not isinstance(error, ModuleError):
                    raise
                raise StretchError from error
        self.explorations.only.strategy.last_timestep = counters.num_env_steps_sampled - num_steps
        result.num_training_steps += num_rounds - 1
        counters.num_training_steps += num_rounds - 1
        if stretch.make_metrics is not None:
            num_rows = stretch.num_updates * config.train_batch_size
            result.add_update(
                {id_: stretch.make_metrics()},
                num_env_steps=num_rows,
                num_agent_steps=num_rows,
                num_rows={id_: num_rows},
            )
            with result.time("synch_weights"):
                self.send_policy(timestep=stretch.num_sampled_at_update)

    def _look_after(self) -> None:
        self._refuse_if_stopped("train")
        self._evaluations.look_after()

    def add_to_result(self, result: IterationResult) -> None:
        """Adds what the replay buffer holds."""
        buffers = self.replay_buffers.values()
        num_added, num_stored = sum(one.num_added for one in buffers), sum(map(len, buffers))
        result.add_section(
            _BUFFER,
            {
                "num_env_steps_stored": num_stored,
                "num_episodes_stored": sum(one.get_num_episodes() for one in buffers),
                "num_env_steps_added": result.played.num_env_steps,
                "num_env_steps_added_lifetime": num_added,
                "num_env_steps_evicted_lifetime": num_added - num_stored,
            },
        )

    def _marks_of_parts(self) -> list[Undo]:
        # A buffer is too large to be copied in every iteration: it undoes its own changes.
        return [buffer.mark() for buffer in self.replay_buffers.values()]

    # ---- checkpoints

    def get_checkpointable_components(self) -> Collection[tuple[str, HasState]]:
        """The parts of every algorithm, and the replay buffer."""
        buffers = component_of(self.replay_buffers, self.replay_buffers.ids)
        return [*super().get_checkpointable_components(), (_BUFFER, buffers)]

    def get_state(
        self,
        components: str | Collection[str] | None = None,
        *,
        not_components: str | Collection[str] | None = None,
    ) -> State:
        """See `Checkpointable`; the buffer is left out with `store_buffer_in_checkpoints=False`.

        It is there nevertheless when it is asked for by name.
        """
        if components is None and not self.config.store_buffer_in_checkpoints:
            left_out = [not_components] if isinstance(not_components, str) else not_components
            not_components = [*(left_out or ()), _BUFFER]
        return super().get_state(components, not_components=not_components)

    def _checkpoint_metadata(self) -> dict[str, Any]:
        is_stored = self.config.store_buffer_in_checkpoints
        return {**super()._checkpoint_metadata(), "holds_replay_buffer": is_stored}

    def _components_that_may_lack(self) -> list[str]:
        # One may be restored that the settings would not save, and one that was not saved may lack.
        ids = self.replay_buffers.ids
        return [_BUFFER] if len(ids) == 1 else [f"{_BUFFER}/{id_}" for id_ in ids]

    def _note_restored(self, found: Collection[str]) -> None:
        if {*self._components_that_may_lack()}.isdisjoint(found):
            self.replay_buffers = self._make_buffers({})
            _LOGGER.warning(
                "The checkpoint holds no replay buffer (store_buffer_in_checkpoints=False when it "
                "was saved). Learning goes on once %d steps are stored again, so the run does "
                "not go on exactly.",
                max(1, self.config.num_steps_sampled_before_learning_starts),
            )
        super()._note_restored(found)
