"""Modules that take the place of PyTorch's own: FlashAttention, FusedFP4Linear, TransformerBlock."""

import fnmatch
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .. import _native
from ..checkpoints import patterns
from .functional import CAUSAL, MaskLike, attention, layer_norm, linear, mask_spec, rms_norm, rotary
from .operators import IN, OUT

ACTIVATIONS = {
    "none": lambda x: x,
    "relu": nn.functional.relu,
    "gelu": nn.functional.gelu,
    "gelu_tanh": lambda x: nn.functional.gelu(x, approximate="tanh"),
    "silu": nn.functional.silu,
}


class FusedFP4Linear(nn.Module):
    """act(x W^T + b) with packed weights: decoding, product, bias and activation in one call. x and b have gradients.

    x: [..., in]. format: a name of `tessera.formats()`. `from_linear` packs a trained layer.

    >>> layer = tessera.torch.FusedFP4Linear.from_linear(torch.nn.Linear(64, 48), activation="gelu")
    >>> layer(torch.randn(2, 64)).shape
    torch.Size([2, 48])
    """

    def __init__(
        self, in_features: int, out_features: int, activation: str = "none", *, bias: bool = True,
        format: str = "nvfp4", group: int = -1, device: Any = None, dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        dense = nn.Linear(in_features, out_features, bias=bias, device=device, dtype=dtype)
        self._fill(dense, activation, format, group)

    @classmethod
    def from_linear(
        cls, dense: nn.Linear, activation: str = "none", format: str = "nvfp4", group: int = -1
    ) -> "FusedFP4Linear":
        """Packs the weights of a dense layer, with an activation that followed it."""
        layer = cls.__new__(cls)
        nn.Module.__init__(layer)
        layer._fill(dense, activation, format, group)
        return layer.train(dense.training)

    def _fill(self, dense: nn.Linear, activation: str, format: str, group: int) -> None:
        if activation not in ACTIVATIONS:
            raise _native.Error(f"activation {activation!r} is not known; give one of: {', '.join(ACTIVATIONS)}")
        self.in_features, self.out_features = dense.in_features, dense.out_features
        self.activation, self.format = activation, format
        self.register_buffer("packed", None)
        self.register_buffer("prepared", None, persistent=False)
        self.bias = None if dense.bias is None else nn.Parameter(dense.bias.detach().clone())
        weight = _native.quantize(dense.weight.detach(), format=format, group=group)
        self.packed_spec: list[int] = weight.spec()
        self.packed = torch.from_dlpack(weight.storage)
        self._prepare()

    def _prepare(self) -> None:
        """Lays the weights out for the kernels of the device they are on."""
        prepared = _native.prepare(_native.Weight.from_spec(self.packed, self.packed_spec))
        self.prepared_spec: list[int] = prepared.spec()
        self.prepared = torch.from_dlpack(prepared.storage)

    def _apply(self, fn, recurse: bool = True):
        device = self.packed.device
        self.prepared = None  # of the old device: not worth moving
        super()._apply(fn, recurse)
        if self.packed.device != device or self.prepared is None:
            self._prepare()
        return self

    def get_extra_state(self) -> Tensor:
        """The spec, as a tensor: safetensors holds nothing else."""
        return torch.tensor(self.packed_spec, dtype=torch.int64, device="cpu")

    def set_extra_state(self, state: Tensor | dict[str, Any]) -> None:
        spec = list(state["packed_spec"]) if isinstance(state, dict) else state.tolist()  # earlier files: a dict
        sizes, own = spec[OUT : IN + 1], [self.out_features, self.in_features]
        if sizes != own:
            raise _native.Error(f"the state is of a packed layer whose [out, in] is {sizes}; this one's is {own}")
        self.packed_spec = spec
        self.format = _native.Weight.from_spec(self.packed, spec).format
        self._prepare()

    def _load_from_state_dict(self, state_dict, prefix: str, *options) -> None:
        packed = state_dict.get(f"{prefix}packed")
        if packed is not None and f"{prefix}_extra_state" not in state_dict:
            raise _native.Error(f"the state has {prefix}packed without {prefix}_extra_state, which holds its scale")
        if packed is not None and packed.shape != self.packed.shape:  # of another format, which the state names
            self.packed = self.packed.new_empty(packed.shape)
        super()._load_from_state_dict(state_dict, prefix, *options)

    def __getstate__(self) -> dict[str, Any]:
        """For pickle and copy: without the kernels' layout, which is this processor's own."""
        return {**super().__getstate__(), "_buffers": {**self._buffers, "prepared": None}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._prepare()

    def dense_weight(self) -> Tensor:
        """The weights as they are after packing, f32 [out, in]."""
        return torch.ops.tessera.dequantize(self.packed, self.packed_spec)

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """x: [..., in] of f32, f16 or bf16; the residual, [..., out], is added after the activation."""
        return linear(
            x, self.prepared, self.prepared_spec, self.packed, self.packed_spec, self.bias, self.activation, residual
        )

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}, "
            f"format={self.format}, activation={self.activation}"
        )


