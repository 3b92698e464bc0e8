"""Signs that learning goes wrong: what is looked at in every result, and what to change.

A *sign* is a figure of one iteration beyond its threshold; results show those that are there. A
*finding* is a sign that stayed for several iterations in a row, and that nothing excuses: many
signs mean nothing while the return rises. It is reported once in a run: by a warning in the log, by
the report page, by `local-trainer check`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import gymnasium as gym
import numpy as np

from callbacks.ready_made.metric_values import as_number, number_at, numbers_in, value_at
from trainer.learners.learner import GRADIENT_NORM

SECTION: Final = "learning_signs"
"""The key of results: figures by module and sign."""

OF_RUN: Final = "__all_modules__"
"""Stands in the place of the module for what is of the whole run."""

_LOG_STD_ENTROPY: Final = 0.5 * math.log(2.0 * math.pi * math.e)
"""Entropy of a Gaussian with deviation 1, in nats."""


@dataclass(frozen=True, kw_only=True)
class Situation:
    """What is looked at: one module after one iteration, or the whole run.

    Attributes:
        metrics: of the module's last update; empty if there was none.
        env_runners: that section of the result.
        num_updates: of the module, so far.
        num_env_slots: envs that sample at the same time.
        setting: a setting of the module by its name; None if its algorithm has no such setting.
        action_space: what the policy emits; None if entropies say nothing, as with action masks.
        shares_layers: policy and value function read the features of the same layers.
    """

    metrics: Mapping[str, Any]
    env_runners: Mapping[str, Any]
    num_updates: int
    num_env_slots: int
    setting: Callable[[str], Any]
    action_space: gym.Space[Any] | None = None
    shares_layers: bool = False

    def metric(self, name: str) -> float:
        """A number of the last update; NaN if there is none, so that no comparison holds."""
        return _or_nan(as_number(self.metrics.get(name)))

    @property
    def are_returns_alike(self) -> bool:
        """Whether all of the last episodes were paid the same."""
        low, high = (self.env_runners[f"episode_return_{of}"] for of in ("min", "max"))
        return bool(low == high)

    @property
    def are_values_of_returns(self) -> bool:
        """Whether a value and a return can be compared: one agent, rewards as the env pays them."""
        is_changed = self.setting("normalize_rewards") or self.setting("clip_rewards")
        return has_one_agent(self.env_runners) and not is_changed


def has_one_agent(env_runners: Any) -> bool:
    """Whether returns are those of one agent."""
    agents = value_at({"env_runners": env_runners}, "env_runners/agent_episode_return_mean")
    return not isinstance(agents, Mapping) or len(agents) <= 1


def _or_nan(number: float | None) -> float:
    return math.nan if number is None else number


@dataclass(frozen=True, kw_only=True)
class Check:
    """One thing that is looked at.

    Attributes:
        figure: the figure, if it is beyond the threshold; else None.
        num_iterations: how many in a row make a finding; those without an update do not count.
        text: a sentence with `{figure}`.
        advice: what to change.
        source: where the threshold comes from.
        is_certain: nothing excuses it: a return that rises would rise more without.
        is_of_run: it is looked at once, not for each module.
    """

    figure: Callable[[Situation], float | None]
    num_iterations: int
    text: str
    advice: str
    source: str
    is_certain: bool = False
    is_of_run: bool = False


# ---- figures


def _when(value: float, condition: bool) -> float | None:
    return value if condition else None


def _above(name: str, threshold: float) -> Callable[[Situation], float | None]:
    return lambda now: _when(now.metric(name), now.metric(name) > threshold)


def _endless(now: Situation) -> float | None:
    steps = now.env_runners["num_env_steps_sampled_lifetime"]
    is_long = steps >= 10_000 * now.num_env_slots
    return _when(steps, is_long and not now.env_runners["num_episodes_lifetime"])


def _alike(now: Situation) -> float | None:
    runners = now.env_runners
    return _when(
        runners["episode_return_mean"],
        now.are_returns_alike and has_one_agent(runners) and runners["num_episodes_lifetime"] >= 20,
    )


def _never_learns(now: Situation) -> float | None:
    starts = now.setting("num_steps_sampled_before_learning_starts")
    if starts is None or now.num_updates:
        return None
    steps = now.env_runners["num_env_steps_sampled_lifetime"]
    return _when(steps, steps >= min(100_000, starts + 10_000))


def _paid(now: Situation) -> float:
    """The mean reward of a step, times the steps that a discounted return counts."""
    runners = now.env_runners
    per_step = abs(runners["episode_return_mean"]) / max(1.0, runners["episode_len_mean"])
    return float(per_step / max(1.0 - now.setting("gamma"), 1e-4))


def _diverging_values(now: Situation) -> float | None:
    """Values far beyond what any episode was paid, also if it went on for ever."""
    if not now.are_values_of_returns or "logps" in now.metrics:  # SAC's have entropies in them
        return None
    runners = now.env_runners
    paid = max(abs(runners["episode_return_min"]), abs(runners["episode_return_max"]))
    values = abs(now.metric("qf_mean"))
    return _when(values, values > 5.0 * max(paid, _paid(now), 1.0))


def _large_rewards(now: Situation) -> float | None:
    error = math.sqrt(max(0.0, now.metric("vf_loss_unclipped")))
    if 1000.0 < error < math.inf and not now.setting("normalize_rewards"):
        return error
    is_large = "qf_mean" in now.metrics and now.are_values_of_returns and _paid(now) > 10_000.0
    return _when(_paid(now), is_large)


def _large_observations(now: Situation) -> float | None:
    size = now.metric("obs_magnitude")
    return _when(size, size > 50.0 and now.setting("observation_filter") == "NoFilter")


def _entropy_share(now: Situation) -> float:
    """The entropy as a share of the largest there is; NaN for spaces of numbers."""
    space, largest = now.action_space, 0.0
    if isinstance(space, gym.spaces.Discrete):
        largest = math.log(space.n)
    elif isinstance(space, gym.spaces.MultiDiscrete):
        largest = float(np.log(space.nvec).sum())
    return now.metric("entropy") / largest if largest else math.nan


def _deviation(now: Situation) -> float:
    """The geometric mean of a Gaussian's deviations, in halves of the space; NaN for others."""
    space = now.action_space
    if not isinstance(space, gym.spaces.Box) or "logps" in now.metrics:  # SAC's is squashed
        return math.nan
    is_bounded = space.bounded_below & space.bounded_above
    halves = np.where(is_bounded, (space.high.astype(float) - space.low) / 2.0, 1.0)
    per_number = now.metric("entropy") / max(1, halves.size) - np.log(halves).mean()
    return math.exp(min(per_number - _LOG_STD_ENTROPY, 50.0))


