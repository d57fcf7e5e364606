"""`make test-examples` runs all of these; `make test`, what takes some seconds."""

import os

collect_ignore = [] if os.environ.get("ALL_EXAMPLES") == "1" else ["real"]
