"""What is told of a process that was lost: where it was, and why it may have ended."""

import ctypes
import signal

import pytest

from callbacks import CallbackSpec
from trainer.env_runners.messages import STEPPING, ActivityNotes, EnvRunnerSpec, SlotPosition
from trainer.envs import make_env_factory
from trainer.modules import ByModule, ModuleTable, RLModuleSpec
from trainer.name_resolution import PROGRAM
from trainer.runner_group.records import RunnerRecord
from trainer.runner_group.repair import post_mortem
from trainer.runtime.local_engine import num_oom_kills
from trainer.runtime.messages import Lost
from trainer.runtime.worker import CallSignals
from trainer.seeding import Role
from trainer.testing.envs import CountdownEnv


def place(num_envs=1, role=Role.TRAINING, **values):
    spec = EnvRunnerSpec(
        env_factory=make_env_factory(CountdownEnv, {}, source=PROGRAM),
        table=ModuleTable(ByModule({"default_policy": RLModuleSpec()})),
        callbacks=CallbackSpec(),
        config={},
        root_seed=0,
        role=role,
        worker_index=1,
        num_workers=1,
        num_envs=num_envs,
        first_slot=0,
        num_slots=num_envs,
    )
    return RunnerRecord(spec, **values)


def lost(signals, **how):
    return Lost(-9, num_heartbeats=signals.num_heartbeats, notes=tuple(signals.notes), **how)


def test_with_one_sub_env_the_step_is_known():
    signals = CallSignals()
    signals.num_heartbeats = 100
    activity = ActivityNotes(signals)
    activity.episode_begins(0, stream=3, number=17, seed=99)
    expected = "sub-env 0, episode training-3-17, seed 99"
    assert post_mortem(lost(signals), place()) == f" (during reset(); {expected})"
    activity.doing(STEPPING)
    signals.num_heartbeats += 1 + 8  # the reset and eight steps
    assert post_mortem(lost(signals), place()) == f" (during step(); {expected}, step 8)"


def test_with_several_the_episode_begun_last_is_told():
    signals = CallSignals()
    activity = ActivityNotes(signals)
    activity.episode_begins(2, stream=0, number=5, seed=7)
    activity.doing("on_episode_start")
    told = post_mortem(lost(signals), place(4, role=Role.EVALUATION))
    assert told == (
        " (during on_episode_start; the episode begun last: sub-env 2, episode evaluation-0-5, "
        "seed 7)"
    )


def test_if_none_was_begun_those_are_told_that_ran_before():
    signals = CallSignals()
    ActivityNotes(signals).doing(STEPPING)
    positions = tuple(
        SlotPosition(index, env_seed=40 + index, episode={"id_": f"training-{index}-8"})
        for index in range(5)
    )
    told = post_mortem(lost(signals), place(5, positions=positions))
    assert told.startswith(" (during step(); sub-env 0, episode training-0-8, seed 40, after step")
    assert told.endswith("; and 2 more)")
    assert told.count("episode ") == 3


def test_nothing_is_told_where_nothing_is_known():
    assert post_mortem(Lost(None, start_error="no memory"), place()) == ""
    assert post_mortem(Lost(-9), place()) == ""
    assert post_mortem(lost(CallSignals()), place()) == ""


def test_memory_that_a_crash_wrote_to_does_no_harm():
    signals = CallSignals()
    ctypes.memset(ctypes.addressof(signals), 0x7F, ctypes.sizeof(signals))
    assert "the episode begun last" in post_mortem(lost(signals), place(2))


@pytest.mark.parametrize(
    ("num_oom_kills", "expected"),
    [
        (None, "SIGKILL, probably out of memory, or killed by hand"),
        (0, "SIGKILL, killed by hand or by another program: the kernel counts no kill"),
        (2, "SIGKILL, out of memory: the kernel counts such a kill"),
    ],
)
def test_a_kill_is_explained_as_far_as_the_kernel_tells(num_oom_kills, expected):
    assert expected in Lost(-signal.SIGKILL, num_oom_kills=num_oom_kills).describe()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nr_free_pages 7\noom_kill 3\n", 3),
        ("nr_free_pages 7\n", None),
        ("oom_kill many\n", None),
        ("", None),
    ],
)
def test_the_count_of_the_kernel_is_read(text, expected, tmp_path):
    (tmp_path / "vmstat").write_text(text)
    assert num_oom_kills(tmp_path / "vmstat") == expected


def test_no_count_is_no_error(tmp_path):
    assert num_oom_kills(tmp_path / "nothing") is None
