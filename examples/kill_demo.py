"""Trains twice from one seed: undisturbed, and while processes are killed at random. Same bytes?

    python examples/kill_demo.py        # or `make kill-demo`: half a minute

The second run loses env runners and now and then its main process, by SIGKILL; a new one goes on
from the newest checkpoint. Exit code 1 if weights, running episodes or any other state differ.
"""

import argparse
import hashlib
import logging
import random
import subprocess
import sys
import tempfile
import time

from checkpoints import latest_checkpoint, read_manifest
from trainer import PPO, PeriodicCheckpoint, PPOConfig
from trainer.testing import RandomKiller


def train(given: argparse.Namespace) -> None:
    """Begins, or goes on from the newest checkpoint; meanwhile kills some of its own runners."""
    logging.getLogger("trainer").setLevel(logging.ERROR)  # it would tell every repair at length
    config = (
        PPOConfig()
        .environment(given.env)
        .env_runners(num_env_runners=2)
        .training(train_batch_size=2000, minibatch_size=250, num_epochs=6, lr=1e-3)
        .callbacks(PeriodicCheckpoint(given.directory, every=1, keep_last=2))
        .debugging(seed=given.seed)
    )
    newest = latest_checkpoint(given.directory)
    algo = PPO.from_checkpoint(newest, config=config) if newest else config.build_algo()
    runners, told = algo.env_runner_group, 0
    assert runners is not None
    killer = RandomKiller(
        lambda: runners.env_runner_pids().values(),
        seed=given.chance, mean_delay_s=0.3, most_kills=given.kill_runners,
    )  # fmt: skip
    with algo, killer:
        while algo.training_iteration < given.iterations:
            mean = algo.train()["env_runners/episode_return_mean"]
            lost = [f"  ✗ runner, process {kill.pid}" for kill in killer.kills[told:]]
            told += len(lost)
            print(f"{algo.training_iteration:6}  return {mean:6.1f}{''.join(lost)}", flush=True)


def run(title: str, words: list[str], chance: random.Random, *, kills: int = 0) -> str:
    """Trains in processes of their own, of which so many are killed; a hash of all state."""
    print(f"\n{title}\n  iteration", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-W", "ignore", __file__, *words, "--directory", directory]
        for kills_left in range(kills, -1, -1):
            deadly = chance.randint(2, 8) if kills_left else 0  # lines until it is killed
            again = [*command, "--chance", str(chance.randrange(10**6))]
            process = subprocess.Popen(again, stdout=subprocess.PIPE, text=True)  # noqa: S603 - ours
            for number, line in enumerate(process.stdout or (), start=1):
                print(line, end="", flush=True)
                if number == deadly:
                    time.sleep(chance.uniform(0, 0.2))  # anywhere in an iteration, or in a save
                    process.kill()
            if process.wait() >= 0:
                break
            print(f"        ✗ main process {process.pid}", flush=True)
        newest = latest_checkpoint(directory)
        if process.returncode != 0 or newest is None:
            raise SystemExit(f"Training ended with the exit code {process.returncode}.")
        parts = sorted(
            (name, part.sha256) for name, part in read_manifest(newest).components.items()
        )
        return hashlib.sha256(repr(parts).encode()).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--iterations", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--second-seed", type=int, help="of the second run (default: the same)")
    parser.add_argument("--kills", type=int, default=3, help="of the main process (default: 3)")
    parser.add_argument("--chance", type=int, help="seed of the kills (default: drawn)")
    parser.add_argument("--kill-runners", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--directory", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.directory is not None:
        train(given)
        return
    chance = random.Random(given.chance)
    words = ["--env", given.env, "--iterations", str(given.iterations), "--seed"]
    second = given.seed if given.second_seed is None else given.second_seed
    alone = run("Undisturbed", [*words, str(given.seed)], chance)
    killed = run(
        "With kills", [*words, str(second), "--kill-runners", "3"], chance, kills=given.kills
    )
    print(f"\nundisturbed  final state {alone}\nwith kills   final state {killed}")
    print("Equal." if alone == killed else "They differ.")
    sys.exit(alone != killed)


if __name__ == "__main__":
    main()
