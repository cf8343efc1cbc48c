"""Tells by its first bytes which kind of container a file is, so that nothing is left to guess.

The names are those of FFmpeg's demuxers. A library that is told the name never tries the many
others that it knows, playlists that name further files among them.
"""

from __future__ import annotations

from typing import BinaryIO, Final

_HEAD_BYTES: Final = 4_096
_MAGICS: Final = (
    (0, b"RIFF", "wav"),
    (0, b"RF64", "wav"),
    (0, b"BW64", "wav"),
    (0, b"riff\x2e\x91\xcf\x11", "w64"),
    (0, b"fLaC", "flac"),
    (0, b"OggS", "ogg"),
    (0, b"\x1a\x45\xdf\xa3", "matroska"),
    (0, b"#!AMR\n", "amr"),
    (0, b"#!AMR-WB\n", "amr"),
    (0, b"caff", "caf"),
    (0, b".snd", "au"),
    (8, b"AIFF", "aiff"),
    (8, b"AIFC", "aiff"),
    (4, b"ftyp", "mov"),
    (4, b"moov", "mov"),
    (4, b"mdat", "mov"),
    (4, b"wide", "mov"),
    (4, b"free", "mov"),
)
# What is sent by mistake, or not read: its name says more than that it is none of ours.
_OTHERS: Final = (
    (0, bytes.fromhex("3026b2758e66cf11"), "Windows Media (ASF)"),
    (0, b"\x0b\x77", "AC-3 without a container"),
    (0, b"#!SILK", "SILK"),
    (0, b"MThd", "MIDI"),
    (0, b"FLV\x01", "Flash video"),
    (0, b"MAC ", "Monkey's Audio"),
    (0, b"wvpk", "WavPack"),
    (0, b"\x00\x00\x01\xba", "MPEG program stream"),
    (188, b"G", "MPEG transport stream"),
    (0, b"\x1f\x8b", "gzip"),
    (0, b"PK\x03\x04", "ZIP"),
    (0, b"%PDF", "PDF"),
    (0, b"\xff\xd8\xff", "JPEG"),
    (0, b"\x89PNG", "PNG"),
)
_GSM_FRAME_BYTES: Final = 33
_FEWEST_GSM_FRAMES: Final = 5
_ADTS_LAYER: Final = 0
_MPEG_RATES: Final = {3: 44_100, 2: 22_050, 0: 11_025}  # of the first index, by version
_MPEG_BITRATES: Final = {  # kbit/s by (version 1, layer), indices 1 to 14
    (True, 3): (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    (True, 2): (32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384),
    (False, 3): (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
    (False, 2): (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}


def sniff(file: BinaryIO) -> str | None:
    """The demuxer for a file that is open at any place, None if it is of no kind that we read."""
    file.seek(0)
    head = file.read(_HEAD_BYTES)
    for offset, magic, name in _MAGICS:
        if head.startswith(magic, offset):
            return name
    if head.startswith(b"ID3"):
        return _behind_id3(file, head)
    return _elementary(head)


def other_kind(file: BinaryIO) -> str | None:
    """The name of a kind that `sniff` does not know and that is not read, if it is a usual one."""
    file.seek(0)
    head = file.read(_HEAD_BYTES)
    for offset, magic, name in _OTHERS:
        if head.startswith(magic, offset) and (magic != b"G" or head.startswith(magic)):
            return name
    return None


def _behind_id3(file: BinaryIO, head: bytes) -> str | None:
    """What follows a tag of the kind that players of music write."""
    if len(head) < 10:
        return None
    size = 0
    for byte in head[6:10]:
        size = size << 7 | byte & 0x7F
    file.seek(10 + size)
    head = file.read(_HEAD_BYTES)
    if head.startswith(b"fLaC"):
        return "flac"
    return "aac" if _elementary(head) == "aac" else "mp3"  # the demuxer steps over padding


def _elementary(head: bytes) -> str | None:
    """Streams without any header of their own: the second frame must lie where the first says."""
    frame_bytes, name = _mpeg_frame(head)
    if name is not None:
        following = head[frame_bytes : frame_bytes + 4]
        if len(following) < 4 or _mpeg_frame(following)[1] == name:
            return name
    starts = head[::_GSM_FRAME_BYTES]
    if len(starts) >= _FEWEST_GSM_FRAMES and all(byte >> 4 == 0xD for byte in starts):
        return "gsm"
    return None


def _mpeg_frame(head: bytes) -> tuple[int, str | None]:
    """Length and kind of the MPEG audio frame at the beginning of `head`."""
    if len(head) < 4 or head[0] != 0xFF or head[1] & 0xE0 != 0xE0:
        return 0, None
    layer_bits = head[1] >> 1 & 3
    if layer_bits == _ADTS_LAYER:
        if head[1] & 0xF0 != 0xF0 or head[2] >> 2 & 15 > 12:
            return 0, None
        if len(head) < 6:
            return len(head), "aac"
        return (head[3] & 3) << 11 | head[4] << 3 | head[5] >> 5, "aac"
    return _mp3_frame(head, head[1] >> 3 & 3, 4 - layer_bits)


def _mp3_frame(head: bytes, version: int, layer: int) -> tuple[int, str | None]:
    bitrate_index, rate_index = head[2] >> 4, head[2] >> 2 & 3
    if version not in _MPEG_RATES or layer == 1 or rate_index == 3 or not 0 < bitrate_index < 15:
        return 0, None
    scale = _MPEG_RATES[version] // 11_025
    rate = (11_025, 12_000, 8_000)[rate_index] * scale
    bits = _MPEG_BITRATES[version == 3, layer][bitrate_index - 1] * 1_000
    samples = 576 if layer == 3 and version != 3 else 1_152
    return samples // 8 * bits // rate + (head[2] >> 1 & 1), "mp3"
