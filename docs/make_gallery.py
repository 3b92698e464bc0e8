"""Makes the gallery of the site: trained agents as moving pictures, and the reports of their runs.

    python docs/make_gallery.py                writes build/gallery/, which `make docs` takes along
    python docs/make_gallery.py --env CartPole-v1 --folder /tmp/gallery

Each agent is trained with the recipe of its env, as `local-trainer train --env NAME` does, so a
picture shows what a reader gets. Needs the extras `docs` and `plot`.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import gymnasium as gym
from PIL import Image

from trainer import TrainedPolicy
from trainer.cli import main as local_trainer

FOLDER: Final = Path(__file__).parents[1] / "build" / "gallery"
ENVS: Final = {
    "CartPole-v1": "the pole stays up for 500 steps, the most there are",
    "Acrobot-v1": "the lower arm is swung above the line",
    "MountainCar-v0": "the car gathers speed on the other slope first",
    "MountainCarContinuous-v0": "the car does so with an engine whose force it chooses",
    "Pendulum-v1": "the pendulum is swung up and held",
}
"""Env ids of gymnasium's classic control → what the picture shows."""
_MOST_FRAMES: Final = 250
_FRAME_MS: Final = 40
_WIDTH: Final = 300


def main(arguments: Sequence[str] | None = None) -> None:
    """Trains, records and reports."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--env", action="append", choices=ENVS, help="default: all")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    given = parser.parse_args(arguments)
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame draws without a screen
    envs = given.env or list(ENVS)
    given.folder.mkdir(parents=True, exist_ok=True)
    sections = []
    for env in envs:
        run = given.folder / "runs" / env
        _tool("train", "--env", env, "--seed", "0", "--run-dir", str(run), "--lines")
        _tool("report", str(run), "--output", str(given.folder / f"{env}.html"), "--title", env)
        episode_return = record(run, env, given.folder / f"{env}.webp")
        sections.append(_section(env, episode_return))
    (given.folder / "gallery.md").write_text(_page(sections), encoding="utf-8")


def record(run: Path, env: str, file: Path) -> float:
    """Writes an episode of a trained agent as an animated picture, and returns its return."""
    policy = TrainedPolicy.from_checkpoint(run)
    frames: list[Image.Image] = []
    episode_return, is_over = 0.0, False
    with gym.make(env, render_mode="rgb_array") as played:
        observation, _ = played.reset(seed=0)
        while not is_over:
            if len(frames) < _MOST_FRAMES:
                frames.append(_small(played.render()))
            action = policy.predict(observation)
            observation, reward, is_terminated, is_truncated, _ = played.step(action)
            episode_return += float(reward)
            is_over = is_terminated or is_truncated
    frames[0].save(file, save_all=True, append_images=frames[1:], duration=_FRAME_MS, loop=0)
    return episode_return


def _small(frame: Any) -> Image.Image:
    picture = Image.fromarray(frame)
    return picture.resize((_WIDTH, round(picture.height * _WIDTH / picture.width)))


def _section(env: str, episode_return: float) -> str:
    return (
        f"## {env}\n\n"
        f"![An episode of {env}: {ENVS[env]}.]({env}.webp)\n\n"
        f"In this episode {ENVS[env]}; its return is {episode_return:.0f}. "
        f"[The report of the run]({env}.html).\n\n"
        f"```sh\nlocal-trainer train --env {env} --seed 0\n```\n"
    )


def _page(sections: Sequence[str]) -> str:
    begin = (
        "# Gallery\n\n"
        "See what trained agents do and what the report of a run looks like. All were trained "
        "while this site was built, each with the command below its picture.\n"
    )
    return "\n".join([begin, *sections])


def _tool(*words: str) -> None:
    """Runs the command line, which tells what it does and what fails."""
    if local_trainer(words):
        sys.exit(f"local-trainer {' '.join(words)} failed")


if __name__ == "__main__":
    main()
