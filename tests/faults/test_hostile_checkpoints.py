"""Checkpoints and crash files made with intent to harm: none imports, calls or touches.

A forgery has a manifest that fits. One or more places of its state, settings included, hold what
`hostile_values` gives, or are spoilt as in `tests.mutated_states`, or its bytes are changed. It is
restored and trained, or replayed, as by a user who has checked nothing. What happens is watched by
an audit hook of the interpreter; how much it costs is measured.

What an iteration costs is what the settings say, also those of a file: the victim gives the sizes
of an iteration (`COSTS`), which docs/security.md advises.
"""

import copy
import hashlib
import json
import os
import shutil
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from callbacks import CallbackError, RLlibCallback
from checkpoints import (
    CheckpointError,
    CheckpointMismatchError,
    encode,
    read_checkpoint,
    write_checkpoint,
)
from tests.forgeries import (
    MAX_BYTES,
    MAX_SECONDS,
    MODULE,
    PROOF,
    Cost,
    Rng,
    Watch,
    damaged_bytes,
    leaves,
    memory,
    plant,
    spoilt_bytes,
    write_canary,
)
from tests.mutated_states import at, mutated, mutations
from tests.saved_files import files_of
from tests.slow_disk import Unsynced
from trainer import Algorithm, ConfigError, DQNConfig, PPOConfig, TrainedPolicy, TrainerError
from trainer.cli.main import main
from trainer.runner_group.crash_files import read_crash
from trainer.testing.envs import CountdownEnv

COSTS = {
    "num_env_runners": 0,
    "num_envs_per_env_runner": 1,
    "train_batch_size": 8,
    "evaluation_num_env_runners": 0,
    "evaluation_duration": 1,
    "evaluation_duration_unit": "episodes",
    "min_sample_timesteps_per_iteration": 0,
    "min_train_timesteps_per_iteration": 0,
    "min_time_s_per_iteration": None,
    "rollout_fragment_length": "auto",
    "batch_mode": "truncate_episodes",
}
OF_PPO = {"num_epochs": 1, "minibatch_size": 8}
OF_DQN = {"training_intensity": None}
CLEAR = (TrainerError, CheckpointError, CallbackError)


class Failing(RLlibCallback):
    def on_episode_end(self, **kwargs):
        raise ValueError("on purpose")


# ---- the campaign


