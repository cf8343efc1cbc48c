"""A channel of a file is on the topic up to where nothing before is missing."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from worker.file_progress import Progress


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.integers(1, 1000), max_size=12).flatmap(
        lambda lengths: st.tuples(st.just(lengths), st.permutations(range(len(lengths))))
    )
)
def test_it_is_the_end_of_the_longest_beginning_that_is_safe(
    case: tuple[list[int], list[int]],
) -> None:
    lengths, order = case
    ends = [sum(lengths[: n + 1]) for n in range(len(lengths))]
    progress = Progress(0)
    for end in ends:
        progress.begin(end)

    safe: set[int] = set()
    for number in order:
        safe.add(number)
        progress.safe(ends[number])
        complete = next((n for n in range(len(ends)) if n not in safe), len(ends))
        assert progress.samples == (ends[complete - 1] if complete else 0)


def test_what_a_former_owner_published_stays_published() -> None:
    progress = Progress(500)

    assert progress.was_published(500)
    assert not progress.was_published(501)
    progress.begin(200)
    progress.safe(200)
    assert progress.samples == 500
    progress.begin(700)
    progress.safe(700)
    assert progress.samples == 700
    assert not progress.was_published(700)
