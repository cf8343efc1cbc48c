"""Settings of all tests: the same examples in every run, so that a failure can be repeated.

`HYPOTHESIS_PROFILE=search` looks for new ones instead.
"""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("fixed", derandomize=True, deadline=None, database=None)
settings.register_profile("search", derandomize=False, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))
