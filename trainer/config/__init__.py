"""Settings of algorithms: fluent sections, dict configs, validation of everything at once.

setting, checks               one setting, and what it accepts
names, problems               what a name means; how problems are told
read_only, values             copies, read-only copies, merging, comparing
config_values, dictionary     a config as an object and as a dict
*_section, *_sections         the settings and their documentation
offered, rules, validation    what is refused, and why
algorithm_config              all of it together
"""

from trainer.config.algorithm_config import AlgorithmConfig
from trainer.config.config_values import SettingDescription
from trainer.config.section_methods import section
from trainer.config.settings import Merge, NotProvided, Setting
from trainer.errors import FrozenConfigError

__all__ = [
    "AlgorithmConfig",
    "FrozenConfigError",
    "Merge",
    "NotProvided",
    "Setting",
    "SettingDescription",
    "section",
]
