"""Settings of algorithms: fluent sections, dict configs, validation of everything at once.

settings           one setting, what it accepts, what a name means
sections           the settings and their documentation; `section_methods` makes them callable
config_values      a config as an object and as a dict
validation         what is refused, and why
algorithm_config   all of it together
"""

from trainer.config.algorithm_config import AlgorithmConfig
from trainer.config.section_methods import section
from trainer.config.settings import Merge, NotProvided, Setting
from trainer.errors import FrozenConfigError
