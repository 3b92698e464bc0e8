import itertools

import numpy as np
import pytest

from trainer.seeding import (
    EnvSeeds,
    NoiseStream,
    Role,
    draw_root_seed,
    evaluation_index,
    learner_rng,
    position_rng,
    training_index,
)


def rows(stream, count):
    return np.array([stream.next_row() for _ in range(count)])


def test_env_seeds_of_a_run_are_all_different():
    seeds = EnvSeeds(7)
    of_training = [seeds.seed(Role.TRAINING, index) for index in range(100_000)]
    of_evaluation = [seeds.seed(Role.EVALUATION, index) for index in range(10_000)]
    assert len(set(of_training + of_evaluation)) == 110_000
    assert all(0 <= seed < 2**31 for seed in of_training)


def test_random_seeds_would_not_all_be_different():
    # The negative control: it is the permutation that keeps seeds apart.
    drawn = np.random.default_rng(0).integers(2**31, size=110_000)
    assert len(set(drawn.tolist())) < 110_000


def test_env_seeds_of_neighbouring_root_seeds_share_nothing():
    of_run = [
        {EnvSeeds(root).seed(Role.TRAINING, index) for index in range(200)} for root in range(100)
    ]
    overlaps = sum(len(a & b) for a, b in itertools.combinations(of_run, 2))
    # 20,000 numbers of 2**31: less than one pair is expected to meet by chance.
    assert overlaps <= 1


def test_indices_are_different_for_every_position():
    training = {training_index(slot, episode, 5) for slot in range(5) for episode in range(500)}
    assert len(training) == 2500
    evaluation = {evaluation_index(number, ticket) for number in range(60) for ticket in range(60)}
    assert len(evaluation) == 3600


def test_training_indices_do_not_depend_on_the_number_of_slots_within_a_power_of_two():
    assert training_index(3, 17, 5) == training_index(3, 17, 8)


def test_noise_is_a_function_of_stream_and_episode():
    stream = NoiseStream(3, Role.TRAINING, kind="uniform", width=2)
    stream.start(4, 10)
    first = rows(stream, 300)
    stream.start(4, 11)
    other_episode = rows(stream, 300)
    stream.start(5, 10)
    other_slot = rows(stream, 300)
    again = NoiseStream(3, Role.TRAINING, kind="uniform", width=2)
    again.start(4, 10)
    assert rows(again, 300).tobytes() == first.tobytes()
    assert not np.isin(other_episode, first).any()
    assert not np.isin(other_slot, first).any()


@pytest.mark.parametrize("takes", [(5, 40, 3, 200), (32, 1, 31, 64, 2), (1, 1, 1, 150)])
def test_rows_taken_several_at_once_are_the_rows_that_come_one_by_one(takes):
    stream = NoiseStream(0, Role.TRAINING, kind="gumbel", width=3)
    stream.start(2, 7)
    expected = rows(stream, sum(takes) + 100)
    stream.start(2, 7)
    found = []
    for place, count in enumerate(takes):
        if place % 2:  # both ways in turn
            found += [stream.next_row() for _ in range(count)]
            continue
        left = count
        while left:
            ahead = stream.rows_ahead()
            used = min(left, len(ahead))
            found += list(ahead[:used])
            stream.pass_over(used)
            left -= used
    found += [stream.next_row() for _ in range(100)]
    assert np.array(found).tobytes() == expected.tobytes()


def test_noise_has_the_distribution_it_is_said_to_have():
    uniform = NoiseStream(0, Role.TRAINING, kind="uniform", width=1)
    normal = NoiseStream(0, Role.TRAINING, kind="normal", width=1)
    uniform.start(0, 0)
    normal.start(0, 0)
    u, z = rows(uniform, 20_000), rows(normal, 20_000)
    assert abs(u.mean() - 0.5) < 0.01
    assert abs(u.var() - 1 / 12) < 0.005
    assert abs(z.mean()) < 0.03
    assert abs(z.std() - 1) < 0.02


def test_first_rows_of_many_episodes_are_not_correlated():
    stream = NoiseStream(1, Role.TRAINING, kind="uniform", width=1)
    firsts = []
    for number in range(5000):
        stream.start(0, number)
        firsts.append(stream.next_row()[0])
    assert abs(np.corrcoef(firsts[:-1], firsts[1:])[0, 1]) < 0.05
    assert abs(np.mean(firsts) - 0.5) < 0.02


def test_roles_and_positions_have_their_own_generators():
    draws = [
        position_rng(0, Role.LEARNER, 1).random(8),
        position_rng(0, Role.REPLAY, 1).random(8),
        position_rng(0, Role.LEARNER, 2).random(8),
        position_rng(1, Role.LEARNER, 1).random(8),
    ]
    assert len({draw.tobytes() for draw in draws}) == 4
    assert learner_rng(0, 1).random(8).tobytes() == draws[0].tobytes()


def test_drawn_root_seeds_are_not_all_the_same():
    assert len({draw_root_seed() for _ in range(20)}) > 15
