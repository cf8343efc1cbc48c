"""The published examples of other systems' messages, and calls in their shapes."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from worker.messages import RawMessage

EXAMPLES = Path(__file__).parents[2] / "schemas" / "examples" / "ingress"
TWILIO = "application/vnd.twilio.media+json"
TELNYX = "application/vnd.telnyx.media+json"
AUDIOHOOK = "application/vnd.genesys.audiohook+json"


def example(name: str) -> list[RawMessage]:
    """The messages of `schemas/examples/ingress/<name>.json` as a log."""
    content = json.loads((EXAMPLES / f"{name}.json").read_text(encoding="utf-8"))
    return [_raw(offset, said) for offset, said in enumerate(content["messages"])]


def said_by(content_type: str, value: object, key: bytes = b"call-1", **headers: str) -> RawMessage:
    """One message of a shape; a value that is not bytes is written as JSON."""
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    pairs = {"content-type": content_type, **headers}
    texts = tuple((name, text.encode()) for name, text in pairs.items())
    return RawMessage("chunks", 0, 0, 1, key, data, texts)


def media(track: str, audio: bytes, chunk: object, timestamp: object) -> dict[str, Any]:
    """A `media` message of Twilio or Telnyx."""
    payload = base64.b64encode(audio).decode()
    body = {"track": track, "chunk": chunk, "timestamp": timestamp, "payload": payload}
    return {"event": "media", "media": body}


def _raw(offset: int, said: dict[str, Any]) -> RawMessage:
    if "value_base64" in said:
        value = base64.b64decode(said["value_base64"])
    else:
        value = json.dumps(said["value"]).encode()
    headers = tuple((name, text.encode()) for name, text in said["headers"].items())
    return RawMessage("chunks", 0, offset, 1, said["key"].encode(), value, headers)
