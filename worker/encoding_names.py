"""What a producer may have meant by an encoding that is not written as the contract writes it.

Nothing is guessed: such a message is refused, and the refusal says what to write or to send. The
names are those of RTP payloads, media types, telephony platforms and sound libraries.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from oasr.audio.pcm import Encoding

_PREFIXES: Final = ("audio/", "x-", "vnd.")
_SEPARATORS: Final = re.compile(r"[-_./\s]")
_LONGEST_NAME: Final = 64

_BOTH_ENDS: Final = (Encoding.PCM_S16BE, Encoding.PCM_S16LE)
_SPELLINGS: Final = {
    (Encoding.MULAW,): "mulaw µlaw μlaw ulaw pcmu pcmulaw pcmmulaw g711u g711ulaw g711mulaw"
    " basic ulaw8k",
    (Encoding.ALAW,): "alaw pcma pcmalaw g711a g711alaw alaw8k",
    (Encoding.PCM_S16LE,): "pcms16le s16le linear16 linear16le pcm16 pcm16le pcm lpcm int16 s16"
    " slin slin8 slin16 slin48 signed16 pcm16bit",
    (Encoding.PCM_S16BE,): "pcms16be s16be pcm16be linear16be",
    _BOTH_ENDS: "l16",
    (Encoding.MULAW, Encoding.ALAW): "g711",
    (Encoding.PCM_F32LE,): "pcmf32le f32le f32 float32 float32le pcmf32 pcmfloat float",
    (Encoding.PCM_U8,): "pcmu8 u8 uint8 pcm8 l8",
}
_MEANT: Final = {
    name.lower(): encodings for encodings, names in _SPELLINGS.items() for name in names.split()
}
_CODECS: Final = {
    "opus": "Opus",
    "g722": "G.722",
    "g7221": "G.722.1",
    "g7222": "AMR-WB",
    "g723": "G.723.1",
    "g7231": "G.723.1",
    "g726": "G.726",
    "g72632": "G.726",
    "g728": "G.728",
    "g729": "G.729",
    "g729a": "G.729",
    "g729b": "G.729",
    "g729ab": "G.729",
    "amr": "AMR",
    "amrnb": "AMR",
    "amrwb": "AMR-WB",
    "evs": "EVS",
    "gsm": "GSM",
    "gsmfr": "GSM",
    "gsm610": "GSM",
    "gsmefr": "GSM",
    "gsmhr": "GSM",
    "ilbc": "iLBC",
    "isac": "iSAC",
    "silk": "SILK",
    "speex": "Speex",
    "speexwithheaderbyte": "Speex",
    "siren": "G.722.1",
    "lyra": "Lyra",
    "codec2": "Codec 2",
    "adpcm": "ADPCM",
    "dvi4": "ADPCM",
    "aac": "AAC",
    "mp4alatm": "AAC",
    "mpeg4generic": "AAC",
    "mp3": "MP3",
    "mpeg": "MP3",
    "mpa": "MP3",
    "vorbis": "Vorbis",
    "oggopus": "Opus",
    "webmopus": "Opus",
}
_CONTAINERS: Final = {
    "wav": "WAV",
    "wave": "WAV",
    "rf64": "WAV",
    "flac": "FLAC",
    "ogg": "Ogg",
    "oga": "Ogg",
    "webm": "WebM",
    "mp4": "MP4",
    "m4a": "MP4",
    "aiff": "AIFF",
    "au": "AU",
    "caf": "CAF",
    "matroska": "Matroska",
    "mka": "Matroska",
}


@lru_cache(maxsize=256)
def meant_by(text: str) -> tuple[Encoding, ...]:
    """The encodings that are known by a name; none if it is that of something else."""
    return _MEANT.get(_bare(text), ())


@lru_cache(maxsize=256)
def refused_by_name(text: str) -> str | None:
    """Why a known name is no encoding of live chunks and what to send instead; None if unknown."""
    name = _bare(text)
    codec, container = _CODECS.get(name), _CONTAINERS.get(name)
    if container is not None:
        return f"{container} is a file: send the samples alone, or the file to the topic of files"
    if codec is not None:
        return f"{codec} is not decoded live: send what it decodes to as pcm_s16le or mulaw"
    return None


@lru_cache(maxsize=256)
def advice(text: str) -> str:
    """What to write instead of a name that is no encoding of the contract."""
    encodings = meant_by(text)
    if encodings == _BOTH_ENDS:
        return "did you mean pcm_s16be, which RTP calls L16, or pcm_s16le?"
    if encodings:
        return f"did you mean {' or '.join(encodings)}?"
    return refused_by_name(text) or f"it is not one of {', '.join(Encoding)}"


def _bare(text: str) -> str:
    """A name without its parameters, its `audio/` and what parts its letters."""
    name = text.split(";", 1)[0].strip().lower()[:_LONGEST_NAME]
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    return _SEPARATORS.sub("", name)
