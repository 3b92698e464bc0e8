"""Signs that learning goes wrong: thresholds, how long they must stay, what excuses them."""

import re
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.small_runs import small_ppo
from tests.unit.test_modules_action_masks import LinearModule
from trainer import RLModuleSpec
from trainer.learners.learning_checks import (
    CHECKS,
    SECTION,
    Situation,
    findings,
    signs_of,
)

ENV_RUNNERS = {
    "episode_return_mean": 20.0,
    "episode_return_min": 10.0,
    "episode_return_max": 50.0,
    "episode_len_mean": 20.0,
    "num_env_steps_sampled_lifetime": 20_000,
    "num_episodes_lifetime": 1000,
    "agent_episode_return_mean": {"default_agent": 20.0},
}
SETTINGS = {
    "gamma": 0.99,
    "observation_filter": "NoFilter",
    "normalize_rewards": False,
    "grad_clip": 0.5,
    "grad_clip_by": "global_norm",
    "use_kl_loss": True,
    "kl_target": 0.05,
    "vf_clip_param": 10.0,
    "clip_rewards": None,
    "num_epochs": 10,
}
SOUND = {
    "entropy": 0.5,
    "mean_kl_loss": 0.01,
    "clip_fraction": 0.1,
    "vf_clip_fraction": 0.1,
    "vf_loss": 1.0,
    "vf_loss_unclipped": 1.0,
    "vf_explained_var": 0.5,
    "obs_magnitude": 1.0,
    "curr_entropy_coeff": 0.01,
    "default_optimizer_learning_rate": 1e-3,
    "gradients_default_optimizer_global_norm": 1.0,
}
BOX = gym.spaces.Box(-1.0, 1.0, (3,))


def signs(metrics=SOUND, env_runners=(), settings=(), *, of_run=False, **more):
    now = Situation(
        metrics=metrics,
        env_runners={**ENV_RUNNERS, **dict(env_runners)},
        setting={**SETTINGS, **dict(settings)}.get,
        **{
            "num_updates": 100,
            "num_env_slots": 4,
            "action_space": gym.spaces.Discrete(2),
            **more,
        },
    )
    return set(signs_of(now, of_run=of_run))


def test_a_sound_update_shows_no_sign():
    assert signs() == set()
    assert signs({}) == set()


BEYOND = {
    "value_loss_beyond_clip": ({"vf_clip_fraction": 0.6}, {"vf_clip_fraction": 0.4}),
    "kl_far_above_target": ({"mean_kl_loss": 0.6}, {"mean_kl_loss": 0.4}),
    "ratio_clipped_everywhere": ({"clip_fraction": 0.9}, {"clip_fraction": 0.7}),
    "entropy_collapsed": ({"entropy": 0.005}, {"entropy": 0.01}),
    "policy_stays_random": (
        {"entropy": 0.692, "curr_entropy_coeff": 0.1},
        {"entropy": 0.692, "curr_entropy_coeff": 0.01},
    ),
    "updates_change_nothing": ({"mean_kl_loss": 1e-8}, {"mean_kl_loss": 1e-5}),
    "learning_rate_is_zero": (
        {"default_optimizer_learning_rate": 0.0},
        {"default_optimizer_learning_rate": 1e-12},
    ),
    "gradients_always_clipped": (
        {"gradients_default_optimizer_global_norm": 600.0},
        {"gradients_default_optimizer_global_norm": 400.0},
    ),
    "rewards_beg_for_normalization": ({"vf_loss_unclipped": 1.1e6}, {"vf_loss_unclipped": 9e5}),
    "observations_beg_for_normalization": ({"obs_magnitude": 60.0}, {"obs_magnitude": 40.0}),
    "actions_at_bounds": ({"actions_at_bounds": 0.9}, {"actions_at_bounds": 0.7}),
    "values_explain_nothing": ({"vf_explained_var": -0.1}, {"vf_explained_var": 0.0}),
    "values_diverge": ({"qf_mean": 550.0}, {"qf_mean": -450.0}),
}


@pytest.mark.parametrize("check", BEYOND)
def test_a_sign_is_there_beyond_its_threshold_alone(check):
    beyond, within = BEYOND[check]
    assert signs({**SOUND, **beyond}) == {check}
    assert signs({**SOUND, **within}) == set()


def test_a_clip_that_holds_the_policy_still_is_a_sign():
    held = {**SOUND, "clip_fraction": 0.4, "mean_kl_loss": 2e-5}
    assert signs(held) == {"ratio_clipped_everywhere"}
    assert signs({**held, "mean_kl_loss": 1e-3}) == signs({**held, "clip_fraction": 0.2}) == set()


def test_where_layers_are_shared_a_clip_of_value_errors_may_be_good():
    assert signs({**SOUND, "vf_clip_fraction": 1.0}, shares_layers=True) == set()


