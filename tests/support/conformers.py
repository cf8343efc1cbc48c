"""Small random conformers, and WeNet's forward written out naively from their weights."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from oasr.models.conformer.model import ConformerModel
from oasr.models.conformer.settings import DecoderSettings, ModelSettings

STREAMING = ModelSettings(
    output_size=16,
    num_blocks=2,
    attention_heads=4,
    linear_units=24,
    kernel=5,
    vocab=11,
    decoder=DecoderSettings(
        attention_heads=4, linear_units=24, num_blocks=1, right_blocks=1, bidirectional=True
    ),
    conv_norm="layer_norm",
    causal=True,
    dynamic_chunk=True,
    cmvn_file="global_cmvn",
)
OFFLINE = replace(
    STREAMING,
    causal=False,
    dynamic_chunk=False,
    conv_norm="batch_norm",
    activation="relu",
    macaron=False,
    cmvn_file=None,
)


# Every network that can stream, beside STREAMING itself.
VARIANTS = {
    "conv2d2": replace(STREAMING, input_layer="conv2d2"),
    "conv2d6": replace(STREAMING, input_layer="conv2d6"),
    "conv2d8": replace(STREAMING, input_layer="conv2d8"),
    "abs-pos": replace(STREAMING, pos_enc="abs_pos"),
    "batch-norm-without-macaron": replace(STREAMING, conv_norm="batch_norm", macaron=False),
    "transformer": replace(
        STREAMING,
        encoder="transformer",
        pos_enc="abs_pos",
        kernel=1,
        activation="relu",
        macaron=False,
        causal=False,
    ),
}

# Kernels and strides of the convolutions, and the name of the projection.
FRONT_ENDS = {
    "conv2d": ([(3, 2), (3, 2)], "out.0"),
    "conv2d2": ([(3, 2)], "out.0"),
    "conv2d6": ([(3, 2), (5, 3)], "linear"),
    "conv2d8": ([(3, 2), (3, 2), (3, 2)], "linear"),
}


def random_model(
    settings: ModelSettings = STREAMING, seed: int = 0, dtype: torch.dtype = torch.float32
) -> ConformerModel:
    """A prepared model on the CPU with every weight and statistic random."""
    generator = torch.Generator().manual_seed(seed)
    model = ConformerModel(settings)
    state = {}
    for name, value in model.state_dict().items():
        if value.is_floating_point():
            noise = torch.randn(value.shape, generator=generator)
            fan_in = value[0].numel() if value.dim() > 1 else 1
            value = 0.3 * noise if value.dim() == 1 else noise / math.sqrt(fan_in)
            if name.endswith(("norm.weight", "istd", "running_var")) or ".norm" in name:
                value = 1.0 + value.abs()
        state[name] = value
    model.load_state_dict(state)
    return model.prepare(torch.device("cpu"), dtype)


def random_feats(rows: int, frames: int, seed: int = 1) -> Tensor:
    """Features (rows, frames, 80) that differ from row to row."""
    return torch.randn(rows, frames, 80, generator=torch.Generator().manual_seed(seed))


def stream_through(
    model: ConformerModel, feats: Tensor, chunk: int, num_left_chunks: int = -1
) -> Tensor:
    """All whole chunks of features (B, T, 80) decoded one by one over a contiguous cache."""
    settings = model.settings
    rows, window = feats.shape[0], settings.window_frames(chunk)
    kv = torch.zeros(settings.num_blocks, rows, settings.attention_heads, 0, 2 * settings.head_dim)
    cnn = torch.zeros(settings.num_blocks, rows, settings.output_size, settings.kernel - 1)
    outputs = []
    for offset in range(0, settings.encoder_frames(feats.shape[1]) - chunk + 1, chunk):
        seen = offset if num_left_chunks < 0 else min(offset, num_left_chunks * chunk)
        first = offset * settings.subsampling_rate
        enc, new_kv, cnn = model.encode_chunk(
            feats[:, first : first + window],
            torch.full((rows,), offset),
            kv[..., offset - seen :, :],
            cnn,
            torch.ones(rows, seen, dtype=torch.bool),
        )
        kv = torch.cat((kv, new_kv), dim=3)
        outputs.append(enc)
    return torch.cat(outputs, dim=1)


def chunk_visibility(frames: int, chunk: int, left: int) -> Tensor:
    """WeNet's mask: keys max((i // chunk − left) · chunk, 0) … (i // chunk + 1) · chunk."""
    visible = torch.zeros(frames, frames, dtype=torch.bool)
    for i in range(frames):
        start = 0 if left < 0 else max((i // chunk - left) * chunk, 0)
        visible[i, start : (i // chunk + 1) * chunk] = True
    return visible


def naive_forward(
    model: ConformerModel,
    feats: Tensor,
    visible: Tensor | None = None,
    first_position: int = 0,
) -> Tensor:
    """Encoder frames (T', D) of one utterance (T, 80) straight from WeNet's formulae.

    `visible` (T', T') is True where a query sees a key; positions count from `first_position`.
    """
    w, settings = model.state_dict(), model.settings
    w["positions"] = sinusoids(
        settings.encoder_frames(feats.shape[0]), settings.output_size, first_position
    )
    if settings.cmvn_file is not None:
        feats = (feats - w["encoder.global_cmvn.mean"]) * w["encoder.global_cmvn.istd"]
    x = feats[None, None]
    convolutions, projection = FRONT_ENDS[settings.input_layer]
    for index, (kernel, stride) in enumerate(convolutions):
        weight = w[f"encoder.embed.conv.{2 * index}.weight"]
        assert weight.shape[2:] == (kernel, kernel)
        bias = w[f"encoder.embed.conv.{2 * index}.bias"]
        x = functional.conv2d(x, weight, bias, stride=stride).relu()
    x = x[0].transpose(0, 1).flatten(1)
    x = _linear(w, f"encoder.embed.{projection}", x) * math.sqrt(settings.output_size)
    if settings.pos_enc == "abs_pos":
        x = x + sinusoids(x.shape[0], x.shape[1], first_position)
    block = _block if settings.encoder == "conformer" else _transformer_block
    for index in range(settings.num_blocks):
        x = block(w, f"encoder.encoders.{index}.", settings, x, visible)
    return _norm(w, "encoder.after_norm", x)


def naive_attention(
    w: dict[str, Tensor], prefix: str, heads: int, x: Tensor, visible: Tensor | None
) -> Tensor:
    """((q + u)·k + (q + v)·p) / √d, one head and one pair of frames at a time.

    Without weights for positions it is q·k / √d.
    """
    if f"{prefix}linear_pos.weight" not in w:
        zeros = torch.zeros(heads, x.shape[1] // heads)
        unknowing = {f"{prefix}pos_bias_u": zeros, f"{prefix}pos_bias_v": zeros}
        w = w | unknowing | {f"{prefix}linear_pos.weight": torch.zeros(x.shape[1], x.shape[1])}
    frames, size = x.shape
    dim = size // heads
    q, k, v = (_linear(w, f"{prefix}linear_{name}", x) for name in "qkv")
    p = w["positions"] @ w[f"{prefix}linear_pos.weight"].T
    context = torch.zeros(frames, size)
    for head in range(heads):
        part = slice(head * dim, (head + 1) * dim)
        u_bias, v_bias = w[f"{prefix}pos_bias_u"][head], w[f"{prefix}pos_bias_v"][head]
        for i in range(frames):
            scores = torch.full((frames,), -math.inf)
            for j in range(frames):
                if visible is None or visible[i, j]:
                    content = torch.dot(q[i, part] + u_bias, k[j, part])
                    position = torch.dot(q[i, part] + v_bias, p[j, part])
                    scores[j] = (content + position) / math.sqrt(dim)
            context[i, part] = scores.softmax(0) @ v[:, part]
    return _linear(w, f"{prefix}linear_out", context)


def naive_convolution(
    w: dict[str, Tensor], prefix: str, settings: ModelSettings, x: Tensor
) -> Tensor:
    """The convolution module over (T, D), one output frame at a time."""
    kernel, frames = settings.kernel, x.shape[0]
    if settings.causal:
        x = torch.cat((torch.zeros(kernel - 1, x.shape[1]), x))
    doubled = x @ w[f"{prefix}pointwise_conv1.weight"][:, :, 0].T
    left, gate = (doubled + w[f"{prefix}pointwise_conv1.bias"]).chunk(2, dim=1)
    gated = left * torch.sigmoid(gate)
    if not settings.causal:
        side = torch.zeros((kernel - 1) // 2, x.shape[1])
        gated = torch.cat((side, gated, side))
    taps = w[f"{prefix}depthwise_conv.weight"][:, 0].T  # (kernel, D)
    filtered = torch.stack([(gated[t : t + kernel] * taps).sum(0) for t in range(frames)])
    filtered = filtered + w[f"{prefix}depthwise_conv.bias"]
    if settings.conv_norm == "layer_norm":
        filtered = _norm(w, f"{prefix}norm", filtered)
    else:
        deviation = torch.sqrt(w[f"{prefix}norm.running_var"] + 1e-5)
        filtered = (filtered - w[f"{prefix}norm.running_mean"]) / deviation
        filtered = filtered * w[f"{prefix}norm.weight"] + w[f"{prefix}norm.bias"]
    out = _activate(settings, filtered) @ w[f"{prefix}pointwise_conv2.weight"][:, :, 0].T
    return out + w[f"{prefix}pointwise_conv2.bias"]


def _block(
    w: dict[str, Tensor], at: str, settings: ModelSettings, x: Tensor, visible: Tensor | None
) -> Tensor:
    scale = 0.5 if settings.macaron else 1.0
    if settings.macaron:
        x = x + scale * _feed_forward(
            w, f"{at}feed_forward_macaron", settings, _norm(w, f"{at}norm_ff_macaron", x)
        )
    attention_in = _norm(w, f"{at}norm_mha", x)
    x = x + naive_attention(w, f"{at}self_attn.", settings.attention_heads, attention_in, visible)
    x = x + naive_convolution(w, f"{at}conv_module.", settings, _norm(w, f"{at}norm_conv", x))
    x = x + scale * _feed_forward(w, f"{at}feed_forward", settings, _norm(w, f"{at}norm_ff", x))
    return _norm(w, f"{at}norm_final", x)


def _transformer_block(
    w: dict[str, Tensor], at: str, settings: ModelSettings, x: Tensor, visible: Tensor | None
) -> Tensor:
    attention_in = _norm(w, f"{at}norm1", x)
    x = x + naive_attention(w, f"{at}self_attn.", settings.attention_heads, attention_in, visible)
    return x + _feed_forward(w, f"{at}feed_forward", settings, _norm(w, f"{at}norm2", x))


def _feed_forward(w: dict[str, Tensor], at: str, settings: ModelSettings, x: Tensor) -> Tensor:
    return _linear(w, f"{at}.w_2", _activate(settings, _linear(w, f"{at}.w_1", x)))


def _activate(settings: ModelSettings, x: Tensor) -> Tensor:
    if settings.activation == "swish":
        return x * torch.sigmoid(x)
    if settings.activation == "relu":
        return x.clamp_min(0.0)
    return x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))


def _linear(w: dict[str, Tensor], at: str, x: Tensor) -> Tensor:
    return x @ w[f"{at}.weight"].T + w[f"{at}.bias"]


def _norm(w: dict[str, Tensor], at: str, x: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    deviation = torch.sqrt(centred.square().mean(-1, keepdim=True) + 1e-5)
    return centred / deviation * w[f"{at}.weight"] + w[f"{at}.bias"]


def sinusoids(frames: int, size: int, first_position: int = 0) -> Tensor:
    """WeNet's encodings (frames, size) of positions from `first_position` on."""
    table = torch.zeros(frames, size)
    for frame in range(frames):
        for pair in range(0, size, 2):
            angle = (first_position + frame) / 10_000 ** (pair / size)
            table[frame, pair] = math.sin(angle)
            table[frame, pair + 1] = math.cos(angle)
    return table
