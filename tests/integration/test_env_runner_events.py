"""Which events fire around an episode, in which order, with what, and what callbacks may store."""

import numpy as np
import pytest

from callbacks import EVENTS, CallbackError, RLlibCallback
from checkpoints import encode
from tests.small_runs import small_ppo
from trainer.errors import TrainerError

EPISODE_EVENTS = ("on_episode_created", "on_episode_start", "on_episode_step", "on_episode_end")


class Tracing(RLlibCallback):
    """Keeps a line per event; as plain data it comes to the main process with every answer."""

    def __init__(self):
        self.trace = []

    def _note(self, event, episode, env_index, **arguments):
        seen = episode.get_observations() if episode.is_reset else []
        self.trace.append((event, episode.id_, env_index, episode.t, len(seen)))

    def on_episode_created(self, **arguments):
        self._note("created", **arguments)

    def on_episode_start(self, **arguments):
        self._note("start", **arguments)

    def on_episode_step(self, **arguments):
        self._note("step", **arguments)

    def on_episode_end(self, **arguments):
        self._note("end", **arguments)

    def on_sample_end(self, *, samples, **kwargs):
        self.trace.append(("sample end", sum(map(len, samples))))


def config(num_env_runners=0, *, num_envs=2, **settings):
    made = small_ppo(num_env_runners, num_envs_per_env_runner=num_envs, batch=40, seed=7)
    return made.update_from_dict(settings)


def traces(algo):
    """The trace of every runner, as the main process knows it."""
    states = algo.get_state()["env_runners"]["callbacks"]
    return [
        [tuple(line) for line in states[index]["objects"][0]["state"]["trace"]]
        for index in sorted(states)
    ]


def test_the_golden_trace_of_one_sub_env():
    two_steps = {"min_length": 2, "max_length": 2}
    with config(num_envs=1, env_config=two_steps).callbacks(Tracing).build_algo() as algo:
        algo.env_runner.sample(num_timesteps=3)
        algo.env_runner.sample(num_timesteps=1)
        trace = algo.env_runner.callbacks.objects[0].trace
    first, second = "training-0-0", "training-0-1"
    assert trace == [
        ("created", first, 0, 0, 0),
        ("start", first, 0, 0, 1),
        ("step", first, 0, 1, 2),
        ("step", first, 0, 2, 3),
        ("end", first, 0, 2, 3),
        ("created", second, 0, 0, 0),
        ("start", second, 0, 0, 1),
        ("step", second, 0, 1, 2),
        ("sample end", 3),
        ("step", second, 0, 2, 2),  # a chunk of its own: its observations begin at the cut
        ("end", second, 0, 2, 2),
        ("sample end", 1),
    ]


def test_a_one_step_episode_has_all_its_events():
    one_step = {"min_length": 1, "max_length": 1}
    with config(num_envs=1, env_config=one_step).callbacks(Tracing).build_algo() as algo:
        algo.env_runner.sample(num_timesteps=2)
        trace = algo.env_runner.callbacks.objects[0].trace
    each = ["created", "start", "step", "end"]
    assert [line[0] for line in trace] == [*each, *each, "sample end"]


def test_in_a_vector_step_all_sub_envs_step_and_then_tell_one_after_the_other():
    lengths = {"min_length": 1, "max_length": 1}
    with config(num_envs=2, env_config=lengths).callbacks(Tracing).build_algo() as algo:
        algo.env_runner.sample(num_timesteps=4)
        trace = algo.env_runner.callbacks.objects[0].trace
    beginning = [("created", 0), ("start", 0), ("created", 1), ("start", 1)]
    step = [("step", 0), ("end", 0), ("created", 0), ("start", 0),
            ("step", 1), ("end", 1), ("created", 1), ("start", 1)]  # fmt: skip
    last = [("step", 0), ("end", 0), ("step", 1), ("end", 1)]
    assert [(line[0], line[2]) for line in trace[:-1]] == [*beginning, *step, *last]


def test_every_event_gets_exactly_its_documented_arguments():
    seen = {}
    kinds = {}

    def listener(event):
        def note(**arguments):
            seen[event] = set(arguments)
            kinds.update({name: type(value).__name__ for name, value in arguments.items()})

        return note

    events = [
        "on_sub_environment_created",
        "on_environment_created",
        "on_create_policy",
        "on_sample_end",
        *EPISODE_EVENTS,
    ]
    made = config(env_config={"max_length": 3})
    made.callbacks(**{event: listener(event) for event in events})
    with made.build_algo() as algo:
        algo.env_runner.sample(num_timesteps=20)
        assert {name: set(EVENTS[name].arguments) for name in events} == seen
        assert kinds["env_runner"] == "SingleAgentEnvRunner"
        assert kinds["env"] == "VectorEnv"
        assert kinds["metrics_logger"] == "MetricsLogger"
        assert kinds["env_context"] == "EnvContext"
        assert kinds["prev_episode_chunks"] == "list"


@pytest.mark.process
@pytest.mark.parametrize("num_env_runners", [0, 1])
def test_the_end_of_an_episode_shows_all_of_it_over_cut_chunks(num_env_runners):
    def on_end(episode, prev_episode_chunks, metrics_logger):
        earlier = sum(sum(chunk.get_rewards()) for chunk in prev_episode_chunks)
        here = float(np.sum(episode.get_rewards()))
        assert episode.get_return() == earlier + here == episode.t == 12.0
        starts = [chunk.t_started for chunk in (*prev_episode_chunks, episode)]
        assert starts == sorted(starts)
        assert starts[0] == 0
        assert {chunk.id_ for chunk in prev_episode_chunks} <= {episode.id_}
        metrics_logger.log_value("num_chunks", len(starts), reduce="max")

    twelve_steps = {"min_length": 12, "max_length": 12}
    made = config(num_env_runners, num_envs=4, env_config=twelve_steps, train_batch_size=20)
    with made.callbacks(on_episode_end=on_end).build_algo() as algo:
        results = [algo.train() for _ in range(3)]
    assert results[-1]["env_runners/num_chunks"] == 3
    assert results[-1]["env_runners/episode_return_mean"] == 12.0
    assert results[-1]["env_runners/episode_len_mean"] == 12.0
    assert results[-1]["env_runners/num_episodes_lifetime"] == 4


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


def test_a_sub_env_without_work_has_no_events():
    with config(num_envs=3).callbacks(Tracing).build_algo() as algo:
        algo.env_runner.sample(num_timesteps=2)
        trace = algo.env_runner.callbacks.objects[0].trace
    assert {line[2] for line in trace[:-1]} == {0, 1}


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
