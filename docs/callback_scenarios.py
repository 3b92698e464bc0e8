"""The small runs whose events docs/make_callback_events.py writes down."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from callback_stage import FailsOnce, Stage, interrupt

from trainer import PPO, PPOConfig


@dataclass(frozen=True)
class Scenario:
    """A run to be shown.

    Attributes:
        title: the heading.
        text: what it shows.
        play: the run.
    """

    title: str
    text: str
    play: Callable[[Stage], None]


def _trains_twice(
    stage: Stage, config: PPOConfig, *, prepare: Callable[[Any], None] | None = None
) -> None:
    """Two calls of `train()`; whatever is to fail once does so from here on."""
    with stage.build(config) as algo:
        stage.armed.touch()
        if prepare is not None:
            prepare(algo)
        stage.call("algo.train()", algo.train, algo=algo)
        stage.call("algo.train()", algo.train, algo=algo)


def _plain(stage: Stage) -> None:
    algo = stage.call("algo = config.build_algo()", stage.config().build_algo)
    stage.call("algo.train()", algo.train)
    stage.call("algo.stop()", algo.stop)


def _in_a_process(stage: Stage) -> None:
    algo = stage.call("algo = config.build_algo()", stage.config(1, num_envs=2).build_algo)
    stage.call("algo.train()", algo.train)
    algo.stop()


def _cut(stage: Stage) -> None:
    _trains_twice(stage, stage.config(num_steps=4))


def _complete_episodes(stage: Stage) -> None:
    config = stage.config(num_steps=4).env_runners(batch_mode="complete_episodes")
    with stage.build(config) as algo:
        stage.call("algo.train()", algo.train)


def _evaluation(stage: Stage) -> None:
    config = stage.config().evaluation(evaluation_interval=1, evaluation_duration=2)
    with stage.build(config) as algo:
        stage.call("algo.train()", algo.train)
        stage.call("algo.evaluate()", algo.evaluate)


# ---- failures


def _env_fails(num_env_runners: int, **fault: Any) -> Callable[[Stage], None]:
    def play(stage: Stage) -> None:
        _trains_twice(stage, stage.config(num_env_runners, **fault))

    return play


def _env_fails_without_restart(how: str) -> Callable[[Stage], None]:
    def play(stage: Stage) -> None:
        config = stage.config(1, where="step", how=how)
        _trains_twice(stage, config.fault_tolerance(restart_failed_env_runners=False))

    return play


def _env_always_fails(stage: Stage) -> None:
    with stage.build(stage.config(1, where="step", armed_file=None)) as algo:
        stage.call("algo.train()", algo.train, algo=algo)


def _callback_fails(event: str, num_env_runners: int, **settings: Any) -> Callable[[Stage], None]:
    def play(stage: Stage) -> None:
        config = stage.config(num_env_runners).evaluation(**settings)
        listeners: Any = {event: [stage.note(event), FailsOnce(str(stage.armed))]}
        config.callbacks(**listeners)
        _trains_twice(stage, config)

    return play


def _evaluation_raises(stage: Stage) -> None:
    config = stage.config().evaluation(evaluation_interval=1, evaluation_duration=1)
    failing = {**config.env_config, "where": "step"}
    config.evaluation(evaluation_config={"env_config": failing})
    _trains_twice(stage, config)


def _evaluation_runner_dies(stage: Stage) -> None:
    config = stage.config().evaluation(evaluation_num_env_runners=1, evaluation_duration=1)
    failing = {**config.env_config, "where": "step", "how": "kill"}
    config.evaluation(evaluation_config={"env_config": failing})
    with stage.build(config) as algo:
        stage.armed.touch()
        stage.call("algo.evaluate()", algo.evaluate, algo=algo)


# ---- Ctrl-C


def _interrupt_sampling(num_env_runners: int) -> Callable[[Stage], None]:
    def play(stage: Stage) -> None:
        config = stage.config(num_env_runners)
        _trains_twice(stage, config, prepare=lambda algo: interrupt(algo.env_runner_group))

    return play


def _interrupt_evaluation(stage: Stage) -> None:
    config = stage.config().evaluation(evaluation_interval=1, evaluation_duration=1)
    _trains_twice(stage, config, prepare=lambda algo: interrupt(algo.eval_env_runner_group))


def _interrupt_learning(stage: Stage) -> None:
    def arm(algo: Any) -> None:
        apply = algo.learner.apply_gradients

        def interrupted(*args: Any, **kwargs: Any) -> Any:
            algo.learner.apply_gradients = apply
            signal.raise_signal(signal.SIGINT)
            return apply(*args, **kwargs)

        algo.learner.apply_gradients = interrupted

    _trains_twice(stage, stage.config(), prepare=arm)


# ---- by hand


def _by_hand(stage: Stage) -> None:
    with stage.build(stage.config(num_steps=4)) as algo:
        algo.train()
        stage.forget()
        runner: Any = algo.env_runner
        stage.call("algo.env_runner.sample(num_episodes=1)", lambda: runner.sample(num_episodes=1))
        stage.call("algo.train()", algo.train)


def _save_and_restore(stage: Stage) -> None:
    config = stage.config(1, num_steps=4)
    checkpoint = stage.folder / "checkpoint"
    with stage.build(config) as algo:
        algo.train()
        stage.forget()
        path = stage.call(
            'path = algo.save_to_path("checkpoint")', lambda: algo.save_to_path(checkpoint)
        )
        stage.call("algo.restore_from_path(path)", lambda: algo.restore_from_path(path))
        stage.call("algo.train()", algo.train)
    restored = stage.call(
        "algo = PPO.from_checkpoint(path, config=config)",
        lambda: PPO.from_checkpoint(path, config=config),
    )
    with restored:
        stage.call("algo.train()", restored.train)
        stage.call(
            'algo.restore_from_path(path, component="learner")',
            lambda: restored.restore_from_path(path, component="learner"),
        )


def _failed_saves(stage: Stage) -> None:
    path = stage.folder / "file"
    path.touch()
    with stage.build(stage.config()) as algo:
        stage.call('algo.save_to_path("a file")', lambda: algo.save_to_path(path))
        stage.call('algo.restore_from_path("a file")', lambda: algo.restore_from_path(path))


SCENARIOS: Final = (
    Scenario(
        "An iteration in one process",
        "`num_env_runners=0`, one sub-env. The env runner is made before the algorithm is "
        "complete.",
        _plain,
    ),
    Scenario(
        "An iteration with a process and two sub-envs",
        "`num_env_runners=1, num_envs_per_env_runner=2`. In each step of the runner all "
        "sub-envs step, then the events of each fire in turn. Each sub-env plays one episode.",
        _in_a_process,
    ),
    Scenario(
        "Episodes that are cut",
        "`train_batch_size=4` ends an iteration in the middle of an episode; the next iteration "
        "continues it. `on_postprocess_trajectory` fires per chunk, `on_episode_end` once.",
        _cut,
    ),
    Scenario(
        "Whole episodes",
        '`batch_mode="complete_episodes"`, also with `train_batch_size=4`.',
        _complete_episodes,
    ),
    Scenario(
        "Evaluation",
        "`evaluation_interval=1, evaluation_duration=2`. The evaluation runner was made with "
        "the algorithm.",
        _evaluation,
    ),
    Scenario(
        "An env raises in `step`",
        "One runner, which may be replaced (the default). The third step of the first episode "
        "raises. A new runner plays the same steps, events included. "
        "`on_env_runners_recreated` fires when the new runner's answer has arrived.",
        _env_fails(1, where="step"),
    ),
    Scenario(
        "An env raises in `reset`",
        "The same in the first reset.",
        _env_fails(1, where="reset"),
    ),
    Scenario(
        "An env always raises",
        "It raises in the third step, in every new process, too. Each new runner plays the same "
        "episode. After the third time `train()` raises, since the runner has never worked. No "
        "runner came back, so `on_env_runners_recreated` does not fire.",
        _env_always_fails,
    ),
    Scenario(
        "An env raises, and nothing may be replaced",
        "`restart_failed_env_runners=False`. `train()` raises what the env raised; the next "
        "`train()` makes the iteration again, in the same process.",
        _env_fails_without_restart("raise"),
    ),
    Scenario(
        "An env raises in the main process",
        "`num_env_runners=0`. `train()` raises what the env raised. The same runner goes on.",
        _env_fails(0, where="step"),
    ),
    Scenario(
        "A runner dies",
        "Its process is killed (SIGKILL) in the third step of the first episode.",
        _env_fails(1, where="step", how="kill"),
    ),
    Scenario(
        "A runner dies, and nothing may be replaced",
        "`restart_failed_env_runners=False`. `train()` raises. The next `train()` starts a new "
        "runner.",
        _env_fails_without_restart("kill"),
    ),
    Scenario(
        "A callback of the env runner raises",
        "`on_episode_step`, in its first call. The runner is not replaced. Callbacks that come "
        "after the one that raised are not called.",
        _callback_fails("on_episode_step", 1),
    ),
    Scenario(
        "A callback of the algorithm raises",
        "`on_train_result`, in its first call. The iteration is undone and made again.",
        _callback_fails("on_train_result", 0),
    ),
    Scenario(
        "A callback raises before an evaluation",
        "`on_evaluate_start`, in its first call. Nothing is evaluated; the whole iteration is "
        "undone.",
        _callback_fails("on_evaluate_start", 0, evaluation_interval=1, evaluation_duration=1),
    ),
    Scenario(
        "An evaluation runner dies",
        "`evaluation_num_env_runners=1`; the process is killed (SIGKILL) in the third step. "
        "The new runner plays the whole evaluation again.",
        _evaluation_runner_dies,
    ),
    Scenario(
        "An evaluation raises",
        "The env raises in the third step of the evaluation. `on_evaluate_end` does not fire; "
        "the iteration is undone.",
        _evaluation_raises,
    ),
    Scenario(
        "An evaluation is cancelled",
        "Ctrl-C in the second step of the evaluation.",
        _interrupt_evaluation,
    ),
    Scenario(
        "Ctrl-C while sampling, in one process",
        "`num_env_runners=0`; Ctrl-C in the second step of the first episode.",
        _interrupt_sampling(0),
    ),
    Scenario(
        "Ctrl-C while sampling, with a process",
        "A runner that still works when `train()` raises is ended. The next iteration starts "
        "another, and `on_env_runners_recreated` fires, although nothing failed.",
        _interrupt_sampling(1),
    ),
    Scenario(
        "Ctrl-C while learning",
        "`num_env_runners=0`; Ctrl-C in the middle of the update. The sample is undone, too.",
        _interrupt_learning,
    ),
    Scenario(
        "Sampling by hand",
        "`train_batch_size=4`, so an episode is running after the first iteration, which is "
        "not shown. Asking for whole episodes gives it up without `on_episode_end`. What is "
        "sampled by hand is not learnt from.",
        _by_hand,
    ),
    Scenario(
        "Save and restore",
        "One runner, `train_batch_size=4`, saved in the middle of an episode, which is brought "
        "back without events. Restoring one component fires nothing.",
        _save_and_restore,
    ),
    Scenario(
        "A save or restore that fails",
        "Neither fires anything.",
        _failed_saves,
    ),
)
"""In the order of the page."""
