"""Rows of positions: those in use are right, and the others do not add up."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from oasr.models.conformer.position_table import KEPT_BLOCKS, TABLE_BLOCK, PositionTable
from tests.support.conformers import STREAMING, VARIANTS, random_feats, random_model

HOUR = 90_000  # encoder frames


def make_table(computed: list[int] | None = None) -> PositionTable:
    def compute(first: int) -> torch.Tensor:
        if computed is not None:
            computed.append(first)
        positions = torch.arange(first, first + TABLE_BLOCK, dtype=torch.float64)
        return torch.stack((positions, -positions), 1)

    return PositionTable(compute, torch.zeros(0, 2, dtype=torch.float64))


def hold(table: PositionTable, *spans: tuple[int, int]) -> None:
    firsts, pasts = np.array(spans).T
    table.hold(firsts, pasts)


@settings(deadline=None, max_examples=60)
@given(
    calls=st.lists(
        st.lists(
            st.tuples(st.sampled_from([0, 100, 5_000, 40_000, HOUR]), st.integers(0, 300)),
            min_size=1,
            max_size=12,
        ),
        min_size=1,
        max_size=15,
    )
)
def test_what_is_held_is_there_whatever_was_held_before(calls):
    table = make_table()
    for number, starts in enumerate(calls):
        spans = [(base + more, base + more + 1 + 40 * (number % 9)) for base, more in starts]
        hold(table, *spans)
        for first, past in spans:
            positions = torch.arange(first, past)
            expected = torch.stack((positions, -positions), 1).double()
            assert torch.equal(table[positions], expected)


def test_an_hour_of_positions_takes_the_room_of_the_blocks_that_are_kept():
    computed: list[int] = []
    table = make_table(computed)
    for first in range(0, HOUR, 16):
        hold(table, (first, first + 16), (7, 300))

    row_bytes = 2 * 8
    assert table.nbytes == KEPT_BLOCKS * TABLE_BLOCK * row_bytes
    assert computed == sorted(set(computed))  # nothing that is in use is computed again


def test_a_call_that_holds_more_than_is_kept_gets_it():
    table = make_table()
    wide = TABLE_BLOCK * (KEPT_BLOCKS + 5)

    hold(table, (0, wide))

    assert table[torch.arange(wide)][-1, 0] == wide - 1
    assert table.nbytes == wide * 2 * 8


@pytest.mark.parametrize("settings", [STREAMING, VARIANTS["abs-pos"]], ids=["keys", "input"])
def test_the_tables_of_a_model_stay_small_however_long_a_stream_is(settings):
    model = random_model(settings)
    feats = random_feats(1, settings.window_frames(16))
    kv, cnn = torch.zeros(2, 1, 4, 64, 8), torch.zeros(2, 1, 16, settings.kernel - 1)
    for first in range(64, HOUR, 1_600):
        model.encode_chunk(
            feats, torch.tensor([first]), kv, cnn, torch.ones(1, 64, dtype=torch.bool)
        )

    layers, size, heads = 2, 16, 4
    row_bytes = 4 * max(size, layers * (size + heads))
    assert 0 < table_bytes(model.positions) <= KEPT_BLOCKS * TABLE_BLOCK * row_bytes


def table_bytes(positions: object) -> int:
    return sum(v.nbytes for v in vars(positions).values() if isinstance(v, PositionTable))
