"""Signs that learning goes wrong: thresholds, how long they must stay, what excuses them."""

import re
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.learners.learning_checks import (
    CHECKS,
    SECTION,
    LearningWatch,
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
}
SOUND = {
    "entropy": 0.5,
    "mean_kl_loss": 0.01,
    "clip_fraction": 0.1,
    "vf_loss": 1.0,
    "vf_loss_unclipped": 1.0,
    "vf_explained_var": 0.5,
    "obs_magnitude": 1.0,
    "curr_entropy_coeff": 0.01,
    "default_optimizer_learning_rate": 1e-3,
    "gradients_default_optimizer_global_norm": 1.0,
}
BOX = gym.spaces.Box(-1.0, 1.0, (3,))


def signs(metrics=SOUND, env_runners=(), settings=(), **more):
    now = Situation(
        metrics=metrics,
        env_runners={**ENV_RUNNERS, **dict(env_runners)},
        setting={**SETTINGS, **dict(settings)}.get,
        **{
            "num_trained": 20_000,
            "num_env_slots": 4,
            "action_space": gym.spaces.Discrete(2),
            **more,
        },
    )
    return set(signs_of(now))


def test_a_sound_update_shows_no_sign():
    assert signs() == set()
    assert signs({}) == set()


BEYOND = {
    "value_loss_beyond_clip": ({"vf_loss": 5.0}, {"vf_loss": 4.9}),
    "kl_far_above_target": ({"mean_kl_loss": 0.6}, {"mean_kl_loss": 0.4}),
    "ratio_clipped_everywhere": ({"clip_fraction": 0.7}, {"clip_fraction": 0.5}),
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
    "values_diverge": ({"qf_mean": 1100.0}, {"qf_mean": -900.0}),
}


@pytest.mark.parametrize("check", BEYOND)
def test_a_sign_is_there_beyond_its_threshold_alone(check):
    beyond, within = BEYOND[check]
    assert signs({**SOUND, **beyond}) == {check}
    assert signs({**SOUND, **within}) == set()


def test_signs_of_sampling():
    assert signs(env_runners={"num_episodes_lifetime": 0}) == {"episodes_never_end"}
    assert signs(env_runners={"num_episodes_lifetime": 0}, num_env_slots=5) == set()
    late = {"num_steps_sampled_before_learning_starts": 10**6}
    assert signs({}, settings=late, num_trained=0) == {"never_learns_from_replay"}
    paid = {"episode_return_mean": 2100.0, "episode_return_max": 2500.0}
    assert signs({"qf_mean": 1.0}, paid) == {"rewards_beg_for_normalization"}


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


def test_the_page_tells_every_check():
    page = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \|.*\| (\d+) \| (yes)? ?\|$", page, flags=re.MULTILINE)
    assert [(name, int(count), bool(certain)) for name, count, certain in rows] == [
        (name, check.num_iterations, check.is_certain) for name, check in CHECKS.items()
    ]


# ---- findings


def row(iteration, mean, **found):
    return {
        "training_iteration": iteration,
        "env_runners": {
            "episode_return_mean": mean,
            "episode_return_min": mean - 5.0,
            "episode_return_max": mean + 5.0,
        },
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
    both = {"ratio_clipped_everywhere": 0.9, "value_loss_beyond_clip": 1.0}
    rows = [row(i, 20.0 * i, **both) for i in range(1, 30)]
    assert told(rows) == [("value_loss_beyond_clip", 10)]


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


def test_a_run_that_was_restored_is_not_judged():
    watch = LearningWatch()
    rows = [row(i, 20.0, value_loss_beyond_clip=1.0) for i in range(7, 40)]
    assert [found for each in rows for found in watch.take(each)] == []


def test_a_finding_says_what_was_seen_and_what_to_change():
    rows = [row(i, 20.0, value_loss_beyond_clip=0.98) for i in range(1, 11)]
    (found,) = findings(rows)
    assert str(found) == (
        "value_loss_beyond_clip (default_policy, iteration 10): The value loss is 98% of its limit "
        "vf_clip_param: most rows have no gradient, so the value function does not learn. Set "
        "vf_clip_param=None, or environment(normalize_rewards=True)."
    )


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("figure", [0.0, -3, 1e300, float("inf"), float("nan")])
def test_every_finding_can_be_shown(check, figure):
    rows = [row(i, 20.0, **{check: figure}) for i in range(1, 40)]
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
