"""Attention sinks for models of transformers: the first tokens and a rolling window stay, for streams without an end.

Keys are cached before their rotation and rotated by their place in the cache as they are read, as in Tessera's own
engine (`CachePolicy::sinks`): constant memory, constant time for each token, positions that never leave the window.
"""

import types
from collections.abc import Callable

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache, DynamicLayer

from .. import _native
from ..torch.functional import rotary
from .attending import Calls

QKV = Callable[[nn.Module, Tensor], tuple[Tensor, Tensor, Tensor]]


class SinkLayer(DynamicLayer):
    """The cache of one layer: unrotated keys and values [batch, heads, tokens, dim] of the tokens that stay."""

    is_croppable = False

    def __init__(self, sinks: int, window: int) -> None:
        super().__init__()
        self.sinks, self.window, self.seen = sinks, window, 0

    def update(self, key_states: Tensor, value_states: Tensor, *args, **kwargs) -> tuple[Tensor, Tensor]:
        """All tokens that the new ones may see, and the new ones. Then lets go of what no later token sees."""
        keys, values = super().update(key_states, value_states)
        self.seen += key_states.shape[-2]
        if keys.shape[-2] > self.sinks + self.window:
            self.keys, self.values = (
                torch.cat([x[..., : self.sinks, :], x[..., x.shape[-2] - self.window :, :]], dim=-2)
                for x in (keys, values)
            )
        return keys, values

    def get_seq_length(self) -> int:
        return self.seen

    def get_mask_sizes(self, query: int | Tensor) -> tuple[int, int]:
        """query: how many tokens come, or, before transformers 5, their places."""
        return self.seen + (query if isinstance(query, int) else len(query)), 0

    def get_max_length(self) -> int:
        return -1

    def reset(self) -> None:
        super().reset()
        self.seen = 0


