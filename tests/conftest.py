"""Settings of all tests: the same examples in every run, so that a failure can be repeated.

`HYPOTHESIS_PROFILE=search` looks for new ones instead. Every record that the worker makes in any
test is checked against its schema.
"""

from __future__ import annotations

import os

from hypothesis import settings

from tests.support.record_checks import check_records_that_are_made

settings.register_profile("fixed", derandomize=True, deadline=None, database=None)
settings.register_profile("search", derandomize=False, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))

check_records_that_are_made()
