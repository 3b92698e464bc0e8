"""The code blocks of RLlib's pages on callbacks run with nothing but their import lines changed.

The blocks are in `tests/document_blocks.py`. What they leave at its default is made smaller from
outside, so that a test takes seconds.
"""

import re
import subprocess
import sys
from pathlib import Path

import gymnasium
import pytest

from callbacks import EVENTS, RLlibCallback
from tests.document_blocks import (
    ACROBOT_CUSTOM_DATA,
    ACROBOT_TEMPORARY_DATA,
    CHAIN,
    CLASS_WITH_STATE,
    CLASS_WITH_STATE_AND_SUPER,
    CLASS_WITHOUT_STATE,
    LAMBDA,
    REPLAY_BUFFER_TO_DISK,
    TREE,
)
from tests.small_runs import small_ppo
from trainer import DQNConfig, PPOConfig
from trainer.replay import PrioritizedReplayBuffer

pytestmark = pytest.mark.process


def run(block, monkeypatch, *, around=None, **settings):
    """The names that a block leaves behind; its algorithm is stopped.

    Args:
        block: what to run, as a script.
        monkeypatch: changes the defaults of `PPOConfig` for this test.
        around: names that the block expects to be there.
        settings: the changed defaults.
    """
    make = PPOConfig.__init__

    def make_small(config, *args, **kwargs):
        make(config, *args, **kwargs)
        small = {"train_batch_size": 400, "num_epochs": 1, "model": {"fcnet_hiddens": [8]}}
        config.update_from_dict({**small, "seed": 0, **settings})

    monkeypatch.setattr(PPOConfig, "__init__", make_small)
    names = {"__name__": "__main__", **(around or {})}
    try:
        exec(compile(block, "<block>", "exec"), names)
    finally:
        if "ppo" in names:
            names["ppo"].stop()
    return names


_SMALLER = """\
from trainer import PPOConfig

make = PPOConfig.__init__

def make_small(config):
    make(config)
    config.training(train_batch_size=400, num_epochs=1)

PPOConfig.__init__ = make_small
"""


def test_what_processes_print_appears():
    # A script without a guard, with the default of two processes, whose output is the script's.
    # The ends of their lines may fall between each other's.
    done = subprocess.run(
        [sys.executable, "-c", f"{_SMALLER}{LAMBDA}ppo.stop()"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert len(re.findall(r"Episode done\. R=\d", done.stdout)) > 5


@pytest.mark.parametrize("block", [LAMBDA, CLASS_WITHOUT_STATE])
def test_the_returns_of_all_episodes_are_printed(block, monkeypatch, capsys):
    ppo = run(block, monkeypatch, num_env_runners=0)["ppo"]
    lines = capsys.readouterr().out.splitlines()
    assert all(re.fullmatch(r"Episode done\. R=\d+\.0", line) for line in lines)
    assert len(lines) == ppo.counters.played.num_episodes > 5


@pytest.mark.parametrize("block", [CLASS_WITH_STATE, CLASS_WITH_STATE_AND_SUPER])
def test_the_stateful_class_adds_up(block, monkeypatch, capsys):
    # One runner, so that there is one sum.
    ppo = run(block, monkeypatch, num_env_runners=0)["ppo"]
    total = 0.0
    lines = capsys.readouterr().out.splitlines()
    for line in lines:
        found = re.fullmatch(r"Episode done\. R=(\d+\.0) Global SUM=(\d+\.0)", line)
        assert found is not None
        total += float(found[1])
        assert float(found[2]) == total
    assert len(lines) == ppo.counters.played.num_episodes > 5


def test_the_chain_calls_classes_then_functions(monkeypatch, capsys):
    config = small_ppo(env="CartPole-v1", batch=200)
    run(CHAIN, monkeypatch, around={"config": config, "RLlibCallback": RLlibCallback})
    with config.build() as algo:
        algo.train()
    promised = [line[4:] for line in CHAIN.splitlines() if line.startswith("# > ")]
    assert len(promised) == 4
    assert capsys.readouterr().out.splitlines() == promised


def test_both_ways_to_log_acrobots_angle_give_the_same_means(monkeypatch, capsys):
    means, printed = [], []
    for block in (ACROBOT_TEMPORARY_DATA, ACROBOT_CUSTOM_DATA):
        with monkeypatch.context() as changed:
            # Episodes of 50 steps, cut into pieces of 60.
            changed.setattr(gymnasium.spec("Acrobot-v1"), "max_episode_steps", 50)
            results = run(
                block, changed, num_env_runners=1, train_batch_size=60, minibatch_size=60
            )["results"]
        means.append(results["env_runners"]["theta1_mean"])
        printed.append(capsys.readouterr().out.splitlines())
    assert means[0] == means[1]
    assert -180.0 <= means[0] <= 180.0
    assert printed[0] == printed[1]
    assert [line.split()[0] for line in printed[0]] == [f"iter={i}" for i in range(10)]
    assert all(re.search(r"theta1_mean=-?\d+\.\d+ R=-\d+\.\d+$", line) for line in printed[0])


def test_the_replay_buffer_is_written_to_disk(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    make = DQNConfig.__init__

    def make_small(config):
        make(config)
        # Many steps for each request: a request costs more than what is learnt after it.
        config.env_runners(rollout_fragment_length=50).training(model={"fcnet_hiddens": [8]})
        config.reporting(min_sample_timesteps_per_iteration=300)

    monkeypatch.setattr(DQNConfig, "__init__", make_small)
    names = run(REPLAY_BUFFER_TO_DISK, monkeypatch)
    names["dqn"].stop()
    lines = capsys.readouterr().out.splitlines()
    iterations = [line.split()[1] for line in lines if line.startswith("training_iteration ")]
    assert iterations == ["1", "2", "3", "4"]
    # The last time in the fourth iteration, of 300 steps each.
    written = (tmp_path / "replay_buffer_contents.msgpack").read_bytes()
    contents = names["ormsgpack"].unpackb(written)
    assert contents["num_added"] == 1200 == len(contents["columns"]["rewards"])
    # What was written can be put into a buffer again, and gives the same bytes.
    buffer = PrioritizedReplayBuffer(50_000)
    buffer.set_state(contents)
    option = names["ormsgpack"].OPT_SERIALIZE_NUMPY
    assert names["ormsgpack"].packb(buffer.get_state(), option=option) == written


def test_every_event_of_the_overview_is_there_with_its_arguments():
    for scope, events in TREE.items():
        for name, arguments in events.items():
            assert EVENTS[name].scope == scope
            assert set(arguments) <= set(EVENTS[name].arguments)
            assert callable(getattr(RLlibCallback, name))


def test_the_first_example_counts_episodes_that_were_cut_into_chunks():
    page = (Path(__file__).parents[2] / "docs" / "callbacks.md").read_text(encoding="utf-8")
    example = page.partition("```python\n")[2].partition("\nseen = []")[0]
    names = {"__name__": "example"}
    exec(example, names)
    lengths = {"min_length": 30, "max_length": 30}
    config = small_ppo(num_slots=1, batch=20, env_config=lengths)  # less than an episode
    with config.callbacks(names["Lengths"]).build_algo() as algo:
        results = [algo.train() for _ in range(6)]
    assert results[-1]["env_runners/long_episodes"] == 4, "120 steps of 30 each"