class Campaign:
    """Checkpoints and a crash file of small runs, forged in all ways."""

    def __init__(self, folder):
        self.folder = folder
        self.watch = Watch(folder)
        self.outcomes = Counter()
        self.raw = []
        self.costly = []
        self._made = {name: self._trained(name) for name in ("ppo", "dqn")}
        self._places = {
            name: {part: list(leaves(state)) for part, state in contents.components.items()}
            for name, contents in self._made.items()
        }
        self._mutations = {
            (name, part): list(mutations(state))
            for name, contents in self._made.items()
            for part, state in contents.components.items()
            if isinstance(state, dict | list)
        }
        self._crash = self._crashed()
        self._crash_places = list(leaves(self._crash))
        sys.addaudithook(self.watch)

    def _trained(self, name):
        with _config(name).build_algo() as algo:
            algo.metrics.log_value("speed", 3.0, window=4)
            _ = [algo.train() for _ in range(3)]
            return read_checkpoint(algo.save_to_path(self.folder / name))

    def _crashed(self):
        crash_dir = self.folder / "crashes"
        with (
            Algorithm.from_checkpoint(
                self.folder / "ppo", callbacks_class=Failing, crash_dir=str(crash_dir)
            ) as algo,
            pytest.raises(CallbackError),
        ):
            _ = [algo.train() for _ in range(50)]
        (file,) = crash_dir.iterdir()
        record = read_crash(file)
        record["config"]["code"] = []
        record["config"]["settings"]["crash_dir"] = None
        return record

    def run(self, kind, seed, first, num_cases):
        """Plays cases of one kind; each follows from the seed and its number alone."""
        for number in range(first, first + num_cases):
            rng = Rng(f"{kind}-{seed}-{number}")
            kinds = {"mutated": self._mutated, "hostile": self._hostile, "damaged": self._damaged}
            forge = kinds[kind]
            is_crash = rng.random() < 0.1
            play = self._forged_crash(rng, kind) if is_crash else forge(rng)
            self._judge(play, f"{kind} {seed} {number}")

    def _judge(self, play, name):
        end = "trained"
        with Cost() as cost:
            self.watch.is_on = True
            try:
                play()
            except CLEAR as error:
                end = type(error).__name__
                str(error)
            except Exception as error:  # noqa: BLE001 - counted: it should have been a clear one
                end = "raw"
                self.raw.append(f"{name}: {type(error).__name__}: {error!s:.200}")
            finally:
                self.watch.is_on = False
        self.outcomes[end] += 1
        if cost.seconds > MAX_SECONDS or cost.num_bytes > MAX_BYTES:
            self.costly.append(f"{name}: {cost.seconds:.1f} s, {cost.num_bytes:,} bytes, {end}")

    def _chosen(self, rng):
        name = rng.choice(["ppo", "ppo", "dqn"])
        components = dict(self._made[name].components)
        part = "config" if rng.random() < 0.3 else rng.choice(sorted(components))
        return name, components, part

    def _hostile(self, rng):
        """Well-formed: hostile values at one to three places."""
        name, components, part = self._chosen(rng)
        components[part] = copy.deepcopy(components[part])
        for _ in range(rng.randrange(1, 4)):
            plant(components[part], rng.choice(self._places[name][part] or [()]), rng)
        return self._restoring(name, components, rng)

    def _mutated(self, rng):
        """A mutation of the state, or of the bytes of a file, with a manifest that fits."""
        name, components, part = self._chosen(rng)
        if rng.random() < 0.5 and (name, part) in self._mutations:
            components[part] = mutated(components[part], rng.choice(self._mutations[(name, part)]))
            return self._restoring(name, components, rng)
        path = self._written(name, components)
        file = rng.choice(sorted(files_of(path).iterdir()))
        file.write_bytes(spoilt_bytes(file.read_bytes(), rng))
        _fit_manifest(path, file.name)
        return self._restoring_at(name, path, rng)

    def _damaged(self, rng):
        """A fault of a disk, which no manifest was made for."""
        name, components, _ = self._chosen(rng)
        path = self._written(name, components)
        file = rng.choice([path / "manifest.json", *sorted(files_of(path).iterdir())])
        file.write_bytes(damaged_bytes(file.read_bytes(), rng))
        return self._restoring_at(name, path, rng)

    def _forged_crash(self, rng, kind):
        record = copy.deepcopy(self._crash)
        file = self.folder / "forged.crash"
        if kind == "hostile":
            plant(record, rng.choice(self._crash_places), rng)
            file.write_bytes(encode(record))
        else:
            file.write_bytes(spoilt_bytes(encode(record), rng))

        def play():
            record = read_crash(file)
            config = PPOConfig.from_state(record["config"], changes={**COSTS, **OF_PPO})
            with config.build_algo() as algo:
                algo.replay_episode(file)

        return play

    def _written(self, name, components):
        shutil.rmtree(self.folder / "forged", ignore_errors=True)
        return write_checkpoint(
            self.folder / "forged",
            components=components,
            metadata=self._made[name].manifest.metadata,
            file_system=Unsynced(),
        )

    def changed(self, name, part, place, value):
        """A checkpoint with one other value."""
        components = dict(self._made[name].components)
        components[part] = copy.deepcopy(components[part])
        at(components[part], place[:-1])[place[-1]] = value
        return self._written(name, components)

    def _restoring(self, name, components, rng):
        return self._restoring_at(name, self._written(name, components), rng)

    def _restoring_at(self, name, path, rng):
        costs = {**COSTS, **(OF_PPO if name == "ppo" else OF_DQN)}

        def play():
            with Algorithm.from_checkpoint(path, **costs) as algo:
                algo.train()

        def look():
            words = rng.choice([["inspect"], ["verify"], ["export"]])
            target = [str(self.folder / "w.npz"), "--overwrite"] if words == ["export"] else []
            main([*words, str(path), *target])

        def restore():
            with _config(name).build_algo() as algo:
                algo.restore_from_path(path)
                algo.train()

        def act():
            policy = TrainedPolicy.from_checkpoint(path)
            policy.predict(np.zeros(CountdownEnv().observation_space.shape, np.float32))

        (way,) = rng.choices([play, restore, act, look], [6, 2, 1, 1])
        return way

    def report(self):
        total = sum(self.outcomes.values())
        lines = [f"{total} cases: {dict(self.outcomes)}", *self.costly[:20], *self.raw[:40]]
        return "\n".join([*lines, *self.watch.seen[:20]])


