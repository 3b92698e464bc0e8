"""How much source there is of what 0.1.0 had, and of each wing that was added since.

    python -m tests.architecture.wings

A wing is a feature that 0.1.0 did not have, as far as it has files of its own. The table says which
files; the history says how new they are: the share of their lines (those that say something) that
stood anywhere in 0.1.0. What wings cost inside of older files counts as older. Other files that
0.1.0 did not have are listed with the reason why they are no wing.
"""

from __future__ import annotations

import subprocess
from collections.abc import Collection, Mapping
from fnmatch import fnmatch
from types import MappingProxyType
from typing import Final

from tests.architecture.source_tree import PACKAGES, PROJECT

BASE: Final = "d207d15"
"""The commit that 0.1.0 was measured at: 436 files."""

SHORTEST_LINE: Final = 25
"""Characters from which on a line says something: `return None` stands everywhere."""

WINGS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "tuning": ("trainer/tune/*", "trainer/train.py", "trainer/cli/tuning_commands.py"),
        "Ray": (
            "trainer/ray_adapter.py",
            "trainer/ray_engine/*",
            "trainer/runtime/machine_facts.py",
        ),
        "several agents": (
            "trainer/agent_ids.py",
            "trainer/algorithms/module_changes.py",
            "trainer/algorithms/run_modules.py",
            "trainer/env_runners/mapped_modules.py",
            "trainer/env_runners/multi_agent_*",
            "trainer/env_runners/policy_mapping.py",
            "trainer/envs/copied_agents.py",
            "trainer/envs/multi_agent_*",
            "trainer/envs/pettingzoo_envs.py",
            "trainer/episodes/agent_*",
            "trainer/episodes/multi_agent_*",
            "trainer/learners/learner_group.py",
            "trainer/modules/by_module.py",
            "trainer/modules/module_table.py",
            "trainer/modules/multi_rl_module.py",
            "trainer/modules/random_module.py",
            "trainer/rllib_names/multi_agent.py",
            "trainer/testing/multi_agent_*",
        ),
        "networks in Torch": (
            "trainer/modules/torch_*",
            "trainer/nn/torch_*",
            "trainer/rllib_names/torch_names.py",
        ),
        "networks with memory": (
            "trainer/connectors/previous_steps.py",
            "trainer/env_runners/remembering.py",
            "trainer/learners/batching.py",
            "trainer/modules/memory.py",
            "trainer/modules/recurrent_module.py",
            "trainer/nn/recurrent.py",
        ),
        "vector envs stepped by one call": (
            "trainer/env_runners/column_recording.py",
            "trainer/env_runners/vector_player.py",
            "trainer/envs/native_vector_env.py",
            "trainer/episodes/episode_block.py",
            "trainer/episodes/fragment.py",
        ),
        "connector pieces of users": ("trainer/connectors/pieces.py",),
        "deployment of policies": (
            "checkpoints/policy.py",
            "trainer/algorithms/policy_*",
            "trainer/algorithms/trained_policy.py",
        ),
        "reports": (
            "callbacks/ready_made/display.py",
            "trainer/algorithms/time_split.py",
            "trainer/cli/report_commands.py",
            "trainer/reports/*",
        ),
        "sampling ahead": ("trainer/algorithms/sample_ahead.py",),
        "trackers": ("callbacks/ready_made/tracker*.py", "trainer/cli/run_trackers.py"),
        "settings files, seeds side by side": (
            "trainer/cli/seeds.py",
            "trainer/cli/settings_file.py",
        ),
        "an engine by script, for tests": ("trainer/testing/fake_engine.py",),
    }
)