def _collapsed(now: Situation) -> float | None:
    share, deviation = _entropy_share(now), _deviation(now)
    return _when(now.metric("entropy"), share < 0.01 or deviation < 0.01)


def _stays_random(now: Situation) -> float | None:
    coefficient = now.metric("curr_entropy_coeff")
    is_random = _entropy_share(now) > 0.99 or _deviation(now) > 5.0
    return _when(coefficient, coefficient >= 0.05 and is_random)


def _kl(now: Situation) -> float | None:
    kl = now.metric("mean_kl_loss")
    target = now.setting("kl_target") if now.setting("use_kl_loss") else None
    return _when(kl, kl > max(0.2, 10.0 * (target or 0.0)))


def _clipped_values(now: Situation) -> float | None:
    # Gradients of large value errors spoil layers that the policy reads: 2 CartPoles with shared
    # layers learn faster with the clip (784 against 511, the mean return of 300,000 steps).
    share = now.metric("vf_clip_fraction")
    return _when(share, share > 0.5 and not now.shares_layers)


def _clipped(now: Situation) -> float | None:
    share = now.metric("clip_fraction")
    is_held = share > 0.3 and now.metric("mean_kl_loss") < 1e-4  # by a clip of next to nothing
    return _when(share, share > 0.8 or is_held)


