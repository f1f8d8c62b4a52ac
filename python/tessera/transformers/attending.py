"""Our attention behind transformers' attention interface. What it does not do goes to SDPA, with the reason kept."""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import flash_attention_mask

from .. import _native
from ..torch.functional import CAUSAL, FULL, attention

NAME = "tessera"  # of the attention implementation
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


class Calls:
    """How often each layer of a model called us, and which did not, and why."""

    def __init__(self) -> None:
        self.attention: dict[int, int] = {}
        self.fallbacks: dict[int, str] = {}

    def clear(self) -> None:
        self.attention.clear()
        self.fallbacks.clear()


def refusal(query: Tensor, mask: Tensor | None, options: dict[str, Any]) -> str | None:
    """Why this call is not ours; None: it is."""
    if query.dtype not in DTYPES:
        return f"dtype {query.dtype} (f32, f16 and bf16 are computed)"
    if mask is not None and mask.ndim != 2:
        return f"a mask of {mask.ndim} dimensions (padding masks [batch, keys] are taken)"
    for name in ("position_bias", "s_aux", "head_mask", "cache"):
        if options.get(name) is not None:
            return f"{name} was given"
    if options.get("output_attentions"):
        return "output_attentions was asked for, and flash attention has no weights to give"
    return None


def full_mask(mask: Tensor | None, query: Tensor, key: Tensor, causal: bool) -> Tensor | None:
    """For SDPA: a padding mask [batch, keys] as booleans [batch, 1, queries, keys]."""
    if mask is None or mask.ndim != 2:
        return mask
    n_q, n_k = query.shape[2], key.shape[2]
    allowed = mask[:, None, None, -n_k:].bool().expand(-1, 1, n_q, -1)
    return allowed & torch.ones(n_q, n_k, dtype=torch.bool, device=key.device).tril(n_k - n_q) if causal else allowed


def attend_padded(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, spec: list[int], **options: Any) -> Tensor:
    """Each sequence without its padding: the tokens that stay are neighbours, in order. Padded queries give zeros."""
    out = torch.zeros_like(q)
    n_q, n_k = q.shape[1], k.shape[1]
    kept = mask[:, -n_k:].bool()
    for row in range(q.shape[0]):
        keys = kept[row].nonzero().squeeze(-1)
        queries = kept[row, n_k - n_q :].nonzero().squeeze(-1)
        if len(queries) == 0:
            continue
        one = slice(row, row + 1)
        seen = attention(q[one, queries], k[one, keys], v[one, keys], spec, **options)
        out = out.index_put((torch.tensor([row], device=q.device)[:, None], queries[None, :]), seen)
    return out


def attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, dropout: float = 0.0,
    scaling: float | None = None, is_causal: bool | None = None, sliding_window: int | None = None,
    softcap: float | None = None, **options: Any,
) -> tuple[Tensor, None]:
    """What transformers calls: query, key, value are [batch, heads, tokens, dim]."""
    calls: Calls = module._tessera_calls
    layer = getattr(module, "layer_idx", -1)
    causal = is_causal if is_causal is not None else getattr(module, "is_causal", True)
    if reason := refusal(query, attention_mask, options):
        calls.fallbacks[layer] = reason
        return sdpa_attention_forward(
            module, query, key, value, full_mask(attention_mask, query, key, causal), dropout=dropout,
            scaling=scaling, is_causal=is_causal, softcap=softcap, **options,
        )
    calls.attention[layer] = calls.attention.get(layer, 0) + 1
    spec = CAUSAL if causal else FULL
    if sliding_window:
        spec = _native.Mask.window(sliding_window - 1, 0 if causal else sliding_window - 1).spec()
    q, k, v = (x.transpose(1, 2) for x in (query, key, value))
    numbers = {"scale": scaling or 0.0, "softcap": softcap or 0.0, "dropout_p": dropout}
    if attention_mask is None:
        return attention(q, k, v, spec, **numbers), None
    return attend_padded(q, k, v, attention_mask, spec, **numbers), None


def register() -> None:
    """Makes the implementation known to transformers, with masks as flash attention has them."""
    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, flash_attention_mask)