def _config(name):
    config = {"ppo": PPOConfig, "dqn": DQNConfig}[name]()
    config.environment("trainer.testing.envs.CountdownEnv")
    config.training(model={"fcnet_hiddens": [2]}).evaluation(evaluation_interval=1)
    config.update_from_dict({**COSTS, **(OF_PPO if name == "ppo" else OF_DQN)})
    if name == "dqn":
        config.training(
            num_steps_sampled_before_learning_starts=8,
            replay_buffer_config={"type": "PrioritizedReplayBuffer", "capacity": 32},
        )
    else:
        config.env_runners(observation_filter="MeanStdFilter")
        config.environment(normalize_rewards=True)
    return config


def _fit_manifest(path, name):
    data = (files_of(path) / name).read_bytes()
    fields = json.loads((path / "manifest.json").read_text())
    for entry in fields["components"].values():
        for file in (entry, *entry.get("arrays", ())):
            if file["file"] == name:
                file |= {"num_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    fields.pop("checksum")
    text = json.dumps(fields, indent=1) + "\n"
    fields["checksum"] = hashlib.sha256(text.encode()).hexdigest()
    (path / "manifest.json").write_text(json.dumps(fields, indent=1) + "\n")


@pytest.fixture(scope="module")
def campaign(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    write_canary(folder)
    return Campaign(folder)


SLOW = [
    pytest.param("mutated", 7102, part * 1_000, 1_000, marks=pytest.mark.slow) for part in range(20)
] + [
    pytest.param(kind, seed, part * 1_000, 1_000, marks=pytest.mark.slow)
    for kind, seed, num_parts in (("hostile", 7103, 6), ("hostile", 3101, 6), ("damaged", 3102, 4))
    for part in range(num_parts)
]


@pytest.mark.parametrize(
    ("kind", "seed", "first", "num_cases"),
    [("mutated", 1, 0, 20), ("hostile", 1, 0, 20), ("damaged", 1, 0, 20), *SLOW],
)
def test_nobody_is_harmed(kind, seed, first, num_cases, campaign, monkeypatch, caplog, capsys):
    monkeypatch.syspath_prepend(campaign.folder)
    monkeypatch.chdir(campaign.folder)
    caplog.set_level("CRITICAL")
    campaign.outcomes.clear()
    campaign.raw.clear()
    campaign.costly.clear()
    campaign.run(kind, seed, first, num_cases)
    capsys.readouterr()
    print(campaign.report())
    assert campaign.watch.seen == []
    assert MODULE not in sys.modules
    assert not (campaign.folder / PROOF).exists()
    assert campaign.costly == []
    assert len(campaign.raw) <= max(1, num_cases // 100), campaign.report()
    assert campaign.outcomes["trained"] > 0 or kind == "damaged"


@pytest.mark.parametrize(
    ("opened_by", "place", "value"),
    [
        (Algorithm, ("settings", "crash_dir"), 3),
        (Algorithm, ("settings", "gym_env_vectorize_mode"), np.zeros(0)),
        (Algorithm, ("settings", "gym_env_vectorize_mode"), np.zeros(3, [("a", "i4")])),
        (Algorithm, ("settings", "policies"), {"a": 10**5000}),
        (TrainedPolicy, ("settings", "clip_actions"), np.zeros(2)),
        (TrainedPolicy, ("settings", "clip_actions"), {"a": 1}),
    ],
)
def test_settings_of_another_kind_are_refused_as_settings(opened_by, place, value, campaign):
    """Each came out as a raw error once."""
    path = campaign.changed("ppo", "config", place, value)
    with pytest.raises((ConfigError, CheckpointMismatchError)):
        opened_by.from_checkpoint(path)


def test_texts_among_the_metrics_of_episodes_do_not_fit(campaign):
    place = ("episodes", "records", 0, "custom_metrics")
    path = campaign.changed("ppo", "metrics", place, {"a": "text"})
    with pytest.raises(CheckpointMismatchError, match="expected a number"):
        Algorithm.from_checkpoint(path)


def test_the_watch_would_see_all_of_it(campaign, tmp_path):
    """Negative control: an import, a program, a file elsewhere, and memory are noticed."""
    campaign.watch.is_on = True
    with pytest.raises(ImportError):
        __import__(f"{MODULE}_that_is_not_there")
    assert os.system("true") == 0
    (tmp_path / "elsewhere").write_text("")
    (tmp_path / "elsewhere").unlink()
    campaign.watch.is_on = False
    kinds = [text.split()[0] for text in campaign.watch.seen]
    campaign.watch.seen.clear()
    assert kinds == ["import", "os.system", "open", "os.remove"]
    below_peak = memory("VmHWM") - memory("VmRSS")
    with Cost() as cost:
        np.ones(below_peak + 2**27, np.uint8)
    assert cost.num_bytes > 2**26 or not Path("/proc/self/status").exists()