def test_signs_of_sampling():
    def of_run(env_runners=(), **more):
        return signs({}, env_runners, of_run=True, **more)

    never = {"num_episodes_lifetime": 0, "num_env_steps_sampled_lifetime": 40_000}
    assert of_run(never) == {"episodes_never_end"}
    assert of_run(never, num_env_slots=5) == set()
    assert of_run() == set()
    alike = {"episode_return_min": 20.0, "episode_return_max": 20.0}
    assert of_run(alike) == {"returns_never_differ"}
    assert of_run({**alike, "num_episodes_lifetime": 19}) == set()
    of_two = {"agent_episode_return_mean": {"a": 30.0, "b": -10.0}}
    assert of_run({**alike, **of_two}) == set(), "what they earn together says nothing"


def test_waiting_for_the_replay_buffer_is_a_sign_beyond_what_is_asked_for():
    def waits(starts, steps):
        settings = {"num_steps_sampled_before_learning_starts": starts}
        return signs({}, {"num_env_steps_sampled_lifetime": steps}, settings, num_updates=0)

    assert waits(10_000, 19_999) == set()
    assert waits(10_000, 20_000) == {"never_learns_from_replay"}
    assert waits(10**6, 99_999) == set()
    assert waits(10**6, 100_000) == {"never_learns_from_replay"}


def test_values_are_compared_with_returns_only_where_both_are_of_the_same():
    large, paid = {"qf_mean": 1.0}, {"episode_return_mean": 2100.0, "episode_return_max": 2500.0}
    diverging = {"qf_mean": 1e5}
    assert signs(large, paid) == {"rewards_beg_for_normalization"}
    assert signs(diverging) == {"values_diverge"}
    of_two = {"agent_episode_return_mean": {"a": 1.0, "b": -1.0}}
    for changed in ({"clip_rewards": True}, {"normalize_rewards": True}):
        assert signs(large, paid, changed) == signs(diverging, (), changed) == set()
    assert signs(large, {**paid, **of_two}) == signs(diverging, of_two) == set()
    assert signs({**diverging, "logps_mean": 1.0, "logps": 1.0}) == set(), "SAC's have entropies"


def test_where_all_episodes_are_paid_alike_there_is_nothing_to_explain():
    alike = {"episode_return_min": 20.0, "episode_return_max": 20.0}
    both = {**SOUND, "entropy": 0.0, "vf_explained_var": -1.0}
    assert signs(both, alike) == {"entropy_collapsed"}


def test_what_no_longer_moves_is_not_to_move_faster():
    still = {**SOUND, "mean_kl_loss": 0.0, "vf_explained_var": -1.0}
    assert signs({**still, "entropy": 0.0}) == {"entropy_collapsed"}
    norm = {"gradients_default_optimizer_global_norm": 600.0}
    assert signs({**still, **norm}) == {"gradients_always_clipped"}
    assert signs(still) == {"updates_change_nothing", "values_explain_nothing"}


def test_a_single_step_has_no_divergence_to_look_at():
    unchanged = {**SOUND, "mean_kl_loss": 0.0}
    assert signs(unchanged) == {"updates_change_nothing"}
    assert signs(unchanged, settings={"num_epochs": 1}) == set()


def test_what_is_normalised_does_not_beg_for_it():
    large = {**SOUND, "vf_loss_unclipped": 1e9, "obs_magnitude": 1e3}
    normalised = {"normalize_rewards": True, "observation_filter": "MeanStdFilter"}
    assert signs(large, settings=normalised) == set()


def test_the_entropy_of_numbers_is_that_of_a_deviation():
    def entropy(deviation):
        return {**SOUND, "entropy": 3 * (0.5 * np.log(2 * np.pi * np.e) + np.log(deviation))}

    assert signs(entropy(0.009), action_space=BOX) == {"entropy_collapsed"}
    assert signs(entropy(0.011), action_space=BOX) == set()
    assert signs({**entropy(6.0), "curr_entropy_coeff": 0.1}, action_space=BOX) == {
        "policy_stays_random"
    }
    narrow = gym.spaces.Box(-0.01, 0.01, (3,))
    assert signs(entropy(0.005), action_space=narrow) == set(), "half of the half of the space"
    assert signs(entropy(0.009), action_space=None) == set(), "with action masks"


def test_the_page_tells_every_check():
    page = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \|.*\| (\d+) \| (yes)? ?\|$", page, flags=re.MULTILINE)
    assert [(name, int(count), bool(certain)) for name, count, certain in rows] == [
        (name, check.num_iterations, check.is_certain) for name, check in CHECKS.items()
    ]


# ---- findings


