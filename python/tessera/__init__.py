"""Tessera: language models in 4 bits, over endless streams, on the hardware you already have.

Ops take arrays of numpy, torch or any library with DLPack, without copies:

>>> out = tessera.attention(q=q, k=k, v=v, mask=tessera.Mask.causal())

Text comes from `LLM`:

>>> tessera.LLM().generate("Once upon a time")[0].text

`tessera.torch` and `tessera.transformers` are imported when they are first used; nothing else needs PyTorch.
"""

import importlib
import os
from typing import TYPE_CHECKING, Any

from ._native import (
    BlockMask,
    Communicator,
    Context,
    DeviceInfo,
    Dropout,
    Error,
    FormatInfo,
    Mask,
    PageTable,
    PerplexityResult,
    Rope,
    Tensor,
    Tokenizer,
    Trace,
    TraceEntry,
    Weight,
    __version__,
    _leave_threads_to_the_parent,
    adjust_logits,
    append_attention,
    argmax,
    attention,
    attention_backward,
    convert,
    count_tokens,
    cuda_status,
    default_context,
    dequantize,
    devices,
    draw_options,
    embedding,
    fill_counts,
    formats,
    gated_linear,
    kv_append,
    layer_norm,
    linear,
    logprobs,
    one_rank,
    packed_bytes,
    penalty_options,
    prepare,
    ring_attention,
    ring_attention_backward,
    rms_norm,
    rope_inv_freq,
    rotary,
    rotary_append,
    sample,
    sample_rows,
    softmax,
    top_k,
)
from .checkpoints import default_model, load_tokenizer, perplexity, quantize, quantize_checkpoint
from .llm import LLM
from .requests import Completion, RequestOutput, SamplingParams, StreamPiece

if TYPE_CHECKING:
    from . import torch as torch
    from . import transformers as transformers

# Without the two: `from tessera import *` would need PyTorch, and hide the caller's own `torch`.
__all__ = [
    "LLM",
    "BlockMask",
    "Communicator",
    "Completion",
    "Context",
    "DeviceInfo",
    "Dropout",
    "Error",
    "FormatInfo",
    "Mask",
    "PageTable",
    "PerplexityResult",
    "RequestOutput",
    "Rope",
    "SamplingParams",
    "StreamPiece",
    "Tensor",
    "Tokenizer",
    "Trace",
    "TraceEntry",
    "Weight",
    "__version__",
    "adjust_logits",
    "append_attention",
    "argmax",
    "attention",
    "attention_backward",
    "convert",
    "count_tokens",
    "cuda_status",
    "default_context",
    "default_model",
    "dequantize",
    "devices",
    "draw_options",
    "embedding",
    "fill_counts",
    "formats",
    "gated_linear",
    "kv_append",
    "layer_norm",
    "linear",
    "load_tokenizer",
    "logprobs",
    "one_rank",
    "packed_bytes",
    "penalty_options",
    "perplexity",
    "prepare",
    "quantize",
    "quantize_checkpoint",
    "ring_attention",
    "ring_attention_backward",
    "rms_norm",
    "rope_inv_freq",
    "rotary",
    "rotary_append",
    "sample",
    "sample_rows",
    "softmax",
    "top_k",
]

os.register_at_fork(after_in_child=_leave_threads_to_the_parent)


if not TYPE_CHECKING:  # a checker would take any name for one of ours

    def __getattr__(name: str) -> Any:
        if name in ("torch", "transformers"):
            return importlib.import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
