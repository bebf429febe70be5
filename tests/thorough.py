"""Whether `./dev test --thorough` runs: more examples, more steps, larger payloads."""

import os

THOROUGH = bool(os.environ.get("OFFBOOK_TEST_THOROUGH"))
