"""Making the sub-envs of a runner, all of them or a single one again."""

from __future__ import annotations

from typing import Any

import gymnasium

from trainer.env_runners.runner_parts import RunnerParts
from trainer.envs import EnvContext, VectorEnv
from trainer.envs.env_checks import check_reset_signature, check_spaces


def make_vector_env(runner: RunnerParts, *, is_recreated: bool) -> VectorEnv:
    """All sub-envs of a runner; callbacks are told of each, and of all together.

    Raises:
        EnvCreationError, EnvContractError: an env could not be made or breaks the contract.
    """
    envs, contexts = [], []
    for index in range(runner.spec.num_envs):
        env, context = _make_sub_env(runner, index, is_recreated=is_recreated)
        envs.append(env)
        contexts.append(context)
    vector_env = VectorEnv(envs, contexts)
    runner.callbacks.fire(
        "on_environment_created",
        env_runner=runner,
        metrics_logger=runner.metrics,
        env=vector_env,
        env_context=contexts[0],
    )
    return vector_env


def make_again(runner: RunnerParts, index: int) -> gymnasium.Env[Any, Any]:
    """A new sub-env in the place of one that was closed; the others are not touched.

    Callbacks are told of it by `on_sub_environment_created`. `on_environment_created` does not
    fire: the `env` that they know is the same one.
    """
    env, context = _make_sub_env(runner, index, is_recreated=True)
    runner.env.replace(index, env, context)
    return env


def _make_sub_env(
    runner: RunnerParts, index: int, *, is_recreated: bool
) -> tuple[gymnasium.Env[Any, Any], EnvContext]:
    spec = runner.spec
    env, context = spec.env_factory.make(
        worker_index=spec.worker_index,
        vector_index=index,
        num_workers=spec.num_workers,
        recreated_worker=is_recreated,
        is_evaluation=spec.in_evaluation,
        unique_index=2 * (spec.first_slot + index) + spec.in_evaluation,
    )
    if index == 0:
        check_spaces(env, name=spec.env_factory.name)
        check_reset_signature(env, name=spec.env_factory.name)
    runner.callbacks.fire(
        "on_sub_environment_created",
        env_runner=runner,
        metrics_logger=runner.metrics,
        sub_environment=env,
        env_context=context,
        env_index=index,
    )
    if spec.connectors is not None:
        connected = spec.connectors.connected(env)
        if spec.in_evaluation:
            connected.begin_every_episode_from(None)
        env = connected
    return env, context