def quantize_model(
    module: nn.Module, format: str = "nvfp4", keep_dense: str | Sequence[str] = (), group: int = -1
) -> nn.Module:
    """Replaces every nn.Linear below `module` by a FusedFP4Linear, in place, but those that keep_dense names.

    keep_dense: names as in named_modules(), where * stands for anything. A pattern that matches nothing is refused, and
    so is a module without linear layers below it. A layer of several names is packed once, if none of them is kept.

    >>> model = torch.nn.ModuleDict({"mlp": torch.nn.Linear(64, 64), "lm_head": torch.nn.Linear(64, 96)})
    >>> packed = tessera.torch.quantize_model(model, "nvfp4", keep_dense=["lm_*"])
    """
    keep_dense = patterns(keep_dense)
    named = module.named_modules(remove_duplicate=False)
    layers = {name: layer for name, layer in named if type(layer) is nn.Linear and name}
    if not layers:
        raise _native.Error(f"{type(module).__name__} has no nn.Linear below it; from_linear() packs a single layer")
    for pattern in keep_dense:
        if not any(fnmatch.fnmatchcase(name, pattern) for name in layers):
            raise _native.Error(f"keep_dense: {pattern!r} matches no linear layer; there are: {', '.join(layers)}")
    kept = {layer for name, layer in layers.items() if any(fnmatch.fnmatchcase(name, one) for one in keep_dense)}
    packed: dict[nn.Module, FusedFP4Linear] = {}
    for name, layer in layers.items():
        if layer in kept:
            continue
        if layer not in packed:
            packed[layer] = FusedFP4Linear.from_linear(layer, format=format, group=group)
        parent, _, child = name.rpartition(".")
        setattr(module.get_submodule(parent), child, packed[layer])
    return module


class FlashAttention(nn.Module):
    """Self-attention with its projections: output(attention(qkv(x))) + residual.

    x: [batch, seq, d_model]. rotary_dims: elements of a head that are rotated by their position; 0: none. mask: what
    forward() uses where it is given none.

    >>> tessera.torch.FlashAttention(512, 8, kv_heads=2, rotary_dims=64)(torch.randn(1, 5, 512)).shape
    torch.Size([1, 5, 512])
    """

    def __init__(
        self, d_model: int, n_heads: int, *, kv_heads: int | None = None, rotary_dims: int = 0,
        rope_theta: float = 10000.0, rope_style: str = "half_split", bias: bool = True, dropout: float = 0.0,
        mask: MaskLike = CAUSAL, device: Any = None, dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        kv_heads = n_heads if kv_heads is None else kv_heads
        if n_heads < 1 or d_model % n_heads:
            raise _native.Error(f"d_model is {d_model} and n_heads {n_heads}: heads must divide it")
        if kv_heads < 1 or n_heads % kv_heads:
            raise _native.Error(f"n_heads is {n_heads} and kv_heads {kv_heads}: these must divide those")
        self.n_heads, self.kv_heads, self.head_dim = n_heads, kv_heads, d_model // n_heads
        self.dropout, self.mask = dropout, mask_spec(mask)
        self.rope_theta, self.rope_style, self.rotary_dims = rope_theta, rope_style, rotary_dims
        rows = (n_heads + 2 * self.kv_heads) * self.head_dim  # all query heads, then key heads, then value heads
        self.qkv = nn.Linear(d_model, rows, bias=bias, device=device, dtype=dtype)
        self.output = nn.Linear(d_model, d_model, bias=bias, device=device, dtype=dtype)
        self.register_buffer("inv_freq", None, persistent=False)
        self._make_inv_freq()

    def _make_inv_freq(self) -> None:
        if self.rotary_dims:
            values = _native.rope_inv_freq(self.rotary_dims, self.rope_theta)
            device = next(t.device for t in (*self.parameters(), *self.buffers()))  # packed layers are buffers
            self.inv_freq = torch.tensor(values, dtype=torch.float32, device=device)

    def _apply(self, fn, recurse: bool = True):
        super()._apply(fn, recurse)
        self._make_inv_freq()  # f32 whatever the weights become
        return self

    def forward(self, x: Tensor, mask: MaskLike = None, residual: Tensor | None = None) -> Tensor:
        if x.ndim != 3:
            raise _native.Error(f"FlashAttention: x is {list(x.shape)}; give [batch, seq, d_model]")
        batch, seq, d_model = x.shape
        heads = [self.n_heads, self.kv_heads, self.kv_heads]
        q, k, v = self.qkv(x).view(batch, seq, sum(heads), self.head_dim).split(heads, dim=2)
        if self.rotary_dims:
            positions = torch.arange(seq, device=x.device)
            q = rotary(q, positions, self.inv_freq, self.rope_style)
            k = rotary(k, positions, self.inv_freq, self.rope_style)
        spec = self.mask if mask is None else mask_spec(mask)
        out = attention(q, k, v, spec, dropout_p=self.dropout if self.training else 0.0)
        return project(self.output, out.reshape(batch, seq, d_model), residual)

    def extra_repr(self) -> str:
        return f"n_heads={self.n_heads}, kv_heads={self.kv_heads}, rotary_dims={self.rotary_dims}"


def project(layer: nn.Module, x: Tensor, residual: Tensor | None) -> Tensor:
    """layer(x) + residual; packed layers add it in the same call."""
    if isinstance(layer, FusedFP4Linear):
        return layer(x, residual)
    return layer(x) if residual is None else residual + layer(x)


class LayerNorm(nn.Module):
    """LayerNorm of x + residuals, [..., width]: out, or (out, sum) with residuals.

    >>> out, hidden = tessera.torch.LayerNorm(64)(torch.randn(2, 64), [torch.randn(2, 64)])
    """

    def __init__(self, width: int, eps: float = 1e-5, *, device: Any = None, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.zeros(width, device=device, dtype=dtype))

    def forward(self, x: Tensor, residuals: Sequence[Tensor] = ()) -> Tensor | tuple[Tensor, Tensor]:
        return layer_norm(x, self.weight, self.bias, residuals, eps=self.eps)


class RMSNorm(nn.Module):
    """RMSNorm of x + residuals, [..., width]: out, or (out, sum) with residuals.

    >>> tessera.torch.RMSNorm(64)(torch.randn(2, 64)).shape
    torch.Size([2, 64])
    """

    def __init__(self, width: int, eps: float = 1e-5, *, device: Any = None, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width, device=device, dtype=dtype))

    def forward(self, x: Tensor, residuals: Sequence[Tensor] = ()) -> Tensor | tuple[Tensor, Tensor]:
        return rms_norm(x, self.weight, residuals, eps=self.eps)


