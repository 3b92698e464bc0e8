"""Who is replaced, how often, and after how long."""

import numpy as np
import pytest

from trainer.runtime.restart_policy import Attempt, Attempts, RestartPolicy

HERE = 100
"""Steps before some failure; enough to count as progress."""


def failed(*attempts):
    made = Attempts()
    for attempt in attempts:
        made.add(attempt)
    return made


def at(*steps, **how):
    """Errors after so many steps each."""
    return failed(*(Attempt(num_steps=number, has_raised=True, **how) for number in steps))


def why(policy, attempts, *, restarts=0, excess=0, progressed=True):
    return policy.why_given_up(
        attempts,
        num_restarts=restarts,
        num_excess_failures=excess,
        has_ever_progressed=progressed,
    )


def test_a_first_failure_is_repaired_at_once():
    assert not why(RestartPolicy(), at(0))
    assert RestartPolicy().back_off_s(1) == 0.0


def test_nobody_is_replaced_if_that_is_switched_off():
    told = why(RestartPolicy(should_restart=False), at(HERE))
    assert told == "It is not replaced, as restart_failed_env_runners=False says."


def test_the_maximum_counts_over_the_whole_run():
    policy = RestartPolicy(max_restarts=3)
    told = [why(policy, at(HERE), restarts=number) for number in range(5)]
    assert told[:3] == ["", "", ""]
    assert told[3] == ("It was replaced 3 times, as often as max_num_env_runner_restarts=3 allows.")
    assert why(RestartPolicy(max_restarts=0), at(HERE))


def test_failures_without_progress_are_tolerated_up_to_the_tolerance():
    policy = RestartPolicy(tolerance=2)
    assert not why(policy, at(0, 0))
    assert "num_consecutive_env_runner_failures_tolerance=2" in why(policy, at(0, 0, 0))
    assert why(RestartPolicy(tolerance=0), at(0))


def test_failures_after_progress_are_repaired_however_many_they_are():
    """An unstable simulator: whatever the tolerance, also before a first answer."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        attempts = at(*rng.geometric(0.001, size=60))
        assert not attempts.comes_again
        assert not why(RestartPolicy(tolerance=3), attempts, progressed=False)


def test_what_comes_again_at_the_furthest_place_is_no_progress_and_told():
    assert not at(HERE, HERE).comes_again
    assert at(HERE, HERE, HERE).comes_again
    assert at(HERE, 20, HERE, 60, HERE).comes_again, "kills from outside in between"
    assert not at(HERE, HERE, HERE + 50, HERE).comes_again, "one attempt got past it"
    assert at(HERE + 50, HERE, HERE, HERE).comes_again, "the env broke meanwhile"
    assert at(HERE, HERE, HERE).num_idle == 2


def test_what_comes_again_near_one_place_is_told_after_five():
    """Faults that depend on the memory or the clock."""
    assert not at(500, 498, 501, 499).comes_again
    assert at(500, 498, 501, 499, 500).comes_again
    assert not at(500, 300, 501, 120, 60, 410).comes_again


def test_episodes_that_are_played_instead_have_to_fail_at_another_place():
    attempts = at(HERE, HERE, HERE)
    attempts.play_other()
    assert not attempts.comes_again
    for _ in range(6):
        assert not why(RestartPolicy(), attempts)
        attempts.add(Attempt(num_steps=HERE, has_raised=True))
    assert "no progress in 8 tries" in why(RestartPolicy(), attempts)


def test_a_worker_that_made_progress_once_gets_eight_tries_without():
    policy = RestartPolicy(delay_s=1.5)
    assert not why(policy, at(HERE, *[0] * 7))
    told = why(policy, at(HERE, *[0] * 8))
    assert "no progress in 8 tries" in told
    assert "delay_between_env_runner_restarts_s=1.5" in told
    assert "tolerance" not in told, "a setting that did not decide"


def test_one_that_never_made_any_gets_three_tries():
    assert not why(RestartPolicy(), at(1, 1), progressed=False)
    assert "gets 3 tries" in why(RestartPolicy(), at(1, 1, 1), progressed=False)


def test_hanging_again_and_again_is_not_waited_for_eight_times():
    stalled = Attempt(num_steps=1, was_stalled=True)
    assert not why(RestartPolicy(), failed(stalled, stalled))
    assert "It hung 3 times" in why(RestartPolicy(), failed(stalled, stalled, stalled))


def test_kills_from_outside_are_limited_by_the_tolerance_alone():
    killed = Attempt(was_starting=True, was_killed=True)
    assert not why(RestartPolicy(), failed(*[killed] * 100), progressed=False)
    assert "tolerance=100" in why(RestartPolicy(), failed(*[killed] * 101))


def test_a_process_that_kills_itself_at_one_place_is_found_out():
    killed = Attempt(num_steps=1, was_killed=True)
    assert failed(killed, killed, killed).comes_again
    assert "3 tries" in why(RestartPolicy(), failed(*[killed] * 4), progressed=False)


def test_a_worker_may_not_fail_much_more_often_than_it_answers():
    policy = RestartPolicy(tolerance=10)
    assert not why(policy, at(HERE), excess=10)
    told = why(policy, at(HERE), excess=11)
    assert told.startswith("It has failed 11 times more often than it has answered")
    assert "num_consecutive_env_runner_failures_tolerance=10" in told


def test_the_wait_grows_from_the_second_failure_on_and_stays_bounded():
    waits = [RestartPolicy().back_off_s(n) for n in (1, 2, 3, 4, 5)]
    assert waits == pytest.approx([0.0, 0.05, 0.1, 0.2, 0.4])
    assert RestartPolicy().back_off_s(1_000_000) == 1.0


def test_the_configured_delay_comes_on_top():
    policy = RestartPolicy(delay_s=2.0)
    assert [policy.back_off_s(n) for n in (1, 2, 3)] == pytest.approx([2.0, 2.05, 2.1])


def test_what_limits_it_is_told_after_every_fifth_failure_in_a_row():
    policy = RestartPolicy(tolerance=70, max_restarts=80)
    told = {
        failures: policy.outlook(at(*[0] * failures), num_restarts=3) for failures in range(1, 11)
    }
    assert [failures for failures, text in told.items() if text] == [5, 10]
    assert "num_consecutive_env_runner_failures_tolerance=70" in told[10]
    assert "failure 10 in a row" in told[10]
    moving = policy.outlook(at(500, 100, 900, 300, 700), num_restarts=3)
    assert "max_num_env_runner_restarts=80" in moving
    assert "smaller requests" in moving
    assert "tolerance" not in moving


def test_a_worker_that_the_machine_cannot_start_says_nothing_against_the_env():
    refused = Attempt(was_starting=True, was_refused=True)
    told = why(RestartPolicy(), failed(refused, refused, refused), progressed=False)
    assert told.startswith("No process came up for it in 3 tries")
    assert "env rather than" not in told
    died = Attempt(was_starting=True)
    told = why(RestartPolicy(), failed(refused, refused, died), progressed=False)
    assert "the config or the env rather than bad luck" in told
