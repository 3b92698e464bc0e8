"""Which events fire around an episode, in which order, with what, and what callbacks may store."""

import pytest

from callbacks import CallbackError, RLlibCallback
from checkpoints import encode
from tests.small_runs import small_ppo
from trainer.errors import TrainerError

EPISODE_EVENTS = ("on_episode_created", "on_episode_start", "on_episode_step", "on_episode_end")


def config(num_env_runners=0, *, num_envs=2, **settings):
    made = small_ppo(num_env_runners, num_envs_per_env_runner=num_envs, batch=40, seed=7)
    return made.update_from_dict(settings)


def test_in_a_vector_step_all_sub_envs_step_and_then_tell_one_after_the_other():
    trace = []

    def noting(event):
        name = event.removeprefix("on_episode_")
        return lambda env_index, **_: trace.append((name, env_index))

    made = config(num_envs=2, env_config={"min_length": 1, "max_length": 1})
    made.callbacks(**{event: noting(event) for event in EPISODE_EVENTS})
    with made.build_algo() as algo:
        algo.env_runner.sample(num_timesteps=4)
    beginning = [("created", 0), ("start", 0), ("created", 1), ("start", 1)]
    first, second = ([("step", index), ("end", index)] for index in (0, 1))
    step = [*first, *beginning[:2], *second, *beginning[2:]]
    assert trace == [*beginning, *step, *first, *second]


@pytest.mark.parametrize("and_back", [False, True])
def test_a_callback_may_turn_a_running_episode_into_arrays(and_back):
    def to_arrays(episode, **_):
        if episode.t % 5 == 2:
            episode.to_numpy()
        if and_back and episode.t % 5 == 3:
            episode.to_lists()

    learnt = []
    for listener in (to_arrays, lambda episode, **_: None):
        made = config(0, train_batch_size=20, minibatch_size=10)
        with made.callbacks(on_episode_step=listener).build_algo() as algo:
            results = [algo.train() for _ in range(3)]
            assert results[-1]["env_runners"]["num_env_steps_sampled_lifetime"] == 60
            learnt.append(encode(algo.get_weights()))
    assert learnt[0] == learnt[1]


@pytest.mark.process
@pytest.mark.parametrize("num_env_runners", [0, 1])
def test_what_callbacks_store_in_an_episode_survives_its_cuts(num_env_runners):
    class Storing(RLlibCallback):
        def on_episode_created(self, *, episode, **kwargs):
            episode.custom_data["steps"] = []
            episode.user_data["sum"] = 0

        def on_episode_step(self, *, episode, **kwargs):
            episode.custom_data["steps"].append(episode.t)
            episode.user_data["sum"] += 1
            episode.add_temporary_timestep_data("reward", float(episode.get_rewards(-1)))

        def on_episode_end(self, *, episode, metrics_logger, **kwargs):
            assert episode.custom_data["steps"] == list(range(1, episode.t + 1))
            assert episode.user_data["sum"] == episode.t
            assert episode.get_temporary_timestep_data("reward") == [1.0] * episode.t
            episode.custom_metrics["length"] = episode.t
            episode.hist_data["lengths"] = [episode.t]

    with (
        config(num_env_runners, train_batch_size=7, minibatch_size=7)
        .callbacks(Storing)
        .build_algo() as algo
    ):
        results = [algo.train() for _ in range(8)]
        slots = algo.get_state()["env_runners"]["slots"]
    runners = results[-1]["env_runners"]
    assert runners["num_episodes_lifetime"] >= 5
    assert runners["custom_metrics"]["length_mean"] == runners["episode_len_mean"]
    lengths = [x for r in results for x in r.get("env_runners/hist_stats/lengths", [])]
    assert len(lengths) == runners["num_episodes_lifetime"]
    running = [slot for slot in slots if slot["env_seed"] is not None]
    assert running, "no episode was cut at the end, so nothing was shown"


@pytest.mark.parametrize("event", ["on_episode_step", "on_sample_end"])
def test_a_callback_that_samples_with_the_runner_that_plays_is_refused(event):
    def sample(env_runner, **_):
        env_runner.sample(num_episodes=1)

    with config().callbacks(**{event: sample}).build_algo() as algo:
        before = encode(algo.get_state())
        with pytest.raises(
            CallbackError, match=r"sample\(\).*while the same runner plays"
        ) as error:
            algo.train()
        assert isinstance(error.value.__cause__, TrainerError)
        assert encode(algo.get_state()) == before
        with pytest.raises(CallbackError, match="while the same runner plays"):
            algo.train()  # the refusal left nothing that says it still plays