def row(iteration, mean, *, updated=True, spread=5.0, **found):
    return {
        "training_iteration": iteration,
        "env_runners": {
            "episode_return_mean": mean,
            "episode_return_min": mean - spread,
            "episode_return_max": mean + spread,
            "num_episodes_lifetime": 4 * iteration,
            "agent_episode_return_mean": {"default_agent": mean},
        },
        "learners": {"default_policy": {"total_loss": 1.0} if updated else {}},
        SECTION: {"default_policy": found},
    }


def told(rows):
    return [(each.check, each.iteration) for each in findings(rows)]


def test_a_sign_that_stays_is_told_once():
    rows = [row(i, 20.0, ratio_clipped_everywhere=0.9) for i in range(1, 30)]
    assert told(rows) == [("ratio_clipped_everywhere", 5)]


def test_a_sign_that_comes_and_goes_is_not_told():
    sign = {"ratio_clipped_everywhere": 0.9}
    rows = [row(i, 20.0, **(sign if i % 4 else {})) for i in range(1, 30)]
    assert told(rows) == []


def test_a_return_that_rises_excuses_what_is_not_certain():
    both = {"ratio_clipped_everywhere": 0.9, "learning_rate_is_zero": 1.0}
    rows = [row(i, 20.0 * i, **both) for i in range(1, 30)]
    assert told(rows) == [("learning_rate_is_zero", 10)]


def paid_alike(rows):
    for each in rows:
        mean = each["env_runners"]["episode_return_mean"]
        each["env_runners"] |= {"episode_return_min": mean, "episode_return_max": mean}
    return rows


def test_where_all_came_to_be_paid_the_best_nothing_is_left_to_learn():
    first = [row(1, 15.0, entropy_collapsed=0.0)]
    best = [row(i, 21.0, entropy_collapsed=0.0) for i in range(2, 30)]
    assert told([*first, *paid_alike(best)]) == []


def test_the_best_is_the_highest_of_any_episode_whatever_a_mean_is_rounded_to():
    low, high = -196.68727392107257, np.nextafter(-196.68727392107257, 0.0)
    best = [row(i, high, entropy_collapsed=0.0) for i in range(2, 30)]
    for each in best:
        each["env_runners"] |= {"episode_return_min": low, "episode_return_max": low}
    assert told([row(1, -300.0, entropy_collapsed=0.0), *best]) == []
    once_higher = row(1, -200.0, entropy_collapsed=0.0)
    once_higher["env_runners"]["episode_return_max"] = -100.0
    assert told([once_higher, *best]) == [("entropy_collapsed", 5)]


@pytest.mark.parametrize("first", [[], [row(1, 20.0)]], ids=["from the first on", "again"])
def test_where_all_are_paid_the_worst_it_is_told(first):
    worst = [row(i, -500.0, entropy_collapsed=0.0) for i in range(len(first) + 1, 30)]
    assert told([*first, *paid_alike(worst)]) == [("entropy_collapsed", len(first) + 5)]


def test_a_rise_within_what_varied_at_first_excuses_nothing():
    rows = [row(i, 20.0 + 0.3 * i, ratio_clipped_everywhere=0.9) for i in range(1, 30)]
    assert told(rows) == [("ratio_clipped_everywhere", 5)]


def test_a_return_that_falls_again_is_told():
    means = [*(50.0 * i for i in range(1, 20)), *([20.0] * 5)]
    rows = [row(i, mean, ratio_clipped_everywhere=0.9) for i, mean in enumerate(means, 1)]
    assert told(rows) == [("ratio_clipped_everywhere", 20)]


def test_before_a_return_is_known_only_what_is_certain_is_told():
    signs = {"ratio_clipped_everywhere": 0.9, "episodes_never_end": 5000.0}
    rows = [row(i, float("nan"), **signs) for i in range(1, 30)]
    assert told(rows) == [("episodes_never_end", 1)]


def test_causes_are_told_before_what_follows_from_them():
    both = {"entropy_collapsed": 0.0, "rewards_beg_for_normalization": 2000.0}
    rows = [row(i, 20.0, **both) for i in range(1, 6)]
    assert told(rows) == [("rewards_beg_for_normalization", 5), ("entropy_collapsed", 5)]


def test_of_a_run_that_was_restored_only_what_is_certain_is_told():
    both = {"learning_rate_is_zero": 1.0, "entropy_collapsed": 0.0}
    rows = [row(i, 20.0, **both) for i in range(7, 40)]
    assert told(rows) == [("learning_rate_is_zero", 16)]


def test_a_gap_begins_the_count_anew_and_nothing_else():
    both = {"learning_rate_is_zero": 1.0, "gradients_always_clipped": 1e4}
    rows = [row(i, 20.0, **both) for i in (*range(1, 10), *range(20, 40))]
    assert told(rows) == [("learning_rate_is_zero", 29), ("gradients_always_clipped", 29)]


