# ruff: noqa: E501 - texts of the source as they stand there
"""Mistakes to be made in the source on purpose, and which tests notice them.

    python -m tests.mutants        every mutant, with what its file's are shown to (`SHOWN`)
    python -m tests.mutants -k replay -- tests/contract tests/unit/test_replay_state.py

Each is put into a copy of the project, the tests run there until one fails, and a line says which
one it was. A mutant that no test notices is printed with an empty place; the exit code is 1 then.
Texts instead of line numbers: a mutant whose text is no longer there, or is there twice, is an
error, so that the list keeps up with the source (`tests/unit/test_mutants.py` looks, too).
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
_PROPERTIES: Final = (
    "test_a_restored_run_goes_on_whatever_it_did_before",
    "test_the_same_seed_gives_the_same_bytes_and_another_does_not",
    "test_it_makes_no_difference_where_envs_are_stepped",
    "test_kills_change_nothing",
    "test_an_iteration_that_fails_never_happened",
)


class Shown(NamedTuple):
    """What a mutant of a file is shown to, in this order.

    Attributes:
        tests: files below `tests`; those that notice most in a second first.
        runs: runs of the contract suite of algorithms that use the file.
    """

    tests: str
    runs: tuple[str, ...] = ()

    def arguments(self) -> list[str]:
        """For pytest."""
        files = [f"tests/{name}.py" for name in self.tests.split()]
        suite = "tests/contract/test_algorithms.py"
        return files + [f"{suite}::{test}[{run}]" for run in self.runs for test in _PROPERTIES]


SHOWN: Final = {
    "trainer/seeding.py": Shown(
        "unit/test_seeding unit/test_modules_by_module", ("DQN", "PPO, several agents")
    ),
    "trainer/learners/learner.py": Shown(
        "unit/test_ppo_learner unit/test_dqn_learner unit/test_sac_learner contract/test_components",
        ("DQN, distributions", "DQN", "PPO"),
    ),
    "trainer/nn/optimizers.py": Shown(
        "unit/test_nn_optimizers contract/test_components", ("PPO", "SAC, discrete")
    ),
    "trainer/algorithms/ppo/ppo.py": Shown(
        "unit/test_ppo_learner contract/test_components", ("PPO",)
    ),
    "trainer/replay/step_ring.py": Shown(
        "unit/test_replay_buffer contract/test_components unit/test_replay_state", ("DQN",)
    ),
    "trainer/replay/replay_buffer.py": Shown(
        "unit/test_replay_prioritized contract/test_components unit/test_replay_state",
        ("DQN", "DQN, normalised"),
    ),
    "trainer/exploration/strategies.py": Shown(
        "unit/test_exploration_parameter_noise unit/test_exploration_continuous "
        "contract/test_components",
        ("ParameterNoise", "random at first", "DQN, ParameterNoise"),
    ),
    "trainer/exploration/intrinsic_rewards.py": Shown(
        "unit/test_exploration_intrinsic_rewards contract/test_components", ("RE3", "Curiosity")
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
    "trainer/env_runners/env_slot.py": Shown(
        "unit/test_env_slot unit/test_slot_env_state unit/test_env_state",
        ("PPO", "PPO, memory", "PG, whole episodes"),
    ),
    "trainer/env_runners/messages.py": Shown(
        "unit/test_env_slot unit/test_slot_env_state", ("PG, whole episodes", "DQN")
    ),
    "trainer/runner_group/records.py": Shown(
        "unit/test_post_mortem integration/test_scripted_engine integration/test_curriculum "
        "integration/test_evaluation_under_way",
        ("PPO", "PG, whole episodes", "PPO, memory"),
    ),
    "trainer/runner_group/rounds.py": Shown(
        "unit/test_request_round unit/test_post_mortem integration/test_scripted_engine "
        "faults/test_runner_faults",
        ("PPO",),
    ),
    "trainer/runtime/restart_policy.py": Shown("unit/test_restart_policy"),
    "trainer/runtime/local_engine.py": Shown("unit/test_published contract/test_engines", ("PPO",)),
    "trainer/algorithms/algorithm.py": Shown(
        "contract/test_components integration/test_dqn", ("PPO", "DQN")
    ),
    "trainer/algorithms/checkpointing.py": Shown("contract/test_components", ("PPO", "DQN")),
    "trainer/algorithms/training_iteration.py": Shown(
        "unit/test_time_split integration/test_results", ("PPO", "DQN")
    ),
    "trainer/evaluation/evaluations.py": Shown(
        "contract/test_components", ("PPO, evaluation runner", "PPO")
    ),
}
_COPIED: Final = ("trainer", "callbacks", "checkpoints", "tests", "benchmarks", "examples", "docs")
_MOST_SECONDS: Final = 180
_FIRST_FAILURE: Final = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)


class Mutant(NamedTuple):
    """One mistake: `new` stands where `old` stood in `file`."""

    file: str
    old: str
    new: str

    @property
    def name(self) -> str:
        """The file and the first line that is changed."""
        lines = zip(self.old.splitlines(), [*self.new.splitlines(), ""], strict=False)
        changed = next((old for old, new in lines if old != new), self.old)
        return f"{self.file}: {changed.strip()}"


def _of(file: str, *pairs: tuple[str, str]) -> list[Mutant]:
    return [Mutant(file, old, new) for old, new in pairs]


MUTANTS: Final[list[Mutant]] = [
    # ---- random numbers follow from a position
    *_of(
        "trainer/seeding.py",
        ("spawn_key=(int(role), *position))", "spawn_key=(int(role), *position[1:]))"),
        ("counter[:] = (0, 0, number, stream)", "counter[:] = (0, 0, number, 0)"),
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
        (
            "for _ in range(rows):\n            self.next_row()",
            "for _ in range(rows - 1):\n            self.next_row()",
        ),
        ("f\"{'i' if isinstance(id_, int) else 's'}{id_}\"", 'f"{id_}"'),
    ),
    # ---- learning and its state
    *_of(
        "trainer/learners/learner.py",
        (
            "self.set_state(before)\n            raise\n        self.num_updates += 1",
            "raise\n        self.num_updates += 1",
        ),
        ("            raise\n        self.num_updates += 1", "            raise"),
        ("rng = self._random.at(self.num_updates)", "rng = self._random.at(0)"),
        ("target *= 1.0 - tau", "target *= 1.0"),
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
    *_of(
        "trainer/nn/optimizers.py",
        ('        self._num_steps = int(state["num_steps"])\n', ""),
        (
            '            self._second_moment.set_state(state["second_moment"])\n',
            "            pass\n",
        ),
        ("            self._first_moment.set_state(before)\n", ""),
        ("correction_2 = math.sqrt(1.0 - beta_2**self._num_steps)", "correction_2 = 1.0"),
        (
            "np.clip(gradient, -self._limit, self._limit, out=gradient)",
            "np.clip(gradient, 0.0, self._limit, out=gradient)",
        ),
    ),
    *_of(
        "trainer/algorithms/ppo/ppo.py",
        ('        self.kl_coeff = float(state["kl_coeff"])\n', ""),
        ("            self.kl_coeff *= 1.5", "            self.kl_coeff *= 0.5"),
    ),
    # ---- replay
    *_of(
        "trainer/replay/step_ring.py",
        ("        following[count:] = NO_ROW\n", ""),
        ("            self.following, self.columns = before\n", "            pass\n"),
        ('        if state["capacity"] != self.capacity:', "        if False:"),
    ),
    *_of(
        "trainer/replay/replay_buffer.py",
        ("        self._set_running(running)\n\n\n# ---- reduce", "\n\n# ---- reduce"),
        ("            self._largest = before\n", "            pass\n"),
        ("            self._sums, self._minima = before\n", "            pass\n"),
        ("        self._set_largest(largest)\n\n\ndef", "\n\ndef"),
        (
            "        self._minima.set(rows, priorities)\n        self._set_largest",
            "        self._set_largest",
        ),
        ("+ SMALLEST_PRIORITY\n        largest", "\n        largest"),
        ("self._minima.root()) ** -exponent", "self._minima.root()) ** exponent"),
        ('        if state["alpha"] != self.alpha:', "        if False:"),
    ),
    # ---- exploring, normalising, counting
    *_of(
        "trainer/exploration/strategies.py",
        ('            self.current_stddev = float(state["cur_stddev"])\n', "            pass\n"),
        (
            "                self.current_stddev *= _ADAPTATION",
            "                self.current_stddev *= 1.0",
        ),
        (
            "        if timestep < self.random_timesteps:\n            return self._uniform.logp",
            "        if False:\n            return self._uniform.logp",
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
        ("next_values[ends] = chunks.bootstrap_values", "next_values[ends] = 0.0"),
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
    # ---- the acting side
    *_of(
        "trainer/env_runners/env_slot.py",
        ("        self.memory = position.memory\n", ""),
        ("        self.observation = position.observation\n", ""),
        ("        self.noise.skip(position.num_steps)\n", ""),
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
    ),
    # ---- the asking side
    *_of(
        "trainer/runner_group/records.py",
        (
            "        self.callbacks = callbacks\n        if self.sent_table",
            "        if self.sent_table",
        ),
        (
            "self.callbacks if self.is_ahead else None,",
            "None,",
        ),
        ("self.positions if self.is_ahead else None,", "None,"),
        (
            "            self.set_task(index, task)\n        self.callbacks",
            "            pass\n        self.callbacks",
        ),
        ('            place.is_continued = state["is_continued"]\n', ""),
        (
            "        self.positions = tuple(position.restarted(skip) for position in self.positions)\n        self.is_ahead = True\n",
            "        self.is_ahead = True\n",
        ),
        (
            "self.normalization if self.normalization is not self.sent_normalization else None,",
            "None,",
        ),
    ),
    *_of(
        "trainer/runner_group/rounds.py",
        ("        place.num_restarts += 1\n", ""),
        ("        attempts.play_other()\n", ""),
    ),
    *_of(
        "trainer/runtime/restart_policy.py",
        ("if num_excess_failures > self.tolerance:", "if False:"),
        ("self.num_without_progress = self.num_idle = self.num_stalled = 0", "pass"),
        ("if num_restarts >= self.max_restarts:", "if num_restarts > self.max_restarts:"),
    ),
    *_of(
        "trainer/runtime/local_engine.py",
        ("            self._signals.must_end = False\n", ""),
        ("        self._signals.notes[:] = NO_NOTES\n", ""),
        (
            "            self.kill()\n            return self._lost(None, stalled_s=stalled_s)",
            "            return self._lost(None, stalled_s=stalled_s)",
        ),
    ),
    # ---- a whole algorithm
    *_of(
        "trainer/algorithms/algorithm.py",
        (
            "                self.set_state(before)\n            self._iterations.clock",
            "                pass\n            self._iterations.clock",
        ),
        (
            "            with single_threaded_blas():\n                made = make()\n            self._is_undoable = is_nested",
            "            with single_threaded_blas():\n                made = make()",
        ),
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
        "trainer/evaluation/evaluations.py",
        ('        self.num_evaluations = state["num_evaluations"]\n', ""),
        ('            self._metrics.set_state(state["metrics"])\n', "            pass\n"),
        ("        self._last = copy.deepcopy(last)\n", ""),
    ),
]


def text_with(mutant: Mutant, root: Path = ROOT) -> str:
    """The file's text with the mistake.

    Raises:
        LookupError: the old text is not there exactly once.
    """
    text = (root / mutant.file).read_text(encoding="utf-8")
    if (number := text.count(mutant.old)) != 1:
        raise LookupError(
            f"The old text of the mutant {mutant.name!r} is {number} times in the file; expected "
            "once. Let the list follow the source: tests/mutants.py."
        )
    return text.replace(mutant.old, mutant.new)


def first_failure(mutant: Mutant, copy: Path, tests: list[str]) -> str:
    """The first test that notices a mutant in a copy of the project; empty if none does."""
    file = copy / mutant.file
    before = file.read_bytes()
    file.write_text(text_with(mutant, copy), encoding="utf-8")
    command = ["-m", "pytest", "-x", "-q", "-n0", "-p", "no:randomly", "--no-header", "--tb=no"]
    try:
        done = subprocess.run(
            [sys.executable, *command, "-m", "not slow and not ray", *tests],
            cwd=copy, capture_output=True, text=True, check=False, timeout=_MOST_SECONDS,
            env={**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": ""},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"not done within {_MOST_SECONDS} s"
    finally:
        file.write_bytes(before)
    if done.returncode == 0:
        return ""
    found = _FIRST_FAILURE.search(done.stdout)
    return found[1] if found else f"exit code {done.returncode}: {done.stderr[-200:]}"


def main(arguments: list[str] | None = None) -> int:
    """The command; 1 if a mutant was not noticed."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("-k", metavar="TEXT", default="", help="only mutants with this in the name")
    parser.add_argument("tests", nargs="*", help="files and folders of tests instead")
    given = parser.parse_args(arguments)
    chosen = [mutant for mutant in MUTANTS if given.k in mutant.name]
    num_missed = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in _COPIED:
            shutil.copytree(
                ROOT / name, Path(folder, name), ignore=shutil.ignore_patterns("__pycache__")
            )
        for name in ("pyproject.toml", "README.md"):
            shutil.copy(ROOT / name, folder)
        for mutant in chosen:
            begun = time.monotonic()
            tests = given.tests or SHOWN[mutant.file].arguments()
            noticed = first_failure(mutant, Path(folder), tests)
            num_missed += not noticed
            seconds = time.monotonic() - begun
            sys.stdout.write(f"{mutant.name} | {noticed} | {seconds:.0f} s\n")
            sys.stdout.flush()
    sys.stdout.write(f"{len(chosen)} mutants, {num_missed} not noticed\n")
    return int(bool(num_missed))


if __name__ == "__main__":
    sys.exit(main())
