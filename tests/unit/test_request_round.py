"""What is told of replacements, and what is left of requests that are dropped."""

import contextlib
from types import SimpleNamespace

import pytest

from tests.small_runs import small_ppo
from trainer import EnvRunnerGroup
from trainer.env_runners.messages import PolicySnapshot
from trainer.runner_group.plays import RequestAhead
from trainer.runner_group.rounds import Round, RoundResult, _is_logged, _rarely_logged


def place(num_restarts, *, in_evaluation):
    spec = SimpleNamespace(in_evaluation=in_evaluation)
    return SimpleNamespace(num_restarts=num_restarts, spec=spec)


def test_every_replacement_of_a_training_runner_is_told():
    assert all(_is_logged(place(number, in_evaluation=False)) for number in range(1, 500))
    assert _rarely_logged(place(100, in_evaluation=False)) == ""


def test_replacements_without_end_of_an_evaluation_runner_are_told_now_and_then():
    told = [number for number in range(1, 350) if _is_logged(place(number, in_evaluation=True))]
    assert told == [*range(1, 21), 100, 200, 300]
    assert _rarely_logged(place(19, in_evaluation=True)) == ""
    assert "replacement 20; from now on every 100th" in _rarely_logged(
        place(20, in_evaluation=True)
    )


# ---- requests ahead


class GivesUp(Round):
    """A round in which a runner is replaced, and begins other episodes at other positions."""

    def __init__(self, place, *, failure=None):
        super().__init__()
        self.place, self.failure = place, failure
        self.calls = []

    def ask(self, index, ask):
        self.calls.append(f"ask {index}")

    def advance(self, timeout_s):
        self.calls.append(f"advance, {self._is_wanted}")
        self.place.positions, self.place.is_ahead = ("others",), False
        if self.failure is not None:
            raise self.failure
        return self.calls.count(self.calls[-1]) == 2

    def end(self):
        self.calls.append("end")
        return RoundResult(num_restarts=1, num_episodes_lost=2, num_env_steps_lost=3)

    def abandon(self):
        self.calls.append(f"abandon, {self._is_wanted}")
        self.place.positions, self.place.is_ahead = ("others",), False


def ahead(failure=None):
    dropped = []
    round_ = GivesUp(SimpleNamespace(positions=("first",), is_ahead=False), failure=failure)
    asks = {1: None}
    request = RequestAhead(
        round_,
        {1: round_.place},
        lambda result, failure: dropped.append((result, failure)),
        requests={},
        asks=asks,
    )
    return request, round_, dropped


@pytest.mark.parametrize("failure", [None, RuntimeError("of an env")])
def test_a_request_ahead_that_is_finished_never_happened(failure):
    request, round_, dropped = ahead(failure)
    request.finish()
    advances = ["advance, False"] * (2 if failure is None else 1)
    assert round_.calls == ["ask 1", *advances, "end"]
    assert dropped == [(RoundResult(num_restarts=1), failure)], "its losses were put back, too"
    assert (round_.place.positions, round_.place.is_ahead) == (("first",), True)


def test_a_request_ahead_that_is_abandoned_never_happened():
    request, round_, dropped = ahead()
    request.abandon()
    assert (round_.calls, dropped) == (["ask 1", "abandon, False"], [])
    assert (round_.place.positions, round_.place.is_ahead) == (("first",), True)


def test_a_request_ahead_that_is_taken_leaves_runners_where_they_are():
    request, round_, dropped = ahead()
    assert request.take().num_episodes_lost == 2
    assert (round_.calls, dropped) == (["ask 1", *["advance, True"] * 2, "end"], [])
    assert (round_.place.positions, round_.place.is_ahead) == (("others",), False)


def test_a_request_ahead_answers_what_is_asked_for_of_runners_that_hold_what_they_are_to():
    policy, other = PolicySnapshot(), PolicySnapshot()

    def answers(now, *, sent=policy, is_given_up=False):
        place = SimpleNamespace(positions=(), is_given_up=is_given_up, sent=sent)
        places = {1: place}
        asked = {1: "10 steps"}
        request = RequestAhead(GivesUp(place), places, lambda *_: None, requests=asked, asks={})
        return request.answers({1: now}, policy)

    assert answers("10 steps")
    assert not answers("11 steps")
    assert not answers("10 steps", sent=other)
    assert answers("10 steps", sent=other, is_given_up=True)


# ---- what is under way


class UnderWay:
    """Calls under way that may fail when they are waited for."""

    def __init__(self, failure=None):
        self.failure, self.calls = failure, list[str]()

    def finish(self):
        self.calls.append("finish")
        if self.failure is not None:
            raise self.failure

    def abandon(self):
        self.calls.append("abandon")


@pytest.mark.parametrize(
    ("method", "failure", "calls"),
    [
        ("finish", None, ["finish"]),
        ("finish", RuntimeError("of a runner"), ["finish", "abandon"]),
        ("finish", KeyboardInterrupt(), ["finish", "abandon"]),
        ("abandon", None, ["abandon"]),
    ],
)
def test_what_was_under_way_is_over_however_it_ends(method, failure, calls):
    asking = EnvRunnerGroup(config=small_ppo())._asking
    asking.under_way = one = UnderWay(failure)
    with contextlib.nullcontext() if failure is None else pytest.raises(type(failure)):
        getattr(asking, method)()
    assert (one.calls, asking.under_way) == (calls, None)
    asking.finish()
    asking.abandon()
    assert one.calls == calls
    asking.stop()