def test_what_goes_back_is_another_run():
    both = {"learning_rate_is_zero": 1.0, "ratio_clipped_everywhere": 0.9}
    rows = [row(i, 20.0, **both) for i in (*range(1, 10), *range(5, 40))]
    assert told(rows) == [("ratio_clipped_everywhere", 5), ("learning_rate_is_zero", 14)]


def test_what_cannot_be_a_figure_is_no_sign():
    rows = [row(i, 20.0, learning_rate_is_zero=float("nan")) for i in range(1, 30)]
    assert told(rows) == []


def test_iterations_without_an_update_do_not_count():
    sign = {"ratio_clipped_everywhere": 0.9}
    rows = [row(i, 20.0, updated=i % 3 == 0, **(sign if i % 3 == 0 else {})) for i in range(1, 30)]
    assert told(rows) == [("ratio_clipped_everywhere", 15)]


def test_success_and_failure_alone_can_rise():
    """Returns of 0 and 1: both are there at first, so no mean is ever beyond them."""
    rates = [0.2, 0.3, 0.9, *[1.0] * 30]
    rows = [row(i, rate, entropy_collapsed=0.0) for i, rate in enumerate(rates, 1)]
    for each in rows:
        each["env_runners"] |= {"episode_return_min": 0.0, "episode_return_max": 1.0}
        each["env_runners"]["num_episodes_lifetime"] += 20
    assert told(rows) == []
    assert told([row(i, 0.2, entropy_collapsed=0.0) for i in range(1, 9)]) != []


@pytest.mark.parametrize("name", ["several agents", "tasks"])
def test_where_returns_cannot_be_compared_only_what_is_certain_is_told(name):
    both = {"learning_rate_is_zero": 1.0, "entropy_collapsed": 0.0}
    rows = [row(i, 20.0, **both) for i in range(1, 40)]
    for each in rows:
        if name == "tasks":
            each["curriculum"] = {"task": "hard"}
        else:
            each["env_runners"]["agent_episode_return_mean"] = {"a": 10.0, "b": 10.0}
    assert told(rows) == [("learning_rate_is_zero", 10)]


def test_a_finding_says_what_was_seen_and_what_to_change():
    rows = [row(i, 20.0, value_loss_beyond_clip=0.98) for i in range(1, 11)]
    (found,) = findings(rows)
    assert str(found) == (
        "value_loss_beyond_clip (default_policy, iteration 10): 98% of the rows have a value error "
        "beyond vf_clip_param and no gradient: the value function hardly learns. Set "
        "environment(normalize_rewards=True), or vf_clip_param=None."
    )


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("figure", [0.0, -3, 1e300, 10**400, float("inf")], ids=range(5))
def test_every_finding_can_be_shown(check, figure):
    rows = [row(i, 20.0, **{check: figure}) for i in range(1, 110)]
    (found,) = findings(rows)
    assert check in str(found)


LEAVES = st.none() | st.booleans() | st.floats() | st.text(max_size=3) | st.integers()
TREES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*CHECKS, "a/b"]), inner)
    ),
    max_leaves=8,
)


@given(st.lists(st.tuples(TREES, TREES, TREES), max_size=12))
def test_rows_of_strangers_of_any_form_are_read(parts):
    rows = [
        {"training_iteration": i, "env_runners": runners, SECTION: found, "env": other}
        for i, (runners, found, other) in enumerate(parts, 1)
    ]
    rows += [{"training_iteration": of_any_type} for of_any_type, _, _ in parts]
    for found in findings(rows):
        assert str(found)


@pytest.mark.parametrize(
    ("spec", "model", "is_sign"),
    [
        (None, {}, True),
        (None, {"vf_share_layers": True}, False),
        (None, {"use_lstm": True, "lstm_cell_size": 4, "vf_share_layers": False}, True),
        (None, {"use_lstm": True, "lstm_cell_size": 4, "vf_share_layers": True}, False),
        (RLModuleSpec(module_class=LinearModule), {}, False),
    ],
    ids=["apart", "shared", "memory, apart", "memory, shared", "a user's"],
)
def test_a_value_loss_beyond_the_clip_is_a_sign_where_networks_are_apart(spec, model, is_sign):
    model = {"fcnet_hiddens": [8], **model}
    config = small_ppo(vf_clip_param=1e-9, model=model)
    if spec is not None:
        config.rl_module(rl_module_spec=spec, model_config={}).environment("Pendulum-v1")
    with config.build_algo() as algo:
        signs = algo.train().get(SECTION, {}).get("default_policy", {})
    assert ("value_loss_beyond_clip" in signs) == is_sign