def _gradients(now: Situation) -> float | None:
    limit, norm = now.setting("grad_clip"), now.metric(GRADIENT_NORM)
    is_of_norm = limit and now.setting("grad_clip_by") == "global_norm"
    return _when(norm / limit, norm > 1000.0 * limit) if is_of_norm else None


def _has_cause(now: Situation) -> bool:
    """Whether it is known why nothing moves any more."""
    return _collapsed(now) is not None or _gradients(now) is not None


def _unchanged(now: Situation) -> float | None:
    lr = now.metric("default_optimizer_learning_rate")
    # The divergence is measured before each step: of a single step it is 0.
    has_steps = (now.setting("num_epochs") or 0) > 1
    is_still = now.metric("mean_kl_loss") < 1e-6 and lr > 0.0 and not _has_cause(now)
    return _when(lr, has_steps and is_still)


def _unexplained(now: Situation) -> float | None:
    explained = now.metric("vf_explained_var")
    is_known = now.are_returns_alike or _has_cause(now)  # why there is nothing to explain
    return _when(explained, explained < 0.0 and not is_known)


_HUANG: Final = "Huang et al. 2022, The 37 implementation details of PPO, details 12 and 37"
_OURS: Final = "our choice; the good runs of the learning campaign stay within it"

CHECKS: Final[Mapping[str, Check]] = MappingProxyType(
    {
        "episodes_never_end": Check(
            figure=_endless,
            num_iterations=1,
            text="No episode has ended in {figure:,.0f} env steps.",
            advice="Let the env terminate or truncate: environment(env_config=…) with a limit, or "
            "gymnasium.wrappers.TimeLimit. Returns are known, and envs reset, at an end only.",
            source="our choice: 10,000 env steps of each env, five times the longest limit of "
            "gymnasium's own",
            is_certain=True,
            is_of_run=True,
        ),
        "returns_never_differ": Check(
            figure=_alike,
            num_iterations=100,
            text="All episodes are paid {figure:g}: there is nothing to learn from.",
            advice="Begin with an easier task, reward steps towards the goal, or explore more "
            "(docs/curriculum.md, docs/exploration.md).",
            source="the lowest of the last returns is the highest",
            is_of_run=True,
        ),
        "never_learns_from_replay": Check(
            figure=_never_learns,
            num_iterations=1,
            text="No update was made in {figure:,.0f} env steps.",
            advice="Lower num_steps_sampled_before_learning_starts, and keep it below the capacity "
            "of the replay buffer.",
            source="100,000 env steps, the most that RL Baselines3 Zoo waits (DQN, Atari)",
            is_certain=True,
        ),
        "learning_rate_is_zero": Check(
            figure=lambda now: _when(0.0, now.metric("default_optimizer_learning_rate") == 0.0),
            num_iterations=10,
            text="The learning rate is 0.",
            advice="Raise lr; if it is a schedule, let it end later. Those of a recipe end with "
            "its env steps.",
            source="nothing is learnt",
            is_certain=True,
        ),
        "values_diverge": Check(
            figure=_diverging_values,
            num_iterations=5,
            text="The mean Q value is {figure:,.3g}, five times what any episode could be paid.",
            advice="Lower lr, copy the target network less often, or set double_q=True.",
            source="our choice; overestimation: van Hasselt et al. 2016, figure 3",
        ),
        "rewards_beg_for_normalization": Check(
            figure=_large_rewards,
            num_iterations=5,
            text="Returns, or the errors in predicting them, have a size of {figure:,.0f}.",
            advice="Set environment(normalize_rewards=True), or scale the rewards in the env.",
            source=f"Andrychowicz et al. 2021, section 3.3; {_OURS}",
            is_certain=True,
        ),
        "observations_beg_for_normalization": Check(
            figure=_large_observations,
            num_iterations=5,
            text="A number of the observations has the size {figure:,.0f}.",
            advice='Set env_runners(observation_filter="MeanStdFilter").',
            source=f"Andrychowicz et al. 2021, section 3.3; {_OURS}",
            is_certain=True,
        ),
        "value_loss_beyond_clip": Check(
            figure=_clipped_values,
            num_iterations=10,
            text="{figure:.0%} of the rows have a value error beyond vf_clip_param and no "
            "gradient: the value function hardly learns.",
            advice="Set environment(normalize_rewards=True), or vf_clip_param=None.",
            source="most of the rows",
            is_certain=True,
        ),
        "updates_change_nothing": Check(
            figure=_unchanged,
            num_iterations=20,
            text="Updates leave the policy as it is: KL below 1e-6 with lr={figure:g}.",
            advice="Raise lr.",
            source=_OURS,
        ),
        "policy_stays_random": Check(
            figure=_stays_random,
            num_iterations=20,
            text="The policy stays as random as it can be, with entropy_coeff={figure:g}.",
            advice="Lower entropy_coeff; 0 to 0.01 is usual.",
            source=f"99 % of the largest entropy; {_OURS}",
        ),
        "kl_far_above_target": Check(
            figure=_kl,
            num_iterations=2,
            text="An update moves the policy by {figure:.3g} nats of KL; 0.01 to 0.05 is usual.",
            advice="Lower lr or num_epochs, or give clip_param about 0.2.",
            source=_HUANG,
        ),
        "ratio_clipped_everywhere": Check(
            figure=_clipped,
            num_iterations=5,
            text="{figure:.0%} of the rows have a probability ratio outside clip_param.",
            advice="Lower lr or num_epochs, or raise clip_param to about 0.2.",
            source=_HUANG,
        ),
        "actions_at_bounds": Check(
            figure=_above("actions_at_bounds", 0.8),
            num_iterations=5,
            text="{figure:.0%} of all actions are at or beyond the bounds of the action space.",
            advice="Lower log_std_init or entropy_coeff, or set normalize_actions=True.",
            source=_OURS,
        ),
        "entropy_collapsed": Check(
            figure=_collapsed,
            num_iterations=5,
            text="The policy hardly explores any more: entropy {figure:.3g} nats.",
            advice="Lower lr, or raise entropy_coeff to about 0.01.",
            source=f"1 % of the largest entropy, or deviations below 0.01; {_OURS}",
        ),
        "gradients_always_clipped": Check(
            figure=_gradients,
            num_iterations=10,
            text="Gradients are {figure:,.0f} times grad_clip: what is left of them is noise.",
            advice="Raise grad_clip; 0.5 to 40 is usual.",
            source=_OURS,
        ),
        "values_explain_nothing": Check(
            figure=_unexplained,
            num_iterations=20,
            text="The value function predicts worse than a constant: explained variance "
            "{figure:.2g}.",
            advice="Raise vf_loss_coeff or lr, or normalise rewards and observations.",
            source="an explained variance below 0",
        ),
    }
)
"""By name; causes stand before what follows from them."""


