"""Whether an update of PPO is the same on both sides: same weights before, same episodes.

python -m benchmarks.quality.same_update [TASK]

The peer plays a batch and learns from it, all rows in one minibatch, so that no order is drawn.
Our learner gets its first weights and its episodes. What is printed, by tensor: how far the peer's
update moved it, and how far ours ends from there, as a share of that.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np

from benchmarks.quality import theirs
from benchmarks.quality.ours import config_of
from benchmarks.quality.tasks import BY_NAME, Env, Task
from trainer.episodes import SingleAgentEpisode

_NUM_STEPS = 2048
_LIMIT = 60
"""Steps of an episode at most, so that some are truncated."""
_LAYERS = {
    "pi/0": "mlp_extractor.policy_net.0",
    "pi/1": "mlp_extractor.policy_net.2",
    "pi/2": "action_net",
    "vf/0": "mlp_extractor.value_net.0",
    "vf/1": "mlp_extractor.value_net.2",
    "vf/2": "value_net",
}
"""Our layers, and what the peer calls them."""


class _Steps(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Keeps all transitions."""

    def __init__(self, env: Env, kept: list[tuple[Any, float, bool, bool, Any]]) -> None:
        super().__init__(env)
        self._kept = kept

    def reset(self, **options: Any) -> Any:
        self._shown, infos = super().reset(**options)
        return self._shown, infos

    def step(self, action: Any) -> Any:
        before = self._shown
        self._shown, reward, terminated, truncated, infos = super().step(action)
        self._kept.append((before, float(reward), terminated, truncated, self._shown))
        return self._shown, reward, terminated, truncated, infos


def compare(task: Task) -> list[tuple[str, float, float]]:
    """By tensor: the farthest that the peer's update moved it, and our distance as a share."""
    import torch
    from stable_baselines3.common.vec_env import DummyVecEnv

    torch.set_num_threads(1)
    steps: list[tuple[Any, float, bool, bool, Any]] = []
    model: Any = theirs.model_of(task, DummyVecEnv([lambda: _Steps(_limited(task), steps)]), seed=1)
    drawn = torch.Generator().manual_seed(0)
    with torch.no_grad():  # else values are nearly 0, and all actions alike
        for tensor in model.policy.parameters():
            tensor.add_(0.1 * torch.randn(tensor.shape, generator=drawn))
    before, train = _weights(model), model.train
    played: dict[str, Any] = {}

    def keep_and_train() -> None:
        buffer = model.rollout_buffer
        played.update(actions=buffer.actions[:, 0].copy(), logp=buffer.log_probs[:, 0].copy())
        with torch.no_grad():
            obs = torch.as_tensor(np.array([step[0] for step in steps[:_NUM_STEPS]], np.float32))
            played["inputs"] = _inputs(model.policy.get_distribution(obs).distribution)
        train()

    model.train = keep_and_train
    model.learn(_NUM_STEPS)
    after = _weights(model)
    config = config_of(task).environment(lambda _: _limited(task))
    with config.build_algo() as algo:
        learner = algo.learners["default_policy"]
        ours = learner.module.parameters.views
        for name, tensor in ours.items():
            tensor[...] = _theirs(before, name)
        learner.update(_episodes(steps[:_NUM_STEPS], played), num_env_steps_sampled_before=0)
        found = []
        for name, tensor in ours.items():
            moved = _theirs(after, name) - _theirs(before, name)
            distance = np.linalg.norm(tensor - _theirs(after, name)) / np.linalg.norm(moved)
            found.append((name, float(np.abs(moved).max()), float(distance)))
    return found


def _limited(task: Task) -> Env:
    return gymnasium.wrappers.TimeLimit(task.make_env(), _LIMIT)


def _weights(model: Any) -> dict[str, Any]:
    return {name: tensor.numpy().copy() for name, tensor in model.policy.state_dict().items()}


def _theirs(weights: dict[str, Any], name: str) -> Any:
    """The peer's tensor of our name, in our orientation."""
    if name == "pi/log_std":
        return weights["log_std"]
    layer, _, part = name.rpartition("/")
    return weights[f"{_LAYERS[layer]}.{'weight' if part == 'kernel' else 'bias'}"].T


def _inputs(distribution: Any) -> Any:
    if hasattr(distribution, "logits"):
        return distribution.logits.numpy()
    return np.concatenate([distribution.mean.numpy(), distribution.stddev.log().numpy()], axis=1)


def _episodes(
    steps: Sequence[tuple[Any, float, bool, bool, Any]], played: dict[str, Any]
) -> list[SingleAgentEpisode]:
    found, start = [], 0
    for end, (*_, terminated, truncated, shown) in enumerate(steps, 1):
        if not (terminated or truncated or end == len(steps)):
            continue
        part = slice(start, end)
        actions = played["actions"][part]
        episode = SingleAgentEpisode(
            f"from {start}",
            observations=[np.asarray(obs, np.float32) for obs, *_ in steps[part]]
            + [np.asarray(shown, np.float32)],
            actions=[int(action[0]) for action in actions]
            if actions.dtype.kind == "i"
            else list(actions),
            rewards=[reward for _, reward, *_ in steps[part]],
            terminated=terminated,
            truncated=truncated and not terminated,
            extra_model_outputs={
                "action_logp": list(played["logp"][part]),
                "action_dist_inputs": list(played["inputs"][part]),
            },
            len_lookback_buffer=0,
        )
        found.append(episode.to_numpy())
        start = end
    return found


def main() -> None:
    """Prints the comparison."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality.same_update")
    parser.add_argument("task", nargs="?", default="PPO Pendulum-v1", choices=list(BY_NAME))
    task = BY_NAME[parser.parse_args().task]
    whole = {"n_envs": 1, "n_steps": _NUM_STEPS, "batch_size": _NUM_STEPS, "normalize": False}
    # What falls over a run would be 0 at the end of this one.
    settings = {
        name: float(value.removeprefix("lin_")) if isinstance(value, str) else value
        for name, value in task.settings.items()
        if name != "activation"
    }
    task = dataclasses.replace(task, settings={**settings, **whole})
    for name, moved, distance in compare(task):
        print(f"{name:<14} moved by up to {moved:.5f}; ours ends {distance:.1e} of that from there")


if __name__ == "__main__":
    main()
