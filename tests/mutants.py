# ruff: noqa: E501 - texts of the source as they stand there
"""Mistakes to be made in the source on purpose, and which tests notice them.

    python -m tests.mutants        every mutant, with what its file's are shown to (`SHOWN`)
    python -m tests.mutants -k replay -- tests/contract tests/unit/test_replay_state.py

The chosen tests run in a copy of the project first, as it is: what fails there says nothing of a
mutant, so mutants that are shown to it get no verdict. Then each mutant is put into the copy, its
tests run until one fails, and a line says which one that was. A test that takes longer than its
limit is no verdict either, and named apart: a mutant may hang, or the machine be slow. The exit
code is 0 if every mutant was noticed.

Texts instead of line numbers: a mutant whose text is no longer there, or is there twice, or that
changes nothing, is an error, so that the list keeps up with the source
(`tests/unit/test_mutants.py` looks, too).
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
_PROPERTIES = (
    "test_a_run_of_another_seed_goes_on_as_the_one_that_it_restores_whatever_fails",
    "test_neither_kills_nor_where_envs_are_stepped_make_a_difference",
)


class Shown(NamedTuple):
    """What a mutant of a file is shown to, in this order.

    Attributes:
        tests: files below `tests`; those that notice most in a second first.
        runs: runs of the contract suite of algorithms that use the file.
    """

    tests: str
    runs: tuple[str, ...] = ()

    def arguments(self):
        """For pytest."""
        files = [f"tests/{name}.py" for name in self.tests.split()]
        suite = "tests/contract/test_algorithms.py"
        return files + [f"{suite}::{test}[{run}]" for run in self.runs for test in _PROPERTIES]


_OF_EPISODES = (
    "unit/test_episodes_known_answers unit/test_episodes_growing unit/test_episodes_chunks "
    "unit/test_episodes_sampling unit/test_episodes_state unit/test_episodes_rllib_names "
    "unit/test_episode_returns unit/test_episodes_properties"
)
_OF_SEVERAL_AGENTS = (
    "unit/test_multi_agent_episode unit/test_multi_agent_golden unit/test_multi_agent_properties"
)
SHOWN = {
    "trainer/seeding.py": Shown(
        "unit/test_seeding unit/test_modules_by_module", ("DQN", "PPO, several agents")
    ),
    "trainer/learners/learner.py": Shown(
        "unit/test_ppo_learner contract/test_components integration/test_own_learners",
        ("DQN", "PPO"),
    ),
    "trainer/learners/replay_learner.py": Shown(
        "unit/test_dqn_learner unit/test_sac_learner "
        "contract/test_components integration/test_own_learners",
        ("DQN, distributions", "DQN"),
    ),
    "trainer/connectors/learner_pieces.py": Shown("integration/test_learner_connectors"),
    "trainer/modules/torch_layers.py": Shown("integration/test_torch_draws"),
    "trainer/modules/torch_draws.py": Shown("integration/test_torch_draws"),
    "trainer/learners/torch_schedulers.py": Shown("integration/test_torch_lr_schedulers"),
    "trainer/algorithms/ppo/torch_learner.py": Shown("integration/test_own_losses_in_torch"),
    "trainer/learners/torch_learner.py": Shown("integration/test_own_losses_in_torch"),
    "trainer/learners/torch_optimizers.py": Shown("integration/test_own_losses_in_torch"),
    "trainer/nn/optimizers.py": Shown(
        "contract/test_modules unit/test_nn_optimizers contract/test_components",
        ("PPO", "SAC, discrete"),
    ),
    "trainer/learners/learning_checks.py": Shown("unit/test_learning_checks"),
    "trainer/algorithms/ppo/ppo.py": Shown(
        "unit/test_ppo_learner contract/test_components", ("PPO",)
    ),
    "trainer/replay/step_ring.py": Shown(
        "unit/test_replay_buffer contract/test_components unit/test_replay_state", ("DQN",)
    ),
    "trainer/replay/frame_store.py": Shown(
        "unit/test_replay_frames unit/test_replay_state unit/test_replay_episode_writer"
    ),
    "trainer/algorithms/marwil/loss.py": Shown("unit/test_marwil_learner"),
    "trainer/algorithms/marwil/marwil.py": Shown("unit/test_marwil_learner", ("MARWIL",)),
    "trainer/algorithms/offline.py": Shown(
        "integration/test_learning_from_recordings unit/test_marwil_learner", ("MARWIL", "BC")
    ),
    "trainer/algorithms/cql/cql.py": Shown("unit/test_cql_learner", ("CQL",)),
    "trainer/offline/files.py": Shown("unit/test_offline_files"),
    "trainer/offline/checking.py": Shown("unit/test_offline_files unit/test_offline_reading"),
    "trainer/offline/reading.py": Shown("unit/test_offline_reading"),
    "trainer/replay/replay_buffer.py": Shown(
        "unit/test_replay_prioritized contract/test_components unit/test_replay_state "
        "unit/test_checkpoints_large_arrays",
        ("DQN", "DQN, normalised"),
    ),
    "trainer/modules/rl_module.py": Shown("contract/test_modules unit/test_modules_space_records"),
    "trainer/modules/model_config.py": Shown(
        "contract/test_modules unit/test_modules_actor_critic"
    ),
    "trainer/modules/actor_critic.py": Shown(
        "contract/test_modules unit/test_modules_actor_critic unit/test_modules_images"
    ),
    "trainer/modules/q_module.py": Shown(
        "contract/test_modules unit/test_modules_q_module unit/test_modules_images"
    ),
    "trainer/modules/policy_and_critics.py": Shown(
        "contract/test_modules unit/test_sac_module unit/test_sac_learner"
    ),
    "trainer/modules/sac_module.py": Shown("unit/test_sac_module"),
    "trainer/modules/recurrent_module.py": Shown("contract/test_modules unit/test_modules_memory"),
    "trainer/modules/memory.py": Shown("contract/test_modules unit/test_modules_memory"),
    "trainer/modules/spaces.py": Shown("contract/test_modules unit/test_modules_action_masks"),
    "trainer/modules/random_module.py": Shown(
        "contract/test_modules integration/test_multi_agent_training"
    ),
    "trainer/modules/torch_module.py": Shown(
        "contract/test_modules unit/test_modules_torch integration/test_torch_exactness"
    ),
    "trainer/nn/layers.py": Shown(
        "contract/test_modules unit/test_nn_optimizers unit/test_nn_layers"
    ),
    "trainer/exploration/exploration.py": Shown(
        "contract/test_strategies unit/test_exploration_making unit/test_exploration_continuous"
    ),
    "trainer/modules/feature_noise.py": Shown("unit/test_feature_noise unit/test_nn_torch"),
    "trainer/exploration/strategies.py": Shown(
        "contract/test_strategies unit/test_feature_noise unit/test_exploration_parameter_noise "
        "unit/test_exploration_continuous unit/test_exploration_discrete contract/test_components",
        ("ParameterNoise", "PG, whole episodes", "DQN, ParameterNoise", "StateDependentNoise"),
    ),
    "trainer/exploration/intrinsic_rewards.py": Shown(
        "contract/test_strategies unit/test_exploration_intrinsic_rewards contract/test_components",
        ("RE3", "Curiosity"),
    ),
    "trainer/connectors/encoding.py": Shown(
        "unit/test_connectors_normalization contract/test_components", ("PPO", "DQN, normalised")
    ),
    "trainer/connectors/advantages.py": Shown("unit/test_connectors_advantages", ("PPO",)),
    "trainer/metrics/episode_statistics.py": Shown(
        "unit/test_metrics_episode_statistics contract/test_components", ("PPO",)
    ),
    "trainer/metrics/statistic.py": Shown(
        "unit/test_metrics_logger contract/test_components", ("PPO",)
    ),
    "trainer/env_runners/acting.py": Shown(
        "contract/test_acting integration/test_spaces integration/test_exploration "
        "integration/test_multi_agent_exploration integration/test_stateful_networks",
        (
            "PPO",
            "OrnsteinUhlenbeckNoise",
            "several agents, OrnsteinUhlenbeckNoise",
            "EpsilonGreedy",
        ),
    ),
    "trainer/env_runners/multi_agent_player.py": Shown(
        "integration/test_changing_modules integration/test_multi_agent_exactness",
        ("several agents, OrnsteinUhlenbeckNoise", "several agents, code of users"),
    ),
    "trainer/env_runners/vector_player.py": Shown("integration/test_vector_envs"),
    "trainer/env_runners/env_slot.py": Shown(
        "unit/test_env_slot unit/test_slot_env_state unit/test_env_state "
        "integration/test_env_state_exactness",
        ("PPO", "PPO, memory", "PG, whole episodes"),
    ),
    "trainer/env_runners/messages.py": Shown(
        "unit/test_policy_snapshot unit/test_env_slot unit/test_slot_env_state",
        ("PG, whole episodes", "DQN", "PPO, memory"),
    ),
    "trainer/runner_group/records.py": Shown(
        "unit/test_post_mortem integration/test_scripted_engine integration/test_curriculum "
        "integration/test_evaluation_under_way integration/test_env_state_exactness "
        "integration/test_multi_agent_exactness integration/test_multi_agent_events",
        ("PPO", "PG, whole episodes", "PPO, memory"),
    ),
    "trainer/runner_group/repair.py": Shown(
        "unit/test_runners unit/test_post_mortem integration/test_scripted_engine "
        "faults/test_runner_faults",
        ("PPO",),
    ),
    "trainer/runner_group/runners.py": Shown("unit/test_runners integration/test_scripted_engine"),
    "trainer/runner_group/sampling.py": Shown("unit/test_runners"),
    "trainer/algorithms/appo/appo.py": Shown("integration/test_appo"),
    "trainer/algorithms/appo/vtrace.py": Shown("unit/test_vtrace"),
    "trainer/algorithms/sample_ahead.py": Shown("integration/test_appo"),
    "trainer/runner_group/user_calls.py": Shown("unit/test_runners integration/test_group_methods"),
    "trainer/runner_group/plays.py": Shown(
        "unit/test_runners integration/test_evaluation_modes integration/test_evaluation"
    ),
    "trainer/runtime/inline_engine.py": Shown("unit/test_inline_engine"),
    "trainer/runtime/restart_policy.py": Shown("unit/test_restart_policy"),
    "trainer/runtime/engine.py": Shown("contract/test_engines"),
    "trainer/runtime/local_engine.py": Shown("unit/test_published contract/test_engines", ("PPO",)),
    "trainer/algorithms/algorithm.py": Shown(
        "contract/test_components integration/test_dqn integration/test_normalization",
        ("PPO", "DQN"),
    ),
    "trainer/algorithms/restoring.py": Shown(
        "integration/test_undone_iterations integration/test_dqn integration/test_evaluation_modes "
        "integration/test_changing_modules integration/test_results",
        ("PPO", "DQN"),
    ),
    "trainer/algorithms/on_and_off_policy.py": Shown("integration/test_dqn"),
    "trainer/learners/learner_group.py": Shown("unit/test_learner_group"),
    "trainer/algorithms/checkpointing.py": Shown("contract/test_components", ("PPO", "DQN")),
    "trainer/algorithms/training_iteration.py": Shown(
        "unit/test_time_split integration/test_results integration/test_multi_agent_results",
        ("PPO", "DQN"),
    ),
    "checkpoints/links.py": Shown("integration/test_links_out_of_runs"),
    "checkpoints/policy.py": Shown("faults/test_forged_policy_files"),
    "checkpoints/directory.py": Shown(
        "faults/test_checkpoint_crashes faults/test_savers_beside_each_other"
    ),
    "trainer/evaluation/evaluations.py": Shown(
        "contract/test_components integration/test_foreach_metrics integration/test_evaluation",
        ("PPO, evaluation runner", "PPO"),
    ),
    "trainer/episodes/single_agent_episode.py": Shown(_OF_EPISODES),
    "trainer/episodes/episode_columns.py": Shown(_OF_EPISODES),
    "trainer/episodes/episode_state.py": Shown(_OF_EPISODES),
    "trainer/episodes/lookback_buffer.py": Shown(_OF_EPISODES),
    "trainer/episodes/nested.py": Shown(_OF_EPISODES),
    "trainer/episodes/agent_ledger.py": Shown(_OF_SEVERAL_AGENTS),
    "trainer/episodes/agent_parts.py": Shown(_OF_SEVERAL_AGENTS),
    "trainer/episodes/agent_columns.py": Shown(_OF_SEVERAL_AGENTS),
    "trainer/episodes/multi_agent_state.py": Shown(_OF_SEVERAL_AGENTS),
    "trainer/nn/product.py": Shown("unit/test_nn_distributions"),
    "trainer/metrics/logger.py": Shown("unit/test_metrics_logger unit/test_metrics_rllib_table"),
    "trainer/algorithms/dqn/dqn.py": Shown("unit/test_dqn_learner"),
    "trainer/algorithms/td3/td3.py": Shown("unit/test_td3_learner"),
    "trainer/tune/controller.py": Shown("unit/test_tune_controller unit/test_tune_searchers"),
    "trainer/tune/comparison.py": Shown("unit/test_tune_controller"),
    "trainer/tune/journal_entries.py": Shown("unit/test_tune_controller"),
    "trainer/tune/optuna_search.py": Shown("unit/test_tune_optuna"),
    "trainer/tune/experiment.py": Shown("faults/test_tune_kills"),
    "trainer/rllib_scripts/script_reading.py": Shown("unit/test_rllib_script_check"),
    "trainer/rllib_scripts/script_check.py": Shown("unit/test_rllib_script_check"),
    "trainer/rllib_names/__init__.py": Shown("integration/test_rllib_check"),
    "trainer/rllib_scripts/import_hook.py": Shown("integration/test_rllib_check"),
}
_COPIED = (
    "trainer",
    "trainer_toolkit",
    "callbacks",
    "checkpoints",
    "tests",
    "benchmarks",
    "examples",
    "docs",
)
_MOST_SECONDS = 300
_MOST_SECONDS_UNMUTATED = 3600
_FAILURES = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)


class Mutant(NamedTuple):
    """One mistake: `new` stands where `old` stood in `file`."""

    file: str
    old: str
    new: str

    @property
    def name(self):
        """The file and the first line that is changed."""
        lines = zip(self.old.splitlines(), [*self.new.splitlines(), ""], strict=False)
        changed = next((old for old, new in lines if old != new), self.old)
        return f"{self.file}: {changed.strip()}"


def _of(file, *pairs):
    return [Mutant(file, old, new) for old, new in pairs]


MUTANTS = [
    # ---- random numbers follow from a position
    *_of(
        "trainer/seeding.py",
        ("spawn_key=(int(role), *position))", "spawn_key=(int(role), *position[1:]))"),
        ("self._counter[2], self._counter[3] = number, stream", "self._counter[2] = number"),
        (
            "(0, 0, position, 0)\n        self._bits.state = self._template",
            "(0, 0, position, 0)",
        ),
        ("(episode_number << (num_slots - 1).bit_length()) | slot", "episode_number + slot"),
        ("both * (both + 1) // 2 + ticket", "both"),
        (
            "return _permuted((index << 1) | (role is Role.EVALUATION), self._keys)",
            "return _permuted(index << 1, (1, 2, 3, 4))",
        ),
        ("f\"{'i' if isinstance(id_, int) else 's'}{id_}\"", 'f"{id_}"'),
    ),
    # ---- learning and its state
    *_of(
        "trainer/learners/learner.py",
        ("            undo(self.mark())\n            episodes", "            episodes"),
        (
            "                self.num_updates += 1\n                for",
            "                for",
        ),
        ("        self._attributes.set_state(of_users.get(_ATTRIBUTES, {}))\n", ""),
        ("            self.metrics.set_state(of_users[_LOGGED])\n", "            pass\n"),
        ("            self._attributes.remove_all_but(names)\n", ""),
    ),
    *_of(
        "trainer/learners/replay_learner.py",
        ("rng = self._random.at(self.num_updates)", "rng = self._random.at(0)"),
        ("follow(target, source, tau, scratch", "follow(target, source, 1.0, scratch"),
        (
            '        self.last_target_update_ts = int(state["last_target_update_ts"])\n',
            "",
        ),
        ('        self.num_target_updates = int(state["num_target_updates"])\n', ""),
        (
            "            if isinstance(part, TargetNetwork):\n                part.follow(1.0)",
            "            del part",
        ),
        ("buffer.update_priorities(sampled.rows, update.td_errors)", "pass"),
        (
            "lr = self._lr.value_at(num_env_steps_sampled_before)\n        event",
            "lr = self._lr.value_at(0)\n        event",
        ),
    ),
    # ---- learning from recordings
    *_of(
        "trainer/algorithms/marwil/loss.py",
        ("scale = beta / (_SMALLEST_NORM", "scale = 1.0 / (_SMALLEST_NORM"),
        ("update_rate * (2.0 * vf_loss - moving_square)", "update_rate * 2.0 * vf_loss"),
        ("advantages * (-vf_coeff / num_rows)", "advantages * (-1.0 / num_rows)"),
        ("d_logp=weights * (-1.0 / num_rows)", "d_logp=np.full(num_rows, -1.0 / num_rows)"),
    ),
    *_of(
        "trainer/algorithms/marwil/marwil.py",
        ("np.where(columns.is_terminated, 0.0, values[num_rows:])", "values[num_rows:]"),
        ("        self.moving_square = float(state[_SQUARE])\n", "        pass\n"),
        ("        self.moving_square = loss.moving_square\n", ""),
        ("        if np.isinf(loss.weights).any():", "        if False:"),
    ),
    *_of(
        "trainer/algorithms/cql/cql.py",
        ("(candidates - log_densities) / temperature", "candidates / temperature"),
        ("-width * math.log(2.0)", "0.0"),
        ("self.num_updates >= self.settings.bc_iters", "self.num_updates > self.settings.bc_iters"),
        ("np.full_like(recorded, -1.0 / num_rows)", "np.zeros_like(recorded)"),
        ("0.0 if self.settings.deterministic_backup else alpha", "alpha"),
        ("loss=one.loss + weight * held.loss", "loss=one.loss"),
    ),
    *_of(
        "trainer/algorithms/offline.py",
        ("(_RECORDINGS, self.reader)]", "]"),
        (
            "num_env_steps_sampled_before=self.counters.trained.num_env_steps",
            "num_env_steps_sampled_before=0",
        ),
        ("if not (source.is_trusted or name in handed_in):", "if False:"),
        ("                statistics.add([recordings.episode(number)])", "                pass"),
    ),
    *_of(
        "trainer/offline/files.py",
        ("        if not file.resolve().is_relative_to(folder):", "        if False:"),
        ("        _refuse_large(str(path), sum(one.file_size for one in read.values()))\n", ""),
        ("holds_env_actions=False", "holds_env_actions=True"),
    ),
    *_of(
        "trainer/offline/checking.py",
        ("            leaf.flags.writeable = False", "            pass"),
        ("(numbers != column) | (column < low)", "(column < low)"),
        ("(column < low) | (column > high)", "(column < low)"),
        ('f"{self.is_terminated} {self.is_truncated}"', 'f"{self.is_terminated}"'),
        ("            found.update(np.ascontiguousarray(leaf).data)\n", ""),
    ),
    *_of(
        "trainer/offline/reading.py",
        ("Role.RECORDINGS, self.num_passes)", "Role.RECORDINGS)"),
        (
            "self.num_passes, self.num_read = self.num_passes + 1, 0",
            "self.num_passes, self.num_read = 0, 0",
        ),
        ('        if state["fingerprint"] != own.fingerprint:', "        if False:"),
        ("            if columns.digest() != self._digests[number]:", "            if False:"),
        ("len(episodes) < len(recordings)", "len(episodes) < 2"),
    ),
    *_of(
        "trainer/connectors/learner_pieces.py",
        ("copies = [_copied(episode) for episode in episodes]", "copies = list(episodes)"),
        ("        own.update(copy.deepcopy(state[name]))\n", ""),
        ("                delattr(piece, name)\n", "                pass\n"),
        ("            _give(piece, state[str(number)])\n", "            pass\n"),
    ),
    *_of(
        "trainer/modules/torch_layers.py",
        ("seed = 0 if seeds is None else int(seeds[start])", "seed = 0"),
        ("with seeded_draws(self.torch, seed):", "if True:"),
    ),
    *_of(
        "trainer/modules/torch_draws.py",
        (".view(np.uint64) >> np.uint64(1)", ".view(np.uint64) * np.uint64(0)"),
    ),
    *_of(
        "trainer/learners/torch_schedulers.py",
        ("        for _ in range(num_steps):\n            self._step()\n", ""),
        ("            self._go_to(max(before, 0))\n", ""),
        ("        self._begin()\n        for _", "        for _"),
        ("        self._num_steps = done + 1\n", "        self._num_steps = done\n"),
        ("self._num_steps = self._num_steps, _HALF_WAY", "self._num_steps = [self._num_steps] * 2"),
    ),
    *_of(
        "trainer/nn/optimizers.py",
        ('        self._num_steps = int(state["num_steps"])\n', ""),
        (
            '            self._second_moment.set_state(state["second_moment"])\n',
            "            pass\n",
        ),
        ("            self._first_moment.set_state(before)\n", ""),
        ("correction_2 = math.sqrt(1.0 - beta_2**number)", "correction_2 = 1.0"),
        (
            "flat = state_array(self.flat)",
            "flat = self.flat",
        ),
        (
            "        if state.keys() != self.shapes.keys():",
            "        if not state.keys() >= self.shapes.keys():",
        ),
        ("            if array.dtype != self.flat.dtype:", "            if False:"),
        ("            if _is_finite(flat):", "            if len(flat):"),
        (
            "np.clip(gradient, -self._limit, self._limit, out=gradient)",
            "np.clip(gradient, 0.0, self._limit, out=gradient)",
        ),
    ),
    *_of(
        "trainer/nn/layers.py",
        (
            "        np.subtract(1.0, scratch, scratch)\n        np.multiply(cache.gradient, scratch",
            "        np.multiply(cache.gradient, scratch",
        ),
    ),
    *_of(
        "trainer/algorithms/ppo/ppo.py",
        ('        self.kl_coeff = float(state["kl_coeff"])\n', ""),
        ("            self.kl_coeff *= 1.5", "            self.kl_coeff *= 0.5"),
    ),
    *_of(
        "trainer/algorithms/ppo/torch_learner.py",
        ("            loss = loss + c.kl_coeff * kl.mean()", "            loss = loss + kl.mean()"),
    ),
    *_of(
        "trainer/learners/torch_learner.py",
        ("        self.clipping.clip(global_norm=norm)\n", ""),
        ("optimizer.step(self._num_env_steps)", "optimizer.step(0)"),
    ),
    *_of(
        "trainer/learners/torch_optimizers.py",
        ("given.keys() == expected[index].keys()", "True"),
        ("copy.deepcopy(self.optimizer.state_dict())", "self.optimizer.state_dict()"),
    ),
    # ---- replay
    *_of(
        "trainer/replay/step_ring.py",
        ("        following[count:] = NO_ROW\n", ""),
        (
            "            self.following, self.columns, self.frame_stores = before\n",
            "            pass\n",
        ),
        (
            "                self._count_frames(place, num_used)\n\n        self._log",
            "                pass\n\n        self._log",
        ),
        ('        if state["capacity"] != self.capacity:', "        if False:"),
    ),
    *_of(
        "trainer/replay/frame_store.py",
        ("            self._log.add(undo)\n", ""),
        ("            if not self._counts[slot]:", "            if False:"),
        ("self._free = np.flatnonzero(counts == 0).tolist()", "self._free = []"),
        ("            if np.array_equal(before, items):", "            if True:"),
        ('np.dtype(f"u{slots.itemsize}")', "slots.dtype"),
    ),
    *_of(
        "trainer/replay/replay_buffer.py",
        ("        self._set_running(running)\n\n\n# ---- reduce", "\n\n# ---- reduce"),
        ("            self._largest = before\n", "            pass\n"),
        ("            self._sums, self._minima = before\n", "            pass\n"),
        ("        self._set_largest(largest)\n\n\n_SHARE", "\n\n_SHARE"),
        (
            "        self._minima.set(rows, priorities)\n        self._set_largest",
            "        self._set_largest",
        ),
        ("+ SMALLEST_PRIORITY\n        largest", "\n        largest"),
        ("self._minima.root()) ** -exponent", "self._minima.root()) ** exponent"),
        ('        if state["alpha"] != self.alpha:', "        if False:"),
    ),
    # ---- networks
    *_of(
        "trainer/modules/rl_module.py",
        (
            "        return _rebuild, (type(self), arguments, self.get_state())",
            "        return _rebuild, (type(self), arguments, {})",
        ),
        (
            "        self.gradients = self.parameters.zeros_like()",
            "        self.gradients = self.parameters",
        ),
        (
            "        if rng is not None:\n            self.initialize(rng)",
            "        if rng is not None:\n            self.initialize(np.random.default_rng(0))",
        ),
        (
            "            return {name: array for name, array in state.items() if self.is_for_acting(name)}\n        return state\n\n    def _tensors",
            "            return state\n        return state\n\n    def _tensors",
        ),
        ('        return not name.startswith("vf/")', "        return True"),
        (
            '            "inference_only": self.inference_only,\n            "action_mask_key"',
            '            "action_mask_key"',
        ),
    ),
    *_of(
        "trainer/modules/actor_critic.py",
        (
            '            np.add.reduce(gradient[width:], axis=1, out=self.gradients.views["pi/log_std"])',
            "            pass",
        ),
        (
            "            self._trunk.backward((self._pi, gradient), (self._vf, d_vf_preds[None, :]))",
            "            self._trunk.backward((self._pi, gradient))",
        ),
        (
            "        if len(obs) != self._batch_size:\n            self._allocate(len(obs))\n        features = self._trunk.forward(obs)",
            "        if len(obs) > self._batch_size:\n            self._allocate(len(obs))\n        features = self._trunk.forward(obs)",
        ),
        ("        self._batch_size = -1  # what `backward` needs is overwritten", "        pass"),
    ),
    *_of(
        "trainer/modules/model_config.py",
        ("            np.add(total, d_features, total)", "            pass"),
    ),
    *_of(
        "trainer/modules/q_module.py",
        (
            "            advantages = advantages - advantages.mean(axis=1, keepdims=True)",
            "            advantages = advantages - advantages.mean(axis=0, keepdims=True)",
        ),
        ("            np.subtract(by_action, by_action.mean(axis=0), by_action)\n", ""),
        (
            "        d_advantages = (by_action - d_value / self.num_actions).reshape(gradient.shape)",
            "        d_advantages = gradient",
        ),
        ("            values[is_invalid(outputs[:, :, 0])] = INVALID", "            pass"),
        (
            "        exponentials = np.exp(outputs - outputs.max(axis=2, keepdims=True))",
            "        exponentials = np.exp(outputs - outputs.max())",
        ),
    ),
    *_of(
        "trainer/modules/policy_and_critics.py",
        ('        return name.startswith("pi/")', "        return True"),
        ("        self._pi.backward(d_action_dist_inputs.T)", "        pass"),
        (
            "        self._obs_and_ones[:-1] = obs.T\n        return self._obs_and_ones",
            "        return self._obs_and_ones",
        ),
        (
            "        parameters = Parameters(self._critic_shapes(), dtype=self.parameters.dtype)\n        return self._critics_over(parameters, parameters.zeros_like())",
            "        return self._critics_over(self.parameters, self.gradients)",
        ),
    ),
    *_of(
        "trainer/modules/sac_module.py",
        (
            "            self.parameters.views[LOG_ALPHA][:] = np.log(self._config.initial_alpha)",
            "            pass",
        ),
    ),
    *_of(
        "trainer/modules/recurrent_module.py",
        (
            '        self._tower_of = {"pi": names[0], "vf": names[-1]}',
            '        self._tower_of = {"pi": names[0], "vf": names[0]}',
        ),
        ("of_towers[tower] + d_inputs if tower in of_towers else d_inputs", "d_inputs"),
        ('            if name != "vf" or not self.inference_only', "            if name"),
        ("            one.backward(room)", "            pass"),
    ),
    *_of(
        "trainer/modules/memory.py",
        (
            "        if mask is not None:\n            inputs = masked_outputs(inputs, mask)\n        return {ACTION",
            "        return {ACTION",
        ),
        (
            "            d_action_dist_inputs = masked_gradient(d_action_dist_inputs, mask)\n        self.backward_sequences",
            "            pass\n        self.backward_sequences",
        ),
        (
            "        state = state_form(self).given(batch, len(sequences))",
            "        state = state_form(self).repeated(len(sequences))",
        ),
    ),
    *_of(
        "trainer/modules/spaces.py",
        ("            part[~part.any(axis=1)] = True", "            pass"),
        (
            "            d_action_dist_inputs = masked_gradient(d_action_dist_inputs, self._mask)\n        self._backward",
            "            pass\n        self._backward",
        ),
        (
            "        return masked_outputs(outputs, self._masks.effective(obs))",
            "        return outputs",
        ),
        (
            "    return mask if repeats == 1 else np.repeat(mask, repeats, axis=1)",
            "    return mask if repeats == 1 else np.tile(mask, repeats)",
        ),
    ),
    *_of(
        "trainer/modules/random_module.py",
        (
            "np.full((len(inputs), self.noise_width), 0.5)",
            "np.random.rand(len(inputs), self.noise_width)",
        ),
        (
            "        inputs: Array = np.zeros((len(obs), self.action_distribution.num_inputs), np.float32)",
            "        inputs: Array = np.empty((len(obs), self.action_distribution.num_inputs), np.float32)",
        ),
    ),
    *_of(
        "trainer/modules/torch_module.py",
        (
            "        for name, array in given.items():\n            buffers[name][...] = array",
            "        pass",
        ),
        ("        return {**super()._tensors(), **buffers}", "        return super()._tensors()"),
        (
            "        self.parameters.set_state({name: a for name, a in state.items() if name not in buffers})\n        for",
            "        for",
        ),
        ("            array[...] = theirs[name]", "            pass"),
        ("        self._torch_layers.draws.begin_update(root_seed, number, of=of)", "        pass"),
    ),
    # ---- exploring, normalising, counting
    *_of(
        "trainer/exploration/exploration.py",
        (
            "        left = 1.0 - min(t, self.schedule_timesteps) / self.schedule_timesteps",
            "        left = 1.0 - t / self.schedule_timesteps",
        ),
        (
            '            self.sub_exploration.set_state(state["sub_exploration"])\n',
            "            pass\n",
        ),
        (
            '            self.sub_exploration.check_state(state["sub_exploration"])\n',
            "            pass\n",
        ),
        ("        self.sub_exploration.begin_episode(slot)", "        pass"),
        ("        self.sub_exploration.advance(slots, noise)", "        pass"),
        ("            check_shape(state, like(self.get_state()))", "            pass"),
        (
            '        self.last_timestep = int(state.get("last_timestep", self.last_timestep))',
            "        pass",
        ),
        (
            "        return self.sub_exploration.logp(inputs, actions, timestep=timestep)",
            "        return self.distribution.logp(inputs, actions)",
        ),
    ),
    *_of(
        "trainer/exploration/strategies.py",
        ('            self.current_stddev = float(state["cur_stddev"])\n', "            pass\n"),
        ("        self._steps[slot] = 0\n", "        pass\n"),
        ("            self._steps[slot] = step + 1\n", "            self._steps[slot] = step\n"),
        ("                self._drawn.pop(slot, None)\n", ""),
        (
            "                self.current_stddev *= _ADAPTATION",
            "                self.current_stddev *= 1.0",
        ),
        (
            "        if timestep < self.random_timesteps:\n            return self._uniform.logp",
            "        if False:\n            return self._uniform.logp",
        ),
        (
            "noise, epsilon = action_distribution.noise, self._epsilon_at(timestep)",
            "noise, epsilon = action_distribution.noise, self._epsilon_at(0)",
        ),
        (
            "        share: Array = epsilon * uniform + (1.0 - epsilon) * is_best",
            "        share: Array = epsilon * uniform + is_best",
        ),
        (
            "    chosen: Array = (valid.cumsum(axis=1) > ranks[:, None]).argmax(axis=1)",
            "    chosen: Array = ranks",
        ),
        (
            "        if known != timestep or schedule is not self.epsilon_schedule:",
            "        if known < 0 or schedule is not self.epsilon_schedule:",
        ),
        (
            "        return self.distribution.logp((gaps / self.temperature).astype(np.float32), actions)",
            "        return self.distribution.logp(gaps, actions)",
        ),
        ("self.temperature * noise), None", "noise), None"),
        (
            "        actions: Array = np.minimum(np.maximum(noisy, self._low), self._high)",
            "        actions: Array = noisy",
        ),
        (
            "        self.advance(choice.slots, choice.noise)\n        if explore",
            "        if explore",
        ),
        (
            "            self._states[slot] = state - self.ou_theta * state + self.ou_sigma * row",
            "            self._states[0] = state - self.ou_theta * state + self.ou_sigma * row",
        ),
        (
            "        self._states[slot] = np.zeros(len(self._span))",
            "        self._states.setdefault(slot, np.zeros(len(self._span)))",
        ),
        ('        return {"cur_stddev": self.current_stddev}', "        return {}"),
        (
            "        if not explore or not np.count_nonzero(is_random):",
            "        if not np.count_nonzero(is_random):",
        ),
        (
            '        check_shape(state, fields({"cur_stddev": ANY_NUMBER, "sub_exploration": of_type(dict)}))',
            "        pass",
        ),
    ),
    *_of(
        "trainer/exploration/intrinsic_rewards.py",
        ('        self._optimizer.set_state(state["optimizer"])\n', ""),
        ('            self._networks.set_state(state["networks"])\n', "            pass\n"),
        (
            '            self._memory = np.array(state["memory"], np.float32).reshape(-1, self.embeds_dim)\n',
            "",
        ),
    ),
    *_of(
        "trainer/connectors/encoding.py",
        ('        self._returns = RunningMoments.from_state(state["returns"])\n', ""),
        ('        self._running = dict(state["running"])\n', ""),
        ("return rows[1:] if chunk.t_started > 0 else rows", "return rows"),
    ),
    *_of(
        "trainer/connectors/advantages.py",
        ("next_values[self.ends] = self.bootstrap_values", "next_values[self.ends] = 0.0"),
        ("discounts[ends] = 0.0", "pass"),
        ("max(SMALLEST_STD, float(advantages.std()))", "SMALLEST_STD"),
    ),
    *_of(
        "trainer/metrics/episode_statistics.py",
        ('        self._num_lifetime = state["num_lifetime"]\n', ""),
        (
            '        self._records = [_record_from(record) for record in state["records"]]\n',
            "",
        ),
    ),
    *_of(
        "trainer/metrics/statistic.py",
        (
            '        self.values = deque(state["values"], maxlen=self.values.maxlen)',
            '        self.values = deque(state["values"])',
        ),
        ('        self._new.set_state(state["new"])\n', ""),
    ),
    # ---- episodes, distributions, and what is logged of them
    *_of(
        "trainer/episodes/single_agent_episode.py",
        ("        if self._growth is not growth:", "        if self._growth is growth:"),
        ("        self.drop_lookback()", "        pass"),
        ("        part.task = self.task", "        pass"),
        (
            "return self._elapsed_s + self._clock() - self._started_at_s",
            "return self._elapsed_s - self._started_at_s",
        ),
    ),
    *_of(
        "trainer/episodes/episode_columns.py",
        (
            "        self.own_change = joined_changes(self.own_change, change)",
            "        self.own_change = change",
        ),
        ("    return min(wanted, steps)", "    return wanted"),
        (
            "if key in self.extra_model_outputs or at_indices is not None:",
            "if key in self.extra_model_outputs:",
        ),
    ),
    *_of(
        "trainer/episodes/episode_state.py",
        ("        return set(value)", "        return value"),
        ("    if not first.rewards.total:", "    if first.rewards.total:"),
        ("        self.env_id = env_id", "        pass"),
    ),
    *_of(
        "trainer/episodes/lookback_buffer.py",
        ("if not 0 <= place < total:", "if not 0 <= place <= total:"),
        ("present = [0 <= place < total for", "present = [0 <= place <= total for"),
        (
            "return np.full(shape, fill, _dtype_that_holds(fill, np.dtype(dtype)))",
            "return np.full(shape, fill, dtype)",
        ),
    ),
    *_of(
        "trainer/episodes/nested.py",
        (
            "if list(map(_DTYPE, vectors)).count(first.dtype) != len(vectors):",
            "if False:",
        ),
    ),
    *_of(
        "trainer/episodes/agent_ledger.py",
        (
            "if add is None or not (type(reward) is float or is_number(reward)):",
            "if add is None:",
        ),
    ),
    *_of(
        "trainer/episodes/agent_parts.py",
        ("return None if line.open is None else line.open.copied()", "return None"),
        ("        part.recent = ledger.recent", "        pass"),
        ("    successor.appeared = dict(ledger.appeared)", "    pass"),
        (
            "return first.open if second.episode.t_started == first.episode.t + 1 else None",
            "return None",
        ),
        ("return not len(second.episode) and first.clock[-1] == second.clock[-1]", "return False"),
    ),
    *_of(
        "trainer/episodes/agent_columns.py",
        ("        total += column in _WITH_LAST", "        pass"),
        ("if one or is_named or _count(items):", "if one or _count(items):"),
    ),
    *_of(
        "trainer/episodes/multi_agent_state.py",
        ('any(np.diff(clock) <= 0) or clock[-1] > state["env_t"]', 'clock[-1] > state["env_t"]'),
    ),
    *_of(
        "trainer/nn/product.py",
        (
            "[part.distribution.entropy(self._inputs_of(part, inputs)) for part in self._parts]",
            "[part.distribution.entropy(self._inputs_of(part, inputs)) for part in self._parts[:1]]",
        ),
    ),
    *_of(
        "trainer/metrics/logger.py",
        (
            "if path[:length] == prefix}",
            "if path[0] == prefix[0]}",
        ),
        (
            "self._report(self._clock() - self._starts.stack.pop())",
            "self._report(self._clock() - self._starts.stack[-1])",
        ),
    ),
    *_of(
        "trainer/algorithms/td3/td3.py",
        ("np.minimum(np.maximum(noise, -clip), clip)", "noise"),
        ('            "target": self.target,\n', ""),
        ("    return np.minimum(np.maximum(noisy, -1.0), 1.0)", "    return noisy"),
        ("        if not settings.smooth_target_policy:", "        if False:"),
        ("smallest_of(target.critics.values(ahead))", "target.critics.values(ahead)[0]"),
        (
            "self.target.module.target_output({OBS: next_obs}",
            "self.module.target_output({OBS: next_obs}",
        ),
        (
            "        if (self.num_updates + 1) % self.settings.policy_delay == 0:",
            "        if True:",
        ),
        ("        if self.num_updates % self.settings.policy_delay == 0:", "        if True:"),
        ("d_actions * (1.0 - actions * actions)", "d_actions"),
        (
            "first = module.critics.passes(batch.obs, actions)[:1]",
            "first = module.critics.passes(batch.obs, actions)[-1:]",
        ),
    ),
    *_of(
        "trainer/algorithms/dqn/dqn.py",
        (
            "gradient[rows, actions] = weights * slopes / num_rows",
            "gradient[rows, actions] = weights * slopes",
        ),
    ),
    # ---- the acting side
    *_of(
        "trainer/env_runners/acting.py",
        ("for _ in range(played)),", "for _ in range(played - 1)),"),
        ("        for noise in played:\n            self.pass_over(slot, noise)\n", ""),
        ("            self.strategy.begin_episode(slot)\n", "            pass\n"),
        ("        self._newest = request\n", ""),
        ("if self.strategy is None or not explore:", "if self.strategy is None:"),
        ("outputs = {ACTION_DIST_INPUTS: inputs.copy()}", "outputs = {ACTION_DIST_INPUTS: inputs}"),
        ("if self._masks is not None and (blocked", "if False and (blocked"),
        ("if self._perturbed is not None and explore:", "if self._perturbed is not None:"),
        ("memory = [seat.memory for seat in seats]", "memory = [None for _ in seats]"),
        ("previous=policy.previous_steps.after(episodes))", "previous={})"),
        (
            "self._role, kind=kind, width=width, agent=self._agent_position",
            "self._role, kind=kind, width=width",
        ),
        (
            "            position = (*position, *(0,) * apart, *self._agent_position)\n",
            "            pass\n",
        ),
        ("        if carried is None:\n            return", "        if True:\n            return"),
        ("        self._encoder.normalizer = normalization.observations\n", "        pass\n"),
    ),
    *_of(
        "trainer/env_runners/multi_agent_player.py",
        ("request._replace(explore=False) if id_ in self._greedy else request", "request"),
        ("seat.begin(*self._begun, played=", "seat.begin(*self._begun, played=0 and "),
        ("            seat.memory = part[0] if part else None\n", "            pass\n"),
        ("        for slot in self.slots:\n            slot.take_policies(self.policies)\n", ""),
    ),
    *_of(
        "trainer/env_runners/vector_player.py",
        ("            whole[rows] = column\n", "            whole[: len(rows)] = column\n"),
        (
            "Rows(observations[rows], noise[rows], rows)",
            "Rows(observations[rows], noise[rows], range(len(rows)))",
        ),
        (
            "                self._check_observation(index, observations[index])\n",
            "                pass\n",
        ),
    ),
    *_of(
        "trainer/env_runners/env_slot.py",
        ("        self.memory = position.memory\n", ""),
        ("        self.observation = position.observation\n", ""),
        ("(stream, played=position.num_steps)", "(stream)"),
        (
            "        self.earlier_chunks = [self._episode_from(state) for state in position.earlier_chunks]\n",
            "",
        ),
        (
            "        self._put_tasks_back(position.tasks, position.num_steps)\n        if not is_back",
            "        if not is_back",
        ),
        (
            "if entry.step >= num_steps)\n        due = self._enter_due(due, num_steps)",
            "if entry.step > num_steps)\n        due = self._enter_due(due, num_steps)",
        ),
        (
            "        self._latest = self.as_made\n",
            "        self._latest = self.as_made = None\n",
        ),
        (
            "return state is None or not self._state.give_back(state)",
            "return False",
        ),
        (
            "return position.carried_state is None and self._carried_first is None",
            "return False",
        ),
        (
            "        if not is_back:\n            self.episode_number += 1",
            "        if not is_back:",
        ),
    ),
    *_of(
        "trainer/env_runners/messages.py",
        (
            "earlier_chunks=before.earlier_chunks + self.earlier_chunks,",
            "earlier_chunks=self.earlier_chunks,",
        ),
        ("actions=before.actions + self.actions,", "actions=self.actions,"),
        (
            "            continues=False,\n        )\n        return whole",
            "            continues=False,\n            memory=None,\n        )\n        return whole",
        ),
    ),
    # ---- the asking side
    *_of(
        "trainer/runner_group/records.py",
        (
            "        self.callbacks = callbacks\n        if self.sent",
            "        if self.sent",
        ),
        (
            "self.callbacks if self.must_be_put_back else None,",
            "None,",
        ),
        ("self.positions if self.must_be_put_back else None,", "None,"),
        (
            "            self.set_task(index, task)\n        self.callbacks",
            "            pass\n        self.callbacks",
        ),
        ("        self.is_continued = is_continued\n", ""),
        (
            "else replace(position.restarted(), env_state=position.env_state)",
            "else position.restarted()",
        ),
        (
            "replace(position, env_state=position.env_state or first)",
            "position",
        ),
        (
            "        self.positions = tuple(position.restarted(skip) for position in self.positions)\n        self.must_be_put_back = True\n",
            "        self.must_be_put_back = True\n",
        ),
    ),
    *_of(
        "trainer/env_runners/messages.py",
        (
            "None if self.normalization is sent.normalization else self.normalization,",
            "None,",
        ),
        ("        if sent is None or sent.table is not self.table:", "        if sent is None:"),
    ),
    *_of(
        "trainer/runner_group/repair.py",
        ("        record.num_restarts += 1\n", ""),
        ("        attempts.play_other()\n", ""),
        ("            pending.ask = None\n        self._reraise", "        self._reraise"),
    ),
    *_of(
        "trainer/runner_group/runners.py",
        (
            "            self.abandon()\n            raise\n        self.owner = None\n",
            "            raise\n        self.owner = None\n",
        ),
        ("                owner.dropped()\n", "                pass\n"),
        ("                    pending.record.sent = None", "                    pass"),
        ("                    pending.record.had_runner = False", "                    pass"),
        ("            if not are_dropped:\n", "            if True:\n"),
        ("        self._recreated = set()\n        if recreated", "        if recreated"),
        (
            "            pending = pending.for_nobody()\n            self._in_flight[pending.index] = pending\n",
            "            return\n",
        ),
    ),
    *_of(
        "trainer/algorithms/appo/appo.py",
        ("            vf_preds=None,\n", ""),
        ("            **self.batching.state_rows(columns),\n", ""),
        ("            action_dist_inputs=inputs,\n", ""),
        (
            "            rows[ADVANTAGES] = (rows[ADVANTAGES] * weights)",
            "            rows[ADVANTAGES] = (rows[ADVANTAGES])",
        ),
    ),
    *_of(
        "trainer/algorithms/appo/vtrace.py",
        ("    following[ends] = 0.0\n", ""),
        ("np.minimum(settings.clip_rho, ratios) * errors", "ratios * errors"),
        ("np.minimum(1.0, ratios)", "ratios"),
    ),
    *_of(
        "trainer/algorithms/sample_ahead.py",
        ("policies[-self.num_samples :]", "policies[: self.num_samples]"),
    ),
    *_of(
        "trainer/runner_group/sampling.py",
        ("            record.drop_ahead()\n", "            pass\n"),
        ("            record.before_ahead.append(record.stand)\n", "            pass\n"),
        ("            del self._records.by_index[index].before_ahead[0]\n", "            pass\n"),
        ("note(pendings, are_dropped=True)", "note(pendings)"),
        (" or not ahead.policy.acts_as(self._records.policy):", ":"),
        (" or ahead.asks != asks or", " or"),
        ("            pending.is_wanted = True\n", "            pass\n"),
    ),
    *_of(
        "trainer/runner_group/user_calls.py",
        ("        self._in_flight.clear()\n", "        pass\n"),
        ("            self._ready.append((", "            print(("),
        ("            undo(self._runners.abandon)\n            for index", "            for index"),
    ),
    *_of(
        "trainer/runner_group/plays.py",
        ("        share.num_holders -= 1\n", ""),
        ("        if share.is_done or share.num_holders:\n", "        if share.is_done:\n"),
        ("        elif not share.is_done:  #", "        else:  #"),
        ("            self._runners.drop()", "            pass"),
        (
            "            self._runners.request_end()\n\n    def _failures",
            "            pass\n\n    def _failures",
        ),
    ),
    *_of(
        "trainer/runtime/inline_engine.py",
        ("        self._signals.must_end = True\n", "        pass\n"),
        (
            "        self._signals.must_end = False\n        self._call = partial(getattr",
            "        self._call = partial(getattr",
        ),
        ("        self._around = self._make_around()\n", ""),
        ("            self.is_busy = False\n", "            pass\n"),
    ),
    *_of(
        "checkpoints/links.py",
        ("if not target.is_relative_to(whole):", "if not target.exists():"),
        ("                waiting.append(Path(entry.path))\n", "                pass\n"),
        ("                _check_ends(Path(entry.path))\n", "                pass\n"),
    ),
    *_of(
        "checkpoints/policy.py",
        ("    if num_bytes > most:", "    if False:"),
        ("                if num_left < 0:", "                if False:"),
    ),
    *_of(
        "trainer/runtime/restart_policy.py",
        ("if num_excess_failures > self.tolerance:", "if False:"),
        ("self.num_without_progress = self.num_idle = self.num_stalled = 0", "pass"),
        ("if num_restarts >= self.max_restarts:", "if num_restarts > self.max_restarts:"),
    ),
    *_of("trainer/runtime/engine.py", ("        self._signals.notes[:] = NO_NOTES\n", "")),
    *_of(
        "trainer/runtime/local_engine.py",
        ("            self._signals.must_end = False\n", ""),
        (
            "            self.kill()\n            return self._lost(None, stalled_s=stalled_s)",
            "            return self._lost(None, stalled_s=stalled_s)",
        ),
    ),
    # ---- a whole algorithm
    *_of(
        "trainer/algorithms/restoring.py",
        ("        undo(partial(algorithm.set_state, CheckedState(before)))\n", ""),
        ('        undo(partial(setattr, iterations, "clock", copy.copy(iterations.clock)))\n', ""),
        ("        undo(self._modules.mark())\n", ""),
        ("        undo(self._evaluations.mark())\n", ""),
        ("        undo(group.end_calls)\n", ""),
        ("        for mark in algorithm._marks_of_parts():\n            undo(mark)\n", ""),
    ),
    *_of(
        "trainer/algorithms/algorithm.py",
        (
            "                learner.normalize_with(dataclasses.replace(learner.normalization, rewards=rewards))\n",
            "",
        ),
    ),
    *_of(
        "trainer/algorithms/on_and_off_policy.py",
        ("return [buffer.mark() for buffer in self.replay_buffers.values()]", "return []"),
    ),
    *_of(
        "trainer/learners/learner_group.py",
        ("                    undo(learner.mark())\n", "                    pass\n"),
    ),
    *_of(
        "trainer/algorithms/checkpointing.py",
        ('        self._adopt(state["root_seed"])\n', "        pass\n"),
        (
            "        self._statistics.set_state(state)\n        self._apply()",
            "        self._statistics.set_state(state)",
        ),
        ('        self._logger.set_state(state["logger"])\n', ""),
    ),
    *_of(
        "trainer/algorithms/training_iteration.py",
        ("            self._algorithm.apply_normalization()\n", ""),
        ("            counters.num_training_steps += 1\n", ""),
    ),
    *_of(
        "trainer/modules/feature_noise.py",
        ("        self._gradient *= np.exp(2.0 * self._log_std)\n", ""),
        ("        loadings /= np.sqrt(variance)[:, :, None]\n", ""),
        ("        variance += LEAST_VARIANCE\n", "        variance += 1.0\n"),
    ),
    *_of(
        "trainer/learners/learning_checks.py",
        ("            if check.is_certain or not is_excused\n", ""),
        (
            "        if self._have_differed and low == self._highest:",
            "        if low == high:",
        ),
        ("    is_held = share > 0.3 and", "    is_held = False and"),
        ("            self._begin(iteration - 1)", "            pass"),
        ("if not _was_updated(result, key[0])}", "if False}"),
        ("        self._margin = 2.0 *", "        self._margin = 0.0 *"),
        ("            if (id_, name) not in self._reported\n", ""),
    ),
    *_of(
        "trainer/evaluation/evaluations.py",
        ('        self.num_evaluations = state["num_evaluations"]\n', ""),
        ('            self._metrics.set_state(state["metrics"])\n', "            pass\n"),
        ('        self._last = copy.deepcopy(state["last"])\n', ""),
    ),
    # ---- tuning: a journal is followed, compared and refused
    *_of(
        "trainer/tune/controller.py",
        ("return [each for each in answers if not self._is_too_late(each)]", "return [*answers]"),
        (
            "            answers += self._in_time(self._apply(entry))\n        self.comparison",
            "            answers += self._apply(entry)\n        answers = self._in_time(answers)\n        self.comparison",
        ),
        ("(answers if recorded is None else recorded)", "(answers)"),
        ("self._ask(cause, move.decided, is_past=is_past)", "self._ask(cause, move.decided)"),
        (
            "self._count_row(cause, move.decided)",
            "self._count_row(cause, ())",
        ),
        ("            self._may_suggest()  # a limiter counts its batches by being asked\n", ""),
        ("            self._repeat_asking(entry)\n", ""),
        (
            "            if self._end is not None and self._end.is_failure:\n",
            "            if False:\n",
        ),
        (
            "        if self._end is not None:\n            raise TuneError",
            "        if False:\n            raise TuneError",
        ),
        ("or self._waiting is not None:", "or False:"),
        ("if number != self._next or lane", "if lane"),
        ("lane >= len(lanes) or lanes[lane] is not None", "lanes[lane] is not None"),
        (" or lanes[lane] is not None:", ":"),
        ("        self._resumed.rotate()  # it is the next\n", ""),
        ("        if trial.status is not expected:", "        if False:"),
        (
            "        if trial.status not in (TrialStatus.RUNNING, TrialStatus.PAUSED):",
            "        if False:",
        ),
        ("        if not 1 <= entry.donor_row <= donor.num_rows:", "        if False:"),
        (
            "        if trial.status.is_over:\n            raise _not_possible",
            "        if False:\n            raise _not_possible",
        ),
        ("        if self._live and not entry.is_failure:", "        if False:"),
    ),
    *_of(
        "trainer/tune/experiment.py",
        (
            "            if not (self._adopt(ref) or self._is_made_on_the_way(ref)):\n",
            "            if self._spec.saves and not (\n"
            "                self._adopt(ref) or self._is_made_on_the_way(ref)\n"
            "            ):\n",
        ),
    ),
    *_of(
        "trainer/tune/comparison.py",
        (
            "if not same(recorded, today):",
            "if isinstance(today, dict) and not same(recorded, today):",
        ),
        ('return entry.by in ("criterion", "scheduler")', 'return entry.by == "criterion"'),
        ("return is_pause_or_resume or isinstance(entry, CloneEntry)", "return False"),
    ),
    *_of(
        "trainer/tune/journal_entries.py",
        ("Plain(check=integer(1, MOST - 1))]", "Plain(check=integer(0, MOST - 1))]"),
        ("Plain(check=number(0, maximum=MOST))]", "Plain(check=number(maximum=MOST))]"),
        ("Plain(check=integer(-1, MOST - 1))]", "Plain(check=integer(0, MOST - 1))]"),
        ("is_known = bool(plain) and plain", "is_known = plain"),
    ),
    *_of(
        "trainer/tune/optuna_search.py",
        ("            if type(each) not in known:", "            if False:"),
        (
            "            return self._one_sampler\n",
            "            return copy.deepcopy(self._one_sampler)\n",
        ),
        (
            "        for _, each in _samplers_in(sampler):",
            "        for _, each in [('', sampler)]:",
        ),
        ("            each._seed = root_seed\n", "            pass\n"),
        ("        return _offered(made)\n", "        return made\n"),
        (
            "        sampler = copy.deepcopy(self._one_sampler)",
            "        sampler = self._one_sampler",
        ),
    ),
    # ---- a checkpoint is replaced whole or not at all
    *_of(
        "checkpoints/directory.py",
        ("        self._files.sync_directory(self.path)\n", ""),
        ("is_over and folder.name != _named_in(folder.parent)", "is_over"),
        ("lock.is_real or folder.name in ended or _is_old(folder)", "True"),
        (
            "        file_system.sync_directory(path)  # else it may come back without its files\n",
            "",
        ),
        ("others and named is not None and not is_synced", "False"),
        ("        clear(self._target, self._files)\n        try", "        try"),
    ),
    # ---- scripts for RLlib are read, and answered in their processes only
    *_of(
        "trainer/rllib_scripts/script_reading.py",
        ("self._num_catching += bool(names & _CAUGHT)", "self._num_catching += 0 * bool(names)"),
        (
            "            statements = node.orelse\n",
            "            statements = [*node.body, *node.orelse]\n",
        ),
        ("        return self._arguments[node.attr]", "        raise _UnknownValueError"),
    ),
    *_of(
        "trainer/rllib_scripts/script_check.py",
        ("        if own.name in used:\n", "        if own.name:\n"),
        ("yield from unused_problems(config.unused_settings())", "yield from unused_problems({})"),
        (
            "            for use in script.uses:\n                waiting",
            "            for use in ():\n                waiting",
        ),
    ),
    *_of(
        "trainer/rllib_names/__init__.py",
        ("    if os.environ.get(ANSWERS_RAY):", "    if os.environ:"),
    ),
    *_of(
        "trainer/rllib_scripts/import_hook.py",
        ("        sys.meta_path.remove(finder)\n", ""),
        ('    os.environ[ANSWERS_RAY] = "1"\n', '    os.environ[ANSWERS_RAY] = ""\n'),
        ("            del sys.modules[name]\n", "            pass\n"),
    ),
]


def text_with(mutant, root=ROOT):
    """The file's text with the mistake.

    Raises:
        LookupError: the old text is not there exactly once, or the new one is the same.
    """
    text = (root / mutant.file).read_text(encoding="utf-8")
    if (number := text.count(mutant.old)) != 1 or mutant.old == mutant.new:
        raise LookupError(
            f"The old text of the mutant {mutant.name!r} is {number} times in the file; expected "
            "once, and another text instead. Let the list follow the source: tests/mutants.py."
        )
    return text.replace(mutant.old, mutant.new)


class Verdict(NamedTuple):
    """What came out of tests.

    Attributes:
        kind: "passed", "failed", or "none": they did not come to an end.
        what: the first test that failed, or why there is no verdict.
    """

    kind: str
    what: str = ""


def copy_of_project(folder):
    """Copies what tests need, without what was compiled."""
    for name in _COPIED:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, folder)


def run_tests(copy, tests, *options, limit_s):
    """Runs tests in a copy of the project."""
    command = ["-m", "pytest", "-q", "-n0", "-p", "no:randomly", "--no-header", "--tb=no"]
    try:
        done = subprocess.run(
            [sys.executable, *command, "-rfE", "-m", "not slow and not ray", *options, *tests],
            cwd=copy, capture_output=True, text=True, check=False, timeout=limit_s,
            env={**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": ""},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Verdict("none", f"timed out after {limit_s:.0f} s")
    if done.returncode == 0:
        return Verdict("passed")
    if done.returncode == 1:
        return Verdict("failed", "\n".join(_FAILURES.findall(done.stdout)))
    return Verdict("none", f"exit code {done.returncode}: {(done.stdout + done.stderr)[-300:]}")


def failing_unmutated(copy, selections):
    """The tests of any selection that fail without a mistake; each test is run once.

    Raises:
        RuntimeError: the tests did not come to an end, so nothing can be said.
    """
    every = dict.fromkeys(test for selection in selections for test in selection)
    found = run_tests(copy, [*every], limit_s=_MOST_SECONDS_UNMUTATED)
    if found.kind == "none":
        raise RuntimeError(f"The tests without a mistake: {found.what}. Mend them first.")
    return found.what.splitlines()


def verdict_on(mutant, copy, tests):
    """What the tests say of a mutant, which is in the copy only meanwhile."""
    file = copy / mutant.file
    before = file.read_bytes()
    file.write_text(text_with(mutant, copy), encoding="utf-8")
    try:
        return run_tests(copy, tests, "-x", limit_s=_MOST_SECONDS)
    finally:
        file.write_bytes(before)


def main(arguments=None):
    """The command; 1 unless every mutant was noticed."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("-k", metavar="TEXT", default="", help="only mutants with this in the name")
    parser.add_argument("tests", nargs="*", help="files and folders of tests instead")
    given = parser.parse_args(arguments)
    chosen = {
        mutant: given.tests or SHOWN[mutant.file].arguments()
        for mutant in MUTANTS
        if given.k in mutant.name
    }
    if not chosen:
        parser.error(f"no mutant has {given.k!r} in its name")
    counts = Counter()
    with tempfile.TemporaryDirectory() as folder:
        copy_of_project(Path(folder))
        broken = failing_unmutated(Path(folder), chosen.values())
        for mutant, tests in chosen.items():
            begun = time.monotonic()
            if own := [name for name in broken if name.startswith(tuple(tests))]:
                found = Verdict("none", f"fails without it: {own[0]}")
            else:
                found = verdict_on(mutant, Path(folder), tests)
            counts[found.kind] += 1
            what = found.what if found.kind == "failed" else f"NOT NOTICED {found.what}".rstrip()
            sys.stdout.write(f"{mutant.name} | {what} | {time.monotonic() - begun:.0f} s\n")
            sys.stdout.flush()
    sys.stdout.write(
        f"{len(chosen)} mutants: {counts['failed']} noticed, {counts['passed']} not noticed, "
        f"{counts['none']} without a verdict\n"
    )
    return int(counts["failed"] < len(chosen))


if __name__ == "__main__":
    sys.exit(main())
