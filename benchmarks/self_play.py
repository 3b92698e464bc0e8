"""Board games of PettingZoo, learnt by playing against frozen copies of oneself.

A league begins with a player that moves at random. Whenever the learner wins often enough against
all opponents together, a copy of it joins them, as it is then.

    tic-tac-toe    a copy joins when more than 85 % of 1,000 evaluation games are won. Wanted:
                   against random play, at most 5 % of 1,000 games are lost from either seat
    Connect Four   a copy joins when 95 % of an iteration's training games are won, as in RLlib's
                   `self_play_with_open_spiel`, which wants a league of three: learner, random
                   play, one copy. Here it goes on until there are two copies

A move that the mask forbids raises, so a run that ends well has made none. Needs the extra
[pettingzoo].
"""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from benchmarks.figures import Figure, report
from benchmarks.multi_agent_tasks import PPO_OF_GAMES
from benchmarks.tasks import SEEDS
from callbacks import RLlibCallback
from trainer import Algorithm, Matchups, PolicySpec, PPOConfig

PLAYERS: Final = {"tic-tac-toe": ("player_1", "player_2"), "Connect Four": ("player_0", "player_1")}
NUM_GAMES: Final = 1000
"""Games that an opponent is judged by, and that are played against random play from each seat."""
MAX_LOST: Final = 0.05
NUM_COPIES: Final = 2
RULE: Final = {"tic-tac-toe": 0.85, "Connect Four": 0.95}
"""The share of games that the learner has to win before a copy of it joins."""


# ---- games


def tic_tac_toe(_: Mapping[str, Any] | None = None) -> Any:
    """Noughts and crosses."""
    from pettingzoo.classic import tictactoe_v3

    return _watched(tictactoe_v3.env())


def connect_four(_: Mapping[str, Any] | None = None) -> Any:
    """Four in a row on a board of 6 × 7."""
    from pettingzoo.classic import connect_four_v3

    return _watched(connect_four_v3.env())


def _watched(env: Any) -> Any:
    """The env, which raises at a move that the mask forbids."""
    step = env.step

    def judged(action: Any) -> None:
        if action is not None and not env.observe(env.agent_selection)["action_mask"][action]:
            raise AssertionError(f"{env.agent_selection} made the forbidden move {action}")
        step(action)

    env.step = judged
    return env


# ---- the league


class SelfPlay(RLlibCallback):
    """Adds a copy of the learner to its opponents when it wins often enough.

    Attributes:
        opponents: ids of the modules that the learner meets, each as often as the others.
    """

    def __init__(
        self,
        players: tuple[str, str],
        win_rate: float,
        *,
        judged_by: Literal["training", "evaluation"],
    ) -> None:
        """Has the random opponent only.

        Args:
            players: both seats.
            win_rate: see `RULE`.
            judged_by: which games count.
        """
        self._players = players
        self._win_rate = win_rate
        self._judged_by = judged_by
        self.opponents = ["random"]

    def on_episode_end(self, *, episode: Any, metrics_logger: Any, **_: Any) -> None:
        """Counts the game."""
        paid = sum(
            won
            for agent, won in episode.get_agent_returns().items()
            if episode.module_for(agent) == "main"
        )
        metrics_logger.log_value("won", int(paid > 0), reduce="sum", clear_on_reduce=True)
        metrics_logger.log_value("games", 1, reduce="sum", clear_on_reduce=True)

    def on_train_result(self, *, algorithm: Algorithm, result: Any, **_: Any) -> None:
        """Judges by training games."""
        if self._judged_by == "training":
            self._judge(algorithm, result["env_runners"])

    def on_evaluate_end(self, *, algorithm: Algorithm, evaluation_metrics: Any, **_: Any) -> None:
        """Judges by evaluation games."""
        if self._judged_by == "evaluation":
            self._judge(algorithm, evaluation_metrics["env_runners"])

    def _judge(self, algorithm: Algorithm, played: Mapping[str, Any]) -> None:
        if not played.get("games") or played["won"] / played["games"] < self._win_rate:
            return
        new = f"copy_{len(self.opponents)}"
        self.opponents.append(new)
        algorithm.add_module(
            new,
            copy_of="main",
            new_agent_to_module_mapping_fn=matchups(self._players, self.opponents),
        )


def matchups(players: tuple[str, str], opponents: list[str]) -> Matchups:
    """The learner meets every opponent as often, from both seats."""
    first, second = players
    return Matchups(
        [
            pairing
            for one in opponents
            for pairing in ({first: "main", second: one}, {first: one, second: "main"})
        ]
    )


def _league(game: str, env: Any, **settings: Any) -> PPOConfig:
    config = (
        PPOConfig()
        .environment(env)
        .env_runners(num_env_runners=0, num_envs_per_env_runner=16)
        .multi_agent(
            policies={"main": None, "random": PolicySpec("random")},
            policy_mapping_fn=matchups(PLAYERS[game], ["random"]),
            policies_to_train=["main"],
        )
        .training(**PPO_OF_GAMES, num_epochs=6, gamma=0.99)
    )
    return config.training(**settings)