def qkv_of_gpt_neox(module: nn.Module, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    shape = (*hidden.shape[:-1], -1, 3 * module.head_size)
    return module.query_key_value(hidden).view(shape).chunk(3, dim=-1)


def qkv_of_llama(module: nn.Module, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    shape = (*hidden.shape[:-1], -1, module.head_dim)
    q, k, v = (getattr(module, name)(hidden).view(shape) for name in ("q_proj", "k_proj", "v_proj"))
    if hasattr(module, "q_norm"):  # qwen3
        q, k = module.q_norm(q), module.k_norm(k)
    return q, k, v


# By the name of the attention module's class.
PROJECTIONS: dict[str, tuple[QKV, str]] = {
    "GPTNeoXAttention": (qkv_of_gpt_neox, "dense"),
    "LlamaAttention": (qkv_of_llama, "o_proj"),
    "MistralAttention": (qkv_of_llama, "o_proj"),
    "Qwen2Attention": (qkv_of_llama, "o_proj"),
    "Qwen3Attention": (qkv_of_llama, "o_proj"),
}


def rotate(x: Tensor, first: int, inv_freq: Tensor) -> Tensor:
    return rotary(x, torch.arange(first, first + x.shape[1], device=x.device), inv_freq)


def merge(outs: list[Tensor], lses: list[Tensor]) -> Tensor:
    """Attention over two sets of keys from that over each: outs [batch, n, heads, dim], lses [batch, heads, n]."""
    total = torch.logaddexp(lses[0], lses[1])
    weights = [torch.exp(lse - total).transpose(1, 2).unsqueeze(-1) for lse in lses]
    return sum(out.float() * weight for out, weight in zip(outs, weights, strict=True)).to(outs[0].dtype)


def attend_stream(
    q: Tensor, keys: Tensor, values: Tensor, seen: int, sinks: int, window: int, inv_freq: Tensor, scale: float
) -> Tensor:
    """Queries [batch, n, heads, dim] of the newest n tokens, over all keys that any of them sees; `seen` came before.

    Until the window is full, a token's position is its place in the stream. From then on a query is at the end of the
    cache: its distance to a key of the window is the true one, and its distance to a sink stays the same.
    """
    capacity, n = sinks + window, q.shape[1]
    early = min(max(capacity - seen, 0), n)  # these see every token before them
    outs = []
    if early:
        k = rotate(keys[:, : seen + early], 0, inv_freq)
        outs.append(
            _native.attention(
                q=rotate(q[:, :early], seen, inv_freq), k=k, v=values[:, : seen + early].contiguous(),
                mask=_native.Mask.causal(), scale=scale,
            )
        )
    if n - early == 1 and keys.shape[1] >= capacity:  # the usual step: one token, one kernel
        place = torch.tensor([capacity - 1], device=q.device)
        newest = [torch.cat([x[:, :sinks], x[:, x.shape[1] - window :]], dim=1) for x in (keys, values)]
        outs.append(
            _native.attention(
                q=rotary(q[:, early:], place, inv_freq), k=newest[0], v=newest[1], scale=scale,
                rope_on_read=_native.Rope(inv_freq),
            )
        )
    elif early < n:
        outs.append(attend_late(q[:, early:], keys, values, sinks, window, inv_freq, scale))
    return outs[0] if len(outs) == 1 else torch.cat(outs, dim=1)


def attend_late(
    q: Tensor, keys: Tensor, values: Tensor, sinks: int, window: int, inv_freq: Tensor, scale: float
) -> Tensor:
    """Several queries, all past the window's first filling: sinks at their fixed distance, window at the true one."""
    n = q.shape[1]
    place = torch.full((n,), sinks + window - 1, device=q.device)
    of_sinks = _native.attention(
        q=rotary(q, place, inv_freq), k=rotate(keys[:, :sinks], 0, inv_freq), v=values[:, :sinks].contiguous(),
        lse=True, scale=scale,
    )
    recent = max(sinks, keys.shape[1] - n - window + 1)
    k, v = keys[:, recent:], values[:, recent:]
    of_window = _native.attention(
        q=rotate(q, k.shape[1] - n, inv_freq), k=rotate(k, 0, inv_freq), v=v.contiguous(), lse=True,
        mask=_native.Mask.window(window - 1, 0), scale=scale,
    )
    return merge([of_sinks[0], of_window[0]], [of_sinks[1], of_window[1]])


def layer_of(cache: Cache, index: int, sinks: int, window: int) -> SinkLayer:
    """The cache's layer, made ours while it is empty."""
    while len(cache.layers) <= index:
        cache.layers.append(SinkLayer(sinks, window))
    layer = cache.layers[index]
    if not isinstance(layer, SinkLayer):
        if layer.get_seq_length() > 0:
            raise _native.Error(
                f"streaming: the cache holds {layer.get_seq_length()} tokens that were read without attention sinks; "
                "begin with a new cache"
            )
        layer = cache.layers[index] = SinkLayer(sinks, window)
    return layer


def hides_tokens(mask: Tensor, seen: int, n: int) -> bool:
    """Whether a mask is more than that no token sees a later one; [batch, keys], or [batch, 1, queries, keys]."""
    if mask.ndim == 2:
        return not bool(mask.bool().all())
    causal = torch.ones(n, mask.shape[-1], dtype=torch.bool, device=mask.device).tril(seen)
    return mask.dtype != torch.bool or bool((mask != causal).any())


def make_forward(project: QKV, output: str, sinks: int, window: int) -> Callable:
    """The forward pass of an attention module with sinks."""

    def forward(self, hidden_states, *args, attention_mask=None, past_key_values=None, layer_past=None, **kwargs):
        cache = past_key_values if past_key_values is not None else layer_past
        layer = None if cache is None else layer_of(cache, self.layer_idx, sinks, window)
        seen = 0 if layer is None else layer.seen
        if attention_mask is not None and hides_tokens(attention_mask, seen, hidden_states.shape[1]):
            raise _native.Error(
                "streaming takes one stream for each row of a batch, without padding and without a mask of its own"
            )
        calls: Calls = self._tessera_calls
        calls.attention[self.layer_idx] = calls.attention.get(self.layer_idx, 0) + 1
        q, k, v = project(self, hidden_states)
        if layer is not None:
            k, v = (x.transpose(1, 2) for x in layer.update(k.transpose(1, 2), v.transpose(1, 2)))
        inv_freq = self._tessera_rotary.inv_freq.float()
        out = attend_stream(q.contiguous(), k, v, seen, sinks, window, inv_freq, self.scaling)
        return getattr(self, output)(out.reshape(*hidden_states.shape[:-1], -1)), None

    return forward


def stream(module: nn.Module, rotary_embedding: nn.Module, sinks: int, window: int) -> None:
    """Gives one attention module the forward pass with sinks."""
    if type(module).__name__ not in PROJECTIONS:
        raise _native.Error(
            f"streaming is not known for {type(module).__name__}; it is for {', '.join(PROJECTIONS)}"
        )
    if getattr(rotary_embedding, "attention_scaling", 1.0) != 1.0 or rotary_embedding.rope_type == "dynamic":
        raise _native.Error(
            f"streaming: rope type {rotary_embedding.rope_type!r} changes with the position; Tessera rotates keys by "
            "fixed frequencies"
        )
    limit = getattr(module, "sliding_window", getattr(module.config, "sliding_window", None))
    if limit and limit < sinks + window:
        raise _native.Error(
            f"streaming=({sinks}, {window}) keeps {sinks + window} tokens, but layers of this model see only the last "
            f"{limit}: choose sinks and a window of at most {limit} tokens together"
        )
    project, output = PROJECTIONS[type(module).__name__]
    # No submodule, and no closure either: copy.deepcopy() finds the copy's own rotary embedding.
    module.__dict__["_tessera_rotary"] = rotary_embedding
    module.forward = types.MethodType(make_forward(project, output, sinks, window), module)
