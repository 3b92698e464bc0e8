"""Settings of algorithms: fluent sections, dict configs, validation of everything at once.

settings           one setting, what it accepts, what a name means
sections           the settings that all algorithms share; `section_methods` makes them callable
shared_settings    all sections together, and what follows directly from them
config_values      a config as an object and as a dict
validation         what is refused, and why
algorithm_config   all of it together
"""

from trainer.config.algorithm_config import AlgorithmConfig
from trainer.config.settings import Merge, NotProvided
from trainer.config.settings import Setting as Setting  # users import it from here
from trainer.errors import FrozenConfigError
