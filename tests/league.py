"""A self-play league that is killed and goes on: its config, its callback, and a run of it.

    python -m tests.league RUNNERS ITERATIONS        in a folder with checkpoints, or an empty one

The learner `main` plays against frozen copies of itself in an env with gaps, late agents and early
ends. A callback keeps what `main` won against each; it adds copies, removes the weakest, and says
by these numbers who meets whom how often. `outcome` is everything that a run came to.
"""

import hashlib
import json
import sys
from pathlib import Path

from callbacks import PeriodicCheckpoint, RLlibCallback
from checkpoints import encode, latest_checkpoint
from tests.multi_agent_runs import Gaps, text_keys
from trainer import DQNConfig, PPOConfig
from trainer.metrics import comparable
from trainer.modules import Matchups

MOST = 3
"""Opponents in the league."""


class League(RLlibCallback):
    """Adds opponents, removes the weakest one, and weighs them by what `main` won against each."""

    def __init__(self):
        self.opponents = ["first"]
        self.won = {}
        self.num_added = 0
        self.told = []

    def on_create_policy(self, *, policy_id, **_):
        self.told.append(policy_id)

    def on_episode_end(self, *, episode, metrics_logger, **_):
        paid = episode.get_agent_returns()
        others = sorted({episode.module_for(agent) for agent in paid} - {"main"})
        won = sum(paid[agent] for agent in paid if episode.module_for(agent) == "main")
        # Sums are exact, in whatever order runners answer; windows are not.
        for name, value in (("won", won), ("met", 1)):
            metrics_logger.log_value((name, *others), value, reduce="sum", clear_on_reduce=True)
        metrics_logger.log_value("told", len(self.told), reduce="max")

    def on_train_result(self, *, algorithm, result, **_):
        shown = result["env_runners"]
        for opponent, won in shown.get("won", {}).items():
            if shown["met"][opponent]:
                self.won.setdefault(opponent, []).append(won / shown["met"][opponent])
        if algorithm.training_iteration % 2:
            return
        self.num_added += 1
        new = f"old_{self.num_added}"
        self.opponents.append(new)
        algorithm.add_module(new, copy_of="main", new_agent_to_module_mapping_fn=self.matchups())
        if len(self.opponents) > MOST:
            weakest = max(self.opponents[:-1], key=lambda one: (self._mean(one), one))
            self.opponents.remove(weakest)
            algorithm.remove_module(weakest, new_agent_to_module_mapping_fn=self.matchups())

    def _mean(self, opponent):
        won = self.won.get(opponent, [0.0])
        return sum(won) / len(won)

    def matchups(self):
        pairings = []
        for opponent in self.opponents:
            weight = 1.0 + max(0.0, self._mean(opponent))
            pairings.append((weight, {"a": "main", 3: opponent, "late": opponent}))
            pairings.append((weight, {"a": opponent, 3: "main", "late": "main"}))
        return Matchups(pairings)


def config(num_env_runners=0, num_envs=2, **env_config):
    made = PPOConfig().training(train_batch_size=40, minibatch_size=16, num_epochs=2)
    _with_league(made, num_env_runners, num_envs, env_config)
    return made


def off_policy_config(num_env_runners=0, num_envs=2, **env_config):
    made = DQNConfig().training(train_batch_size=8, num_steps_sampled_before_learning_starts=20)
    made.training(replay_buffer_config={"capacity": 60}, target_network_update_freq=20)
    made.reporting(min_sample_timesteps_per_iteration=40)
    _with_league(made, num_env_runners, num_envs, env_config)
    return made


def _with_league(made, num_env_runners, num_envs, env_config):
    (
        made.environment(Gaps, env_config=env_config)
        .env_runners(
            num_env_runners=num_env_runners,
            num_envs_per_env_runner=num_envs,
            observation_filter="MeanStdFilter",
        )
        .multi_agent(
            policies={"main", "first"},
            policy_mapping_fn={"a": "main", 3: "first", "late": "first"},
            policies_to_train=["main"],
        )
        .callbacks(League)
        .rl_module(model_config={"fcnet_hiddens": [8]})
        .debugging(seed=3)
    )


def outcome(algo, results):
    """Digests of all that a run knows, and of its newest result, by name."""
    state = algo.get_state(not_components="config")
    found = {name: _digest(part) for name, part in state.items()}
    found["slots"] = _digest(state["env_runners"]["slots"])
    if results:
        shown = comparable(results[-1])
        shown = {name: shown[name] for name in ("env_runners", "learners")}
        found["result"] = _digest(text_keys(shown))
    return found


def _digest(value):
    return hashlib.sha256(encode(value)).hexdigest()[:16]


def trained(made, iterations):
    """What a run without any disturbance comes to."""
    with made.build_algo() as algo:
        return outcome(algo, [algo.train() for _ in range(iterations)])


def go_on(num_env_runners, iterations, folder):
    """Trains from the newest checkpoint, or from the beginning; writes what came of it."""
    num_envs = 2 if num_env_runners < 2 else 1
    made = config(num_env_runners, num_envs)
    made.callbacks([League, lambda: PeriodicCheckpoint(folder, every=1, keep_last=2)])
    with made.build_algo() as algo:
        newest = latest_checkpoint(folder)
        if newest is not None:
            algo.restore_from_path(newest)
        while algo.training_iteration < iterations:
            algo.train()
        found = outcome(algo, [])
    # The states of callbacks name their classes: this is __main__ in a process of its own.
    del found["callbacks"], found["env_runners"]
    unfinished = folder / "outcome.unfinished"
    unfinished.write_text(json.dumps(found))
    unfinished.replace(folder / "outcome.json")


if __name__ == "__main__":
    go_on(int(sys.argv[1]), int(sys.argv[2]), Path.cwd())