def tic_tac_toe_league() -> PPOConfig:
    """A copy joins by evaluation games, after every fifth iteration."""
    game = "tic-tac-toe"
    config = _league(game, tic_tac_toe, model={"fcnet_hiddens": [64, 64]})
    config.callbacks(lambda: SelfPlay(PLAYERS[game], RULE[game], judged_by="evaluation"))
    return config.evaluation(evaluation_interval=5, evaluation_duration=NUM_GAMES)


def connect_four_league() -> PPOConfig:
    """A copy joins by training games."""
    game = "Connect Four"
    config = _league(game, connect_four, model={"fcnet_hiddens": [128, 128]})
    return config.callbacks(lambda: SelfPlay(PLAYERS[game], RULE[game], judged_by="training"))


# ---- what comes of it


def lost_against_random(
    algo: Algorithm, make: Callable[[], Any], seat: str, *, num_games: int, seed: int
) -> float:
    """The share of games that the learner loses, without exploration, against random play.

    Args:
        algo: whose module `main` plays.
        make: makes the game.
        seat: the learner's.
        num_games: how many are played.
        seed: of the other player.
    """
    env, rng, results = make(), np.random.default_rng(seed), Counter[int]()
    for _ in range(num_games):
        env.reset()
        paid = 0.0
        for agent in env.agent_iter():
            seen, reward, terminated, truncated, _ = env.last()
            paid += reward if agent == seat else 0.0
            if terminated or truncated:
                action = None
            elif agent == seat:
                action = algo.compute_single_action(seen, policy_id="main", explore=False)
            else:
                action = rng.choice(np.flatnonzero(seen["action_mask"]))
            env.step(None if action is None else int(action))
        results[int(np.sign(paid))] += 1
    return results[-1] / num_games


@dataclass(frozen=True)
class Played:
    """What came of a league.

    Attributes:
        env_steps: of training, until what is wanted was reached or the budget was used up.
        joined_at: env steps after which each copy joined.
        lost: the share of games lost to random play from the first and from the second seat.
    """

    env_steps: int
    joined_at: tuple[int, ...]
    lost: tuple[float, float]


def play_tic_tac_toe(seed: int, *, max_env_steps: int = 1_000_000) -> Played:
    """Trains until a copy has joined, and few enough games are lost from either seat."""
    return _play(
        tic_tac_toe_league().debugging(seed=seed),
        "tic-tac-toe",
        tic_tac_toe,
        lambda copies, lost: copies >= 1 and max(lost) <= MAX_LOST,
        max_env_steps=max_env_steps,
    )


def play_connect_four(seed: int, *, max_env_steps: int = 2_000_000) -> Played:
    """Trains until two copies have joined."""
    return _play(
        connect_four_league().debugging(seed=seed),
        "Connect Four",
        connect_four,
        lambda copies, _: copies >= NUM_COPIES,
        max_env_steps=max_env_steps,
    )


def _play(
    config: PPOConfig,
    game: str,
    make: Callable[[], Any],
    is_enough: Callable[[int, tuple[float, float]], bool],
    *,
    max_env_steps: int,
) -> Played:
    first, second = PLAYERS[game]
    joined_at: list[int] = []
    lost = (1.0, 1.0)
    with config.build_algo() as algo:
        while algo.counters.num_env_steps_sampled < max_env_steps:
            algo.train()
            copies = len(algo.module_ids) - len(("main", "random"))
            joined_at += [algo.counters.num_env_steps_sampled] * (copies - len(joined_at))
            if algo.training_iteration % 5:
                continue
            judged = {"num_games": NUM_GAMES, "seed": algo.root_seed}
            lost = (
                lost_against_random(algo, make, first, **judged),
                lost_against_random(algo, make, second, **judged),
            )
            if is_enough(copies, lost):
                break
        return Played(algo.counters.num_env_steps_sampled, tuple(joined_at), lost)


def main() -> None:
    """Prints what both leagues came to."""
    if importlib.util.find_spec("pettingzoo") is None:
        print("self-play: PettingZoo is not installed: pip install 'local-trainer[pettingzoo]'")
        return
    for game, play in (("tic-tac-toe", play_tic_tac_toe), ("Connect Four", play_connect_four)):
        print(f"{game}: self-play against frozen copies, seeds {SEEDS}")
        runs = [play(seed) for seed in SEEDS]
        report("env steps", Figure([run.env_steps for run in runs], "steps"))
        for run in runs:
            print(f"  copies joined after {run.joined_at} env steps")
        for seat in (0, 1):
            lost = Figure([100 * run.lost[seat] for run in runs], "%")
            report(f"lost against random play from seat {seat + 1}", lost, target="≤ 5 %")
