"""The list of codes is closed, described, and the same in the documentation."""

from __future__ import annotations

import re
from pathlib import Path

from worker.errors import ErrorCode

CONTRACT = Path(__file__).parents[2] / "docs" / "contract.md"


def test_the_contract_lists_every_code_with_its_description():
    rows = re.findall(r"^\| `([a-z0-9_]+)` \| (.+?) \|$", codes_section(), re.MULTILINE)

    assert rows == [(code.value, code.description) for code in ErrorCode]


def test_a_code_is_its_text():
    assert f"{ErrorCode.KEY_REQUIRED}" == "key_required"
    assert ErrorCode("key_required") is ErrorCode.KEY_REQUIRED


def codes_section() -> str:
    return CONTRACT.read_text(encoding="utf-8").split("## Error codes", 1)[1].split("\n## ", 1)[0]