NEW_FILES_OF_WHAT_WAS_THERE: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "several files of 0.1.0 were made one that holds a whole concept": (
            "callbacks/ready_made/progress.py",
            "callbacks/ready_made/recorders.py",
            "callbacks/ready_made/result_files.py",
            "callbacks/ready_made/result_loggers.py",
            "callbacks/ready_made/saving.py",
            "callbacks/ready_made/stopping.py",
            "checkpoints/components.py",
            "trainer/actors/*",
            "trainer/algorithms/checkpointing.py",
            "trainer/algorithms/dqn/dqn.py",
            "trainer/algorithms/on_and_off_policy.py",
            "trainer/algorithms/pg/pg.py",
            "trainer/algorithms/ppo/ppo.py",
            "trainer/algorithms/sac/sac.py",
            "trainer/algorithms/training_iteration.py",
            "trainer/config/settings.py",
            "trainer/connectors/encoding.py",
            "trainer/env_runners/messages.py",
            "trainer/env_runners/single_agent_player.py",
            "trainer/env_runners/worker_service.py",
            "trainer/envs/tasks.py",
            "trainer/evaluation/evaluations.py",
            "trainer/exploration/intrinsic_rewards.py",
            "trainer/exploration/strategies.py",
            "trainer/rllib_names/algorithm.py",
            "trainer/rllib_names/config.py",
            "trainer/rllib_names/episodes.py",
            "trainer/rllib_names/metrics.py",
            "trainer/rllib_names/runners.py",
            "trainer/runner_group/*",
            "trainer/runtime/local_engine.py",
            "trainer/runtime/signals.py",
            "trainer/runtime/threads.py",
            "trainer/runtime/worker.py",
            "trainer/testing/checks.py",
            "trainer/testing/envs.py",
            "trainer/testing/processes.py",
        ),
        "one piece of code for what several files of 0.1.0 each did in their own way": (
            "checkpoints/arguments.py",
            "checkpoints/data_classes.py",
            "checkpoints/nearest_names.py",
            "checkpoints/trees.py",
            "trainer/cli/named_code.py",
            "trainer/cli/output.py",
            "trainer/runtime/private_folder.py",
        ),
        "taken out of a larger file of 0.1.0, or moved to another room": (
            "checkpoints/interrupts.py",
            "checkpoints/sibling_packages.py",
            "trainer/config/section_methods.py",
            "trainer/importing.py",
            "trainer/old_names.py",
            "trainer/rllib_names/installing.py",
            "trainer/runtime/run_lock.py",
            "trainer/runtime/start_errors.py",
        ),
        "checkpoints of 0.1.0 name modules that have moved since": ("checkpoints/moved_names.py",),
        "the interface between sampling and processes, which 0.1.0 had without a name": (
            "trainer/runtime/engine.py",
        ),
        "more of RLlib's old names, for scripts that 0.1.0 served": (
            "trainer/replay/batch_buffer.py",
            "trainer/rllib_names/modules.py",
        ),
    }
)
"""Files that 0.1.0 did not have and that are no wing: why they count as what it had."""


def wing_of(path: str) -> str | None:
    """The wing that a file belongs to; None for what 0.1.0 had."""
    for wing, patterns in WINGS.items():
        if any(fnmatch(path, pattern) for pattern in patterns):
            return wing
    return None


def unplaced_files(paths: Collection[str], base: Collection[str]) -> list[str]:
    """Those that neither 0.1.0 had, nor a wing, nor the list of reasons names.

    Args:
        paths: of today's files.
        base: those of 0.1.0.
    """
    known = [one for group in NEW_FILES_OF_WHAT_WAS_THERE.values() for one in group]
    return [
        path
        for path in paths
        if path not in base
        and wing_of(path) is None
        and not any(fnmatch(path, pattern) for pattern in known)
    ]


def has_history() -> bool:
    """Whether the commit of 0.1.0 is here; a copy without the history does not have it."""
    command = ["git", "cat-file", "-e", f"{BASE}^{{commit}}"]
    try:
        return subprocess.run(command, cwd=PROJECT, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False  # no git


def files_of_base() -> set[str]:
    """The paths of all source files of 0.1.0."""
    command = ["git", "ls-tree", "-r", "--name-only", BASE, "--", *PACKAGES]
    found = subprocess.run(command, cwd=PROJECT, capture_output=True, check=True)
    return {path for path in found.stdout.decode().splitlines() if path.endswith(".py")}


def source_files() -> dict[str, str]:
    """Path → text of all source files of today."""
    paths = [path for package in PACKAGES for path in sorted((PROJECT / package).rglob("*.py"))]
    return {path.relative_to(PROJECT).as_posix(): path.read_text("utf-8") for path in paths}


def lines_of_base() -> set[str]:
    """All lines of source of 0.1.0, without indentation."""
    # A search for nothing finds every line: `-h` leaves out where.
    command = ["git", "grep", "-h", "-I", "-e", "", BASE, "--", *(f"{p}/*.py" for p in PACKAGES)]
    found = subprocess.run(command, cwd=PROJECT, capture_output=True, check=True)
    return {line.strip() for line in found.stdout.decode().splitlines()}


def main() -> None:
    """Prints the table."""
    files, old = source_files(), lines_of_base()
    print(f"{'lines':>6} {'files':>5} {'old':>5}")
    for wing in [*WINGS, None]:
        texts = [text for path, text in files.items() if wing_of(path) == wing]
        lines = [line.strip() for text in texts for line in text.splitlines()]
        saying = [line for line in lines if len(line) >= SHORTEST_LINE]
        share = sum(line in old for line in saying) / max(1, len(saying))
        print(f"{len(lines):6} {len(texts):5} {share:5.0%}  {wing or 'what 0.1.0 had'}")


if __name__ == "__main__":
    main()
