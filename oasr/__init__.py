"""Streaming and offline speech recognition: one engine, one step loop, no Kafka."""

__version__ = "0.1.0"