class TransformerBlock(nn.Module):
    """One transformer layer.

    serial:    x1 = x + attention(norm1(x));  out = x1 + mlp(norm2(x1))
    parallel:  out = x + attention(norm1(x)) + mlp(norm2(x))

    x: [batch, seq, d_model]. norm: layer_norm or rms_norm. mlp: gelu, gelu_tanh or silu_gated. use_fp4 packs the
    linear layers but those that keep_dense names (attention.qkv, attention.output, gate, up, down).

    >>> block = tessera.torch.TransformerBlock(512, 8, 2048, use_fp4=True, keep_dense=["down"])
    >>> block(torch.randn(1, 5, 512)).shape
    torch.Size([1, 5, 512])
    """

    def __init__(
        self, d_model: int, n_heads: int, d_ff: int, use_fp4: bool = False, *, format: str = "nvfp4",
        keep_dense: Sequence[str] = (), parallel_residual: bool = False, norm: str = "layer_norm", mlp: str = "gelu",
        eps: float = 1e-5, bias: bool = True, device: Any = None, dtype: torch.dtype | None = None, **attention: Any,
    ) -> None:
        super().__init__()
        norms = {"layer_norm": LayerNorm, "rms_norm": RMSNorm}
        if norm not in norms:
            raise _native.Error(f"norm {norm!r} is not known; give one of: {', '.join(norms)}")
        if mlp not in ("gelu", "gelu_tanh", "silu_gated"):
            raise _native.Error(f"mlp {mlp!r} is not known; give one of: gelu, gelu_tanh, silu_gated")
        self.parallel_residual, self.mlp_kind = parallel_residual, mlp
        place = {"device": device, "dtype": dtype}
        self.norm1, self.norm2 = norms[norm](d_model, eps, **place), norms[norm](d_model, eps, **place)
        self.attention = FlashAttention(d_model, n_heads, bias=bias, **attention, **place)
        self.gate = nn.Linear(d_model, d_ff, bias=bias, **place) if mlp == "silu_gated" else None
        self.up = nn.Linear(d_model, d_ff, bias=bias, **place)
        self.down = nn.Linear(d_ff, d_model, bias=bias, **place)
        if use_fp4:
            self.quantize(format, keep_dense)

    def quantize(self, format: str = "nvfp4", keep_dense: Sequence[str] = ()) -> "TransformerBlock":
        """Packs the linear layers, in place; the MLP's activation becomes part of its first layer."""
        quantize_model(self, format, keep_dense)
        first = self.up if self.gate is None else self.gate
        if isinstance(first, FusedFP4Linear):
            first.activation = "silu" if self.gate is not None else self.mlp_kind
        return self

    def _first(self, layer: nn.Module, x: Tensor, activation: str) -> Tensor:
        return layer(x) if isinstance(layer, FusedFP4Linear) else ACTIVATIONS[activation](layer(x))

    def mlp(self, x: Tensor, residual: Tensor) -> Tensor:
        if self.gate is not None:
            hidden = self._first(self.gate, x, "silu") * self.up(x)
        else:
            hidden = self._first(self.up, x, self.mlp_kind)
        return project(self.down, hidden, residual)

    def forward(self, x: Tensor, mask: MaskLike = None) -> Tensor:
        """x: [batch, seq, d_model]."""
        if self.parallel_residual:
            return self.mlp(self.norm2(x), self.attention(self.norm1(x), mask, residual=x))
        normal, summed = self.norm2(self.attention(self.norm1(x), mask), [x])
        return self.mlp(normal, summed)
