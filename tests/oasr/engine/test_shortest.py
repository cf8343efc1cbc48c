from __future__ import annotations

from itertools import islice

from hypothesis import given, settings
from hypothesis import strategies as st

from oasr.engine.shortest import ShortestFirst
from tests.support.scheduling import Clock, audio_of, ids, stream

frames = st.integers(0, 30)


@settings(deadline=None, max_examples=150)
@given(
    operations=st.lists(
        st.one_of(
            st.tuples(st.just("add"), frames),
            st.tuples(st.just("grow"), st.integers(0, 30), frames),
            st.tuples(st.just("remove"), st.integers(0, 30)),
            st.tuples(st.just("look"), st.integers(0, 10)),
        ),
        max_size=60,
    )
)
def test_the_order_is_that_of_a_stable_sort_however_lengths_grow(operations: list[tuple]):
    clock, order, held = Clock(), ShortestFirst(), []
    for number, (name, *arguments) in enumerate(operations):
        if name == "add":
            held.append(stream(clock, f"r{number}", *arguments))
            order.add(held[-1])
        elif name == "grow" and held:
            held[arguments[0] % len(held)].push_audio(audio_of(arguments[1]))
        elif name == "remove" and held:
            order.remove(held.pop(arguments[0] % len(held)))
        elif name == "look":
            looked = order.in_order()
            found = ids(list(islice(looked, *arguments)))
            looked.close()
            assert found == ids(sorted(held, key=lambda r: r.num_frames))[: arguments[0]]

    assert ids(list(order.in_order())) == ids(sorted(held, key=lambda r: r.num_frames))


def test_an_id_used_again_takes_its_new_place():
    clock, order = Clock(), ShortestFirst()
    first = stream(clock, "twin", 10)
    order.add(first)
    order.add(stream(clock, "other", 10))
    order.remove(first)
    order.add(stream(clock, "twin", 10))

    assert ids(list(order.in_order())) == ["other", "twin"]


def test_requests_that_left_take_no_lasting_room():
    clock, order = Clock(), ShortestFirst()
    order.add(stream(clock, "short", 1))
    for number in range(5000):
        passing = stream(clock, f"r{number}", 100)
        order.add(passing)
        order.remove(passing)

    assert len(order._heap) <= 100
    assert ids(list(order.in_order())) == ["short"]
