"""The Kafka worker: audio topics in, transcripts out."""
