import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from oasr.audio.gate import (
    FLOOR_HIGHEST,
    FLOOR_LOWEST,
    LOUD_RATIO,
    QUIET_RATIO,
    EnergyGate,
    first_frame_of_speech,
    frame_energies,
    place_of_rest,
)

UNIT = 80 * 80


def gate_after(energies, memory_frames=500):
    gate = EnergyGate(80, memory_frames)
    gate.hear(energies, enough_silence=len(energies) + 1)
    return gate


def onset_in(energies):
    return EnergyGate(80, 500).hear(energies, enough_silence=None)


def silence_in(energies, frames):
    return EnergyGate(80, 500).hear(energies, enough_silence=frames)


def naive_gate(energies, memory_frames):
    """(loud, above, loud among the last ten by the present floor) after each frame."""
    for count in range(1, len(energies) + 1):
        heard = energies[:count]
        sums = [sum(heard[i : i + 3]) for i in range(count - 2)][-memory_frames:]
        highest, lowest = 3 * FLOOR_HIGHEST * UNIT, 3 * FLOOR_LOWEST * UNIT
        floor = min(max(min(sums, default=highest), lowest), highest)
        loud_above, quiet_to = 8 * floor // 3, 4 * floor // 3
        yield heard[-1] > loud_above, heard[-1] > quiet_to, sum(e > loud_above for e in heard[-10:])


ENERGIES = st.lists(
    st.one_of(st.integers(0, 10**10), st.sampled_from([0, 32**2 * UNIT, 519**2 * UNIT, 10**14])),
    max_size=80,
)


@settings(deadline=None, max_examples=80)
@given(ENERGIES, st.integers(1, 30), st.lists(st.integers(0, 30), max_size=8))
def test_an_onset_is_the_frame_that_the_rules_give_one_by_one(energies, memory_frames, sizes):
    steps = enumerate(naive_gate(energies, memory_frames), 1)
    expected = next((n for n, (loud, _, many) in steps if loud and many >= 4), None)

    gate = EnergyGate(80, memory_frames)
    heard, found, begin = 0, None, 0
    for size in (*sizes, len(energies)):
        found = gate.hear(energies[begin : begin + size], enough_silence=None)
        if found is not None:
            heard = begin + found
            break
        begin += size

    assert (heard or None) == expected


@settings(deadline=None, max_examples=80)
@given(ENERGIES, st.integers(1, 30), st.integers(1, 12), st.lists(st.integers(0, 30), max_size=8))
def test_silence_is_counted_as_the_rules_give_it_one_by_one(energies, memory, frames, sizes):
    expected, above, silent = None, [], 0
    for number, (_, is_above, _) in enumerate(naive_gate(energies, memory), 1):
        above.append(is_above)
        silent = 0 if sum(above[-5:]) >= 3 else silent + 1
        if silent == frames:
            expected = number
            break

    gate = EnergyGate(80, memory)
    heard, begin = None, 0
    for size in (*sizes, len(energies)):
        found = gate.hear(energies[begin : begin + size], enough_silence=frames)
        if found is not None:
            heard = begin + found
            break
        begin += size

    assert heard == expected


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 40), st.integers(0, 5), st.integers(0, 2**32 - 1))
def test_energy_is_the_variance_times_the_squared_frame_length(size, frames, seed):
    rng = np.random.default_rng(seed)
    samples = rng.integers(-32768, 32768, frames * size + int(rng.integers(size))).astype(np.int16)

    energies = frame_energies(samples, size)

    for index in range(frames):
        frame = samples[index * size : (index + 1) * size].tolist()
        assert energies[index] == size * sum(v * v for v in frame) - sum(frame) ** 2
    assert len(energies) == frames


