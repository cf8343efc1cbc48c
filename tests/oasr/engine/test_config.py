from __future__ import annotations

import dataclasses
from math import nan

import pytest

from oasr.engine.config import POLICIES, EngineConfig


def test_the_defaults_are_those_of_the_specification():
    config = EngineConfig()

    assert config.max_batch_size == 32
    assert config.preferred_batch_size is None
    assert config.length_bucket_ratio == 0.0
    assert config.max_offline_pad_ratio == 4.0
    assert config.max_batch_frames is None
    assert config.max_wait_time == 0.2
    assert config.schedule_policy == "window"
    assert config.length_window_factor == 4
    assert config.streaming_cohort_admit is True
    assert (config.chunk_size, config.num_left_chunks, config.block_size_frames) == (16, -1, 16)


def test_a_configuration_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        EngineConfig().max_batch_size = 8  # type: ignore[misc]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("device", ""),
        ("dtype", "int4"),
        ("chunk_size", 0),
        ("chunk_size", 17),  # over block_size_frames
        ("num_left_chunks", -2),
        ("offline_chunk_size", 0),
        ("finalize_padding_ms", -1),
        ("max_chunks_per_step", 0),
        ("max_batch_size", 0),
        ("preferred_batch_size", []),
        ("preferred_batch_size", [0, 4]),
        ("preferred_batch_size", [4, 33]),
        ("feature_graph_batch_buckets", []),
        ("feature_graph_batch_buckets", [33]),
        ("schedule_policy", "lifo"),
        ("length_window_factor", 0),
        ("length_bucket_ratio", -0.1),
        ("length_bucket_ratio", 1.1),
        ("length_bucket_ratio", nan),
        ("max_offline_pad_ratio", -1.0),
        ("max_offline_pad_ratio", 0.5),
        ("max_batch_frames", 0),
        ("max_wait_time", -0.1),
        ("max_wait_time", nan),
        ("block_size_frames", 0),
        ("max_num_blocks", 0),
    ],
)
def test_a_bad_value_is_refused_by_the_name_of_its_field(field: str, value: object):
    with pytest.raises(ValueError, match=f"^{field} must be"):
        EngineConfig(**{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("policy", POLICIES)
def test_each_policy_of_the_specification_is_known(policy: str):
    assert EngineConfig(schedule_policy=policy).schedule_policy == policy  # type: ignore[arg-type]


def test_preferred_sizes_are_sorted_and_without_repeats():
    assert EngineConfig(preferred_batch_size=[8, 4, 8, 1]).preferred_batch_size == [1, 4, 8]


def test_the_callers_list_of_sizes_is_not_shared():
    sizes = [8, 4]
    config = EngineConfig(preferred_batch_size=sizes)

    sizes.append(99)

    assert config.preferred_batch_size == [4, 8]


def test_feature_graph_buckets_default_to_the_preferred_sizes():
    assert EngineConfig().feature_graph_batch_buckets is None
    assert EngineConfig(preferred_batch_size=[8, 4]).feature_graph_batch_buckets == [4, 8]


def test_feature_graph_buckets_of_their_own_are_kept():
    config = EngineConfig(preferred_batch_size=[8, 4], feature_graph_batch_buckets=[2, 1])

    assert config.feature_graph_batch_buckets == [1, 2]


def test_a_chunk_may_fill_a_block():
    assert EngineConfig(chunk_size=32, block_size_frames=32).chunk_size == 32
