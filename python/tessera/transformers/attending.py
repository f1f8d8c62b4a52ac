"""Our attention behind transformers' attention interface. What it does not do goes to SDPA, with the reason kept."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, masking_utils
from transformers.integrations.sdpa_attention import sdpa_attention_forward

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
        return (
            f"a mask of {mask.ndim} dimensions, which static caches, packed sequences and masks of one's own become "
            "(padding masks [batch, keys] are taken)"
        )
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


BOTH = masking_utils.and_masks(masking_utils.causal_mask_function).__code__
PACKED = masking_utils.packed_sequence_mask_function(torch.zeros(1, 1)).__code__


def parts(function: Callable) -> tuple[Callable, ...]:
    """The mask functions that transformers put together, but that of packed sequences where there is only one."""
    code = getattr(function, "__code__", None)
    held = function.__closure__[0].cell_contents if code in (BOTH, PACKED) else None
    if code is BOTH:
        return tuple(part for one in held for part in parts(one))
    return () if code is PACKED and bool((held == held[:, :1]).all()) else (function,)


def is_same(a: Any, b: Any) -> bool:
    """Whether two mask functions compute the same: the same code around the same values."""
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(is_same, a, b))
    if hasattr(a, "__code__") and hasattr(b, "__code__"):
        cells = (tuple(cell.cell_contents for cell in f.__closure__ or ()) for f in (a, b))
        return a.__code__ is b.__code__ and is_same(*cells)
    return a is b or (isinstance(a, int) and isinstance(b, int) and a == b)


def follows(mask_function: Callable, window: int | None, kind: str) -> bool:
    """Whether a mask function is the plain one of its kind, "causal" or "bidirectional"; window: of a sliding one."""
    prefix = "" if window is None else "sliding_window_"
    plain = getattr(masking_utils, f"{prefix}{kind}_mask_function", None)  # older releases lack some
    return plain is not None and is_same(parts(mask_function), parts(plain if window is None else plain(window)))


def mask_of(
    *, kv_length: int, kv_offset: int = 0, mask_function: Callable = masking_utils.causal_mask_function,
    attention_mask: Tensor | None = None, local_size: int | None = None, **options: Any,
) -> Tensor | None:
    """What transformers calls for a mask, which attend() is then given.

    None: no token is padding. [batch, tokens so far]: some are; generate() has us make it again of itself. Both leave
    the rest to attend(): a causal or sliding mask over keys of which the last is the last query's own, or no mask.
    Whatever else there is (caches with room for more tokens, packed sequences, functions of a model's own) becomes the
    mask [batch, 1, queries, keys] of SDPA.
    """
    if "cache_position" in options:  # before transformers 5
        end = int(options["cache_position"][-1]) + 1
    else:
        end = options["q_length"] + options.get("q_offset", 0)
    # A static cache tells its offset as a tensor: to read it would wait for a GPU, and it has room for more anyway.
    aligned = not isinstance(end, Tensor) and kv_offset + kv_length == end
    ours = (follows(mask_function, local_size, "causal") and aligned) or (
        follows(mask_function, local_size, "bidirectional") and (aligned or local_size is None)
    )
    if ours and attention_mask is None:
        return None
    if ours and attention_mask.ndim == 2 and attention_mask.shape[1] == kv_offset + kv_length:
        return None if attention_mask[:, kv_offset:].all() else attention_mask
    options.update(allow_is_causal_skip=False, allow_is_bidirectional_skip=False)
    return masking_utils.sdpa_mask(
        kv_length=kv_length, kv_offset=kv_offset, mask_function=mask_function, attention_mask=attention_mask,
        local_size=local_size, **options,
    )


def register() -> None:
    """Makes the implementation known to transformers."""
    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, mask_of)
