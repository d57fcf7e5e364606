"""`make test-examples` runs all of these tests; `make test` runs those of some seconds."""

import os

collect_ignore = [] if os.environ.get("ALL_EXAMPLES") == "1" else ["real"]
