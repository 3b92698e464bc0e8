"""The settings of DQN in `training()`, each declared once."""

from __future__ import annotations

from trainer.config.config_values import ConfigValues
from trainer.config.settings import GivenSchedule, Setting, schedule
from trainer_toolkit.checks import boolean, integer, number, one_of


class DQNTrainingSection(ConfigValues, section="training"):
    """Say how DQN learns."""

    double_q = Setting(
        True,
        boolean(),
        "the learning network chooses the next action, the target network values it.",
    )
    dueling = Setting(
        True,
        boolean(),
        "separate streams for the value of a state and the advantages of actions; this and the "
        "next three shape the ready-made network only.",
    )
    num_atoms = Setting(
        1,
        integer(1),
        "above 1, learn the distribution of returns on so many atoms (C51).",
    )
    v_min = Setting[float](
        -10.0,
        number(),
        "the smallest atom.",
    )
    v_max = Setting[float](
        10.0,
        number(),
        "the largest atom.",
    )
    epsilon = Setting[GivenSchedule](
        [[0, 1.0], [10000, 0.05]],
        schedule(0),
        "the probability of a random action; an `exploration_config` with a type replaces it.",
    )
    td_error_loss_fn = Setting(
        "huber",
        one_of("huber", "mse"),
        "the loss of TD errors.",
    )
