"""Who is replaced, how often, and after how long."""

from __future__ import annotations

import pytest

from trainer.runtime.restart_policy import RestartPolicy


def may_restart(
    policy: RestartPolicy,
    *,
    restarts: int = 0,
    failures: int = 1,
    excess: int | None = None,
    answered: bool = True,
) -> bool:
    return policy.may_restart(
        num_restarts=restarts,
        num_failures_in_a_row=failures,
        num_excess_failures=failures if excess is None else excess,
        has_ever_answered=answered,
    )


def test_a_first_failure_is_repaired_at_once() -> None:
    assert may_restart(RestartPolicy())
    assert RestartPolicy().back_off_s(1) == 0.0


def test_nobody_is_replaced_if_that_is_switched_off() -> None:
    assert not may_restart(RestartPolicy(should_restart=False))


def test_the_maximum_counts_over_the_whole_run() -> None:
    policy = RestartPolicy(max_restarts=3)
    assert [may_restart(policy, restarts=n) for n in range(5)] == [True, True, True, False, False]
    assert not may_restart(RestartPolicy(max_restarts=0))


def test_failures_in_a_row_are_tolerated_up_to_the_tolerance() -> None:
    policy = RestartPolicy(tolerance=2)
    assert [may_restart(policy, failures=n) for n in (1, 2, 3)] == [True, True, False]
    assert not may_restart(RestartPolicy(tolerance=0))


def test_a_worker_may_not_fail_much_more_often_than_it_answers() -> None:
    policy = RestartPolicy(tolerance=10)
    assert [may_restart(policy, excess=n) for n in (1, 10, 11)] == [True, True, False]


def test_a_newcomer_gets_three_tries_however_large_the_tolerance() -> None:
    policy = RestartPolicy(tolerance=100)
    tried = [may_restart(policy, failures=n, answered=False) for n in (1, 2, 3, 4)]
    assert tried == [True, True, False, False]
    assert not may_restart(RestartPolicy(tolerance=1), failures=2, answered=False)


def test_the_wait_grows_from_the_second_failure_on_and_stays_bounded() -> None:
    waits = [RestartPolicy().back_off_s(n) for n in (1, 2, 3, 4, 5)]
    assert waits == pytest.approx([0.0, 0.05, 0.1, 0.2, 0.4])
    assert RestartPolicy().back_off_s(1_000_000) == 1.0


def test_the_configured_delay_comes_on_top() -> None:
    policy = RestartPolicy(delay_s=2.0)
    assert [policy.back_off_s(n) for n in (1, 2, 3)] == pytest.approx([2.0, 2.05, 2.1])


def test_the_setting_that_limits_it_is_told_after_every_fifth_failure_in_a_row() -> None:
    policy = RestartPolicy(tolerance=70)
    told = {failures: policy.outlook(failures) for failures in range(1, 11)}
    assert [failures for failures, text in told.items() if text] == [5, 10]
    assert "num_consecutive_env_runner_failures_tolerance=70" in told[10]
    assert "failure 10 in a row" in told[10]


def why(
    policy: RestartPolicy,
    *,
    has_answered: bool,
    failures: int = 3,
    restarts: int = 2,
    excess: int = 3,
) -> str:
    return policy.describe(
        num_restarts=restarts,
        num_failures_in_a_row=failures,
        num_excess_failures=excess,
        has_ever_answered=has_answered,
    )


def test_the_rule_for_a_newcomer_is_told_where_it_decided() -> None:
    policy = RestartPolicy(tolerance=100)
    told = why(policy, has_answered=False)
    assert "never answered a request gets 3 tries" in told
    assert "num_consecutive_env_runner_failures_tolerance=100" in told
    assert "3 tries" not in why(policy, has_answered=True)
    assert "3 tries" not in why(policy, has_answered=False, failures=1)
    assert "3 tries" not in why(RestartPolicy(tolerance=2), has_answered=False)
    assert "3 tries" not in why(RestartPolicy(should_restart=False), has_answered=False)


def test_it_is_told_when_a_worker_was_replaced_as_often_as_it_may_be() -> None:
    told = why(RestartPolicy(max_restarts=5), has_answered=False, restarts=5)
    assert told.startswith("It was replaced 5 times, as often as it may be.")


def test_it_is_told_when_a_worker_fails_more_often_than_it_answers() -> None:
    told = why(RestartPolicy(tolerance=5), has_answered=True, failures=2, excess=6)
    assert told.startswith("It has failed 6 times more often than it has answered")
    assert "more often" not in why(RestartPolicy(tolerance=5), has_answered=True, failures=6)
