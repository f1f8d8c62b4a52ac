"""Tessera's ops as PyTorch operators with gradients, and modules built from them.

Functions record gradients and can be compiled (`torch.compile(..., fullgraph=True)`); the plain functions of `tessera`
take torch tensors as well, but record nothing.
"""

from .functional import attention, layer_norm, linear, rms_norm, rotary
from .modules import FlashAttention, FusedFP4Linear, LayerNorm, RMSNorm, TransformerBlock, quantize_model

__all__ = [
    "FlashAttention",
    "FusedFP4Linear",
    "LayerNorm",
    "RMSNorm",
    "TransformerBlock",
    "attention",
    "layer_norm",
    "linear",
    "quantize_model",
    "rms_norm",
    "rotary",
]
