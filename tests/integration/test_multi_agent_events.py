"""Events of episodes of several agents: their order, their env, and what is learnt from."""

import pytest

from callbacks import RLlibCallback
from tests import league
from tests.exact_runs import fail
from tests.multi_agent_runs import gaps
from tests.multi_agent_scripts import G2
from tests.small_runs import known
from trainer import PPOConfig
from trainer.testing import ScriptedMultiAgentEnv


def test_t14_order_of_events_with_two_slots_a_death_and_a_cut():
    """B ends at env step 1, A at 3; each of two slots plays four env steps."""
    trace = []

    class Trace(RLlibCallback):
        def on_episode_created(self, *, episode, **_):
            trace.append(f"{episode.env_id} created")

        def on_episode_start(self, *, env_index, **_):
            trace.append(f"{env_index} start")

        def on_episode_step(self, *, episode, env_index, **_):
            ended = ",".join(map(str, episode.ended_agents))
            trace.append(f"{env_index} step {episode.env_t} {ended}".rstrip())

        def on_postprocess_trajectory(self, *, episode, agent_id, postprocessed_batch, **_):
            rows = len(postprocessed_batch["rewards"])
            trace.append(f"{episode.env_id} rows of {agent_id}: {rows}")

        def on_episode_end(self, *, episode, env_index, **_):
            trace.append(f"{env_index} end {episode.get_return():g}")

        def on_sample_end(self, *, samples, **_):
            trace.append(f"sampled {[len(episode) for episode in samples]}")

    config = (
        PPOConfig()
        .environment(ScriptedMultiAgentEnv, env_config={"script": G2})
        .env_runners(num_env_runners=0, num_envs_per_env_runner=2)
        .rl_module(model_config={"fcnet_hiddens": [4]})
        .callbacks(Trace)
    )
    with config.build_algo() as algo:
        algo.env_runner.sample(num_timesteps=8)
    ends = ["step 3 A,B", "rows of A: 3", "rows of B: 1", "end 2", "created", "start"]
    cut = ["rows of A: 1", "rows of B: 1"]
    assert trace == [
        *(f"{slot} {event}" for slot in (0, 1) for event in ("created", "start")),
        *("0 step 1 B", "1 step 1 B"),
        *("0 step 2 B", "1 step 2 B"),
        *(f"{slot} {event}" for slot in (0, 1) for event in ends),
        *("0 step 1 B", "1 step 1 B"),
        *(f"{slot} {event}" for slot in (0, 1) for event in cut),
        "sampled [3, 1, 3, 1]",
    ]


def test_t15_the_env_of_an_event_is_the_one_that_ended():
    """Lengths are drawn by each sub-env, so at most one of them has played just as long."""
    others_differ = []

    class Looks(RLlibCallback):
        def on_episode_end(self, *, episode, env, env_index, **_):
            played = [one.unwrapped._t for one in env.envs]
            assert played[env_index] == episode.env_t
            assert played[env_index] >= env.envs[env_index].unwrapped._length
            others_differ.append(played[1 - env_index] != episode.env_t)

    with gaps(0, 2).callbacks(Looks).build_algo() as algo:
        algo.train(), algo.train()
    assert True in others_differ


@pytest.mark.parametrize("trained", [["odd"], ["even", "odd"]])
def test_t17_what_is_learnt_from_is_shown_once_per_trained_module(trained):
    shown = []

    class Shows(RLlibCallback):
        def on_learn_on_batch(self, *, policy, train_batch, **_):
            (name,) = (id_ for id_, module in modules.items() if module is policy)
            shown.append((name, train_batch.count))

    made = gaps(0, 1).callbacks(Shows).multi_agent(policies_to_train=trained)
    with made.build_algo() as algo:
        modules = {id_: algo.get_module(id_) for id_ in algo.module_ids}
        rows = []
        for _ in range(3):
            before = dict(algo.counters.played.num_module_steps)
            algo.train()
            now = algo.counters.played.num_module_steps
            rows += [(id_, now[id_] - before.get(id_, 0)) for id_ in trained]
    assert shown == rows


def test_evaluation_is_told_again_of_what_an_iteration_that_failed_told_it(tmp_path):
    """And a checkpoint says what it was told, before and after it is restored."""
    outcomes = []
    for fails in (False, True):
        made = league.config(0, 2).evaluation(evaluation_interval=1, evaluation_duration=2)
        with made.build_algo() as algo:
            results = [algo.train(), algo.train()]  # the second one adds a module
            if fails:
                before = known(algo)
                algo.__dict__["add_to_result"] = lambda _: fail()
                with pytest.raises(OSError, match="on purpose"):
                    algo.train()
                del algo.__dict__["add_to_result"]
                assert known(algo) == before
            results.append(algo.train())
            outcomes.append(league.outcome(algo, results))
            saved, path = known(algo), algo.save_to_path(tmp_path / str(fails))
            (heard,) = algo.eval_env_runner_group.foreach_env_runner(
                lambda runner: runner.callbacks.objects[0].told
            )
            assert heard[-1] == "old_1"
        with made.build_algo() as algo:
            algo.restore_from_path(path)
            assert known(algo) == saved
    assert outcomes[0] == outcomes[1]
