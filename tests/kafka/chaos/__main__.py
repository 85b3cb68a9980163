"""`python -m tests.kafka.chaos`: the decider's part of the crash-equivalence harness."""

import sys

from tests.kafka.chaos.decider import main

sys.exit(main())
