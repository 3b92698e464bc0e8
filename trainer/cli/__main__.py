"""`python -m trainer.cli` is the same as `local-trainer`."""

import sys

from trainer.cli.main import main

sys.exit(main())