def signs_of(now: Situation, *, of_run: bool = False) -> dict[str, float]:
    """The figures that are beyond their thresholds, by the name of the check.

    Args:
        now: what is looked at.
        of_run: the whole run, and not a module.
    """
    found = {name: check.figure(now) for name, check in CHECKS.items() if check.is_of_run == of_run}
    return {name: float(figure) for name, figure in found.items() if figure is not None}


# ---- findings


@dataclass(frozen=True)
class Finding:
    """A sign that stayed while the return did not rise.

    Attributes:
        check: a key of `CHECKS`.
        module_id: of the module.
        iteration: when it was found.
        figure: at that time.
    """

    check: str
    module_id: str
    iteration: int
    figure: float

    @property
    def advice(self) -> str:
        """What to change."""
        return CHECKS[self.check].advice

    def __str__(self) -> str:
        text = CHECKS[self.check].text.format(figure=self.figure)
        return f"{self.check} ({self.module_id}, iteration {self.iteration}): {text} {self.advice}"


class LearningWatch:
    """Looks at the results of a run, in order, and finds what is to be reported.

    It remembers the first returns and the best mean one. A run that was restored begins in the
    middle, where a policy that has learnt looks like one that does not: only what is certain is
    found then. `findings` of all its rows finds the rest.
    """

    def __init__(self) -> None:
        self._begin(0)

    def _begin(self, iteration: int) -> None:
        self._iteration = iteration
        self._is_from_first = iteration == 0
        self._first = self._margin = self._best = math.nan
        self._highest, self._have_differed = -math.inf, False
        self._in_a_row: dict[tuple[str, str], int] = {}
        self._reported: set[tuple[str, str]] = set()

    def take(self, result: Mapping[str, Any]) -> list[Finding]:
        """What is found now and was not before."""
        iteration = int(number_at(result, "training_iteration") or 0)
        if iteration <= self._iteration:
            self._begin(iteration - 1)
        elif iteration > self._iteration + 1:  # results are missing
            self._in_a_row = {}
            self._is_from_first = self._is_from_first and self._iteration > 0
        self._iteration = iteration
        signs = result.get(SECTION)
        present = {
            (id_, name): figure
            for path, figure in (numbers_in(signs) if isinstance(signs, Mapping) else ())
            for id_, _, name in (path.rpartition("/"),)
            if name in CHECKS and not math.isnan(figure)
        }
        kept = {key: n for key, n in self._in_a_row.items() if not _was_updated(result, key[0])}
        self._in_a_row = {**kept, **{key: self._in_a_row.get(key, 0) + 1 for key in present}}
        is_excused = self._is_excused(result)
        new = [
            (id_, name)
            for name, check in CHECKS.items()
            if check.is_certain or not is_excused
            for id_, sign in present
            if sign == name and self._in_a_row[id_, name] >= check.num_iterations
            if (id_, name) not in self._reported
        ]
        self._reported.update(new)
        return [Finding(name, id_, iteration, present[id_, name]) for id_, name in new]

    def _is_excused(self, result: Mapping[str, Any]) -> bool:
        """Whether the return has risen, or says nothing, or nothing is left to learn.

        It has risen if the best mean is above the first one by more than chance gives, and the mean
        is in the upper half of that. Nothing is left if all have the highest return seen, after
        some had less.
        """
        mean, low, high = (
            _or_nan(number_at(result, f"env_runners/episode_return_{of}"))
            for of in ("mean", "min", "max")
        )
        if math.isnan(self._first):
            num_episodes = number_at(result, "env_runners/num_episodes_lifetime") or 1.0
            self._first = self._best = mean
            self._margin = 2.0 * (high - low) / math.sqrt(max(1.0, num_episodes))
        self._best = max(self._best, mean)
        risen = self._best - self._first
        self._have_differed = self._have_differed or low < high
        self._highest = max(self._highest, high)
        if self._have_differed and low == self._highest:
            return True
        if risen > self._margin and mean > self._first + 0.5 * risen:
            return True
        is_of_one_task = has_one_agent(result.get("env_runners")) and "curriculum" not in result
        return not (self._is_from_first and is_of_one_task) or math.isnan(mean)


def _was_updated(result: Mapping[str, Any], module_id: str) -> bool:
    loss = value_at(result, f"learners/{module_id}/total_loss")
    return module_id == OF_RUN or loss is not None


def findings(results: Iterable[Mapping[str, Any]]) -> list[Finding]:
    """What is found in the results of a run, from its first iteration on."""
    watch = LearningWatch()
    return [finding for result in results for finding in watch.take(result)]