def test_energy_ignores_a_constant_offset_and_does_not_overflow():
    assert frame_energies(np.full(3840, -32768, np.int16), 3840).tolist() == [0]
    extreme = np.tile(np.array([-32768, 32767], np.int16), 1920)
    assert frame_energies(extreme, 3840).tolist() == [3840**2 * (65535**2) // 4]


def test_thresholds_start_high_so_that_quiet_noise_opens_nothing():
    gate = gate_after([])

    assert gate.loud_above == LOUD_RATIO * FLOOR_HIGHEST * UNIT
    assert gate.quiet_to == QUIET_RATIO * FLOOR_HIGHEST * UNIT


def test_the_floor_is_never_below_the_idle_noise_of_a_line():
    assert gate_after([0] * 5).loud_above == LOUD_RATIO * FLOOR_LOWEST * UNIT


def test_one_low_frame_lowers_the_floor_by_its_share_only():
    level = 10_000 * UNIT
    gate = gate_after([level, level, 0, level, level])

    assert gate.loud_above == LOUD_RATIO * 2 * level // 3


def test_the_floor_rises_once_the_low_frames_are_forgotten():
    gate = gate_after([0] * 3 + [50_000 * UNIT] * 12, memory_frames=10)

    assert gate.loud_above == LOUD_RATIO * 50_000 * UNIT


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 10**10), max_size=60), st.integers(1, 20))
def test_the_floor_is_the_lowest_smoothed_frame_remembered(energies, memory_frames):
    gate = gate_after(energies, memory_frames)

    sums = [sum(energies[i : i + 3]) for i in range(len(energies) - 2)][-memory_frames:]
    highest, lowest = 3 * FLOOR_HIGHEST * UNIT, 3 * FLOOR_LOWEST * UNIT
    floor = min(max(min(sums, default=highest), lowest), highest)
    assert gate.loud_above == LOUD_RATIO * floor // 3
    assert gate.quiet_to == QUIET_RATIO * floor // 3


def test_three_loud_frames_are_no_onset_and_four_are():
    loud = 10**7 * UNIT
    nothing = np.zeros(0, np.int16)

    assert onset_in([0] * 10 + [loud] * 3) is None
    assert gate_after([0] * 10 + [loud] * 3).may_hold_speech(nothing)
    assert not gate_after([0] * 10 + [loud] * 3 + [0] * 10).may_hold_speech(nothing)
    assert onset_in([0] * 10 + [loud] * 6) == 14
    assert onset_in([0] * 10 + [loud, 0, loud, 0, 0, loud, 0, 0, 0, loud]) == 20
    assert onset_in([0] * 10 + [loud, 0, loud, 0, 0, 0, loud, 0, 0, 0, loud]) is None


def test_a_part_frame_that_is_loud_may_hold_speech():
    gate = gate_after([0] * 10)

    assert gate.may_hold_speech(np.array([3000, -3000] * 15, np.int16))
    assert not gate.may_hold_speech(np.array([10, -10] * 15, np.int16))


def test_speech_goes_on_while_most_of_the_last_frames_are_above_the_background():
    loud = 10**7 * UNIT

    assert silence_in([0] * 10 + [loud, 0, loud, 0, loud] + [0] * 10, 15) is None
    assert silence_in([0] * 10 + [loud, 0, 0, 0, loud] + [0] * 10, 15) == 15
    assert silence_in([0] * 3 + [loud] * 5 + [0] * 7, 6) is None
    assert silence_in([0] * 3 + [loud] * 5 + [0] * 9, 6) == 16


def test_speech_begins_with_its_first_linked_loud_frame():
    energies = np.zeros(100, np.int64)
    energies[[5, 40, 69, 70, 99]] = 9

    assert first_frame_of_speech(energies, 8) == 40
    assert first_frame_of_speech(energies, 9) is None
    assert first_frame_of_speech(energies[:40], 8) == 5


def test_rest_lies_near_the_end_of_the_longest_quiet_run():
    energies = np.full(100, 50, np.int64)
    energies[10:20] = 1
    energies[40:80] = 2
    energies[90:95] = 0

    assert place_of_rest(energies, 2, lead_frames=10) == 70
    assert place_of_rest(energies, 1, lead_frames=10) == 15
    assert place_of_rest(energies, 0, lead_frames=10) == 93


def test_the_later_of_two_equal_runs_is_the_rest():
    energies = np.full(50, 50, np.int64)
    energies[10:14] = energies[30:34] = 1

    assert place_of_rest(energies, 1, lead_frames=10) == 32


def test_a_run_that_touches_the_end_counts():
    energies = np.array([5, 5, 1, 1, 1, 1], np.int64)

    assert place_of_rest(energies, 1, lead_frames=1) == 5


def test_without_any_quiet_frame_the_quietest_one_is_the_rest():
    assert place_of_rest(np.array([9, 7, 5, 8], np.int64), 4, lead_frames=10) == 2
