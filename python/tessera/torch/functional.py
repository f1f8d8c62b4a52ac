"""Functions on torch tensors, with gradients."""

from collections.abc import Sequence
from typing import Literal, overload

import torch
from torch import Tensor

from .. import _native
from . import autocasting, gradients  # noqa: F401  register what autocast and the backward passes do
from .operators import LIBRARY  # noqa: F401  registers the operators

OPS = torch.ops.tessera
MaskLike = _native.Mask | Sequence[int] | None

FULL: list[int] = _native.Mask.full().spec()
CAUSAL: list[int] = _native.Mask.causal().spec()


def mask_spec(mask: MaskLike) -> list[int]:
    """A mask as the operators take it. In compiled code, give `mask.spec()` that was taken before."""
    if mask is None:
        return FULL
    if isinstance(mask, _native.Mask):
        return mask.spec()
    if not isinstance(mask, (list, tuple)):
        raise _native.Error(f"mask is a {type(mask).__name__}; give a tessera.Mask, as Mask.causal(), or its spec()")
    return list(mask)


def records(*tensors: Tensor | None) -> bool:
    """Whether autograd or a compiler has to see the call."""
    return torch.compiler.is_compiling() or (
        torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)
    )


def call(op, recorded: bool, *arguments):
    """op(*arguments). What nobody differentiates goes past autograd's Python code, which is slow for small ops."""
    if recorded:
        return op(*arguments)
    with torch._C._AutoDispatchBelowAutograd():
        return op(*arguments)


def new_seed() -> Tensor:
    """A seed from torch's generator, so that torch.manual_seed decides it."""
    return torch.randint(0, 2**62, (1,))


@overload
def attention(
    q: Tensor, k: Tensor, v: Tensor, mask: MaskLike = None, *, scale: float = 0.0, softcap: float = 0.0,
    dropout_p: float = 0.0, seed: Tensor | None = None, return_lse: Literal[False] = False,
) -> Tensor: ...
@overload
def attention(
    q: Tensor, k: Tensor, v: Tensor, mask: MaskLike = None, *, scale: float = 0.0, softcap: float = 0.0,
    dropout_p: float = 0.0, seed: Tensor | None = None, return_lse: Literal[True],
) -> tuple[Tensor, Tensor]: ...
def attention(
    q: Tensor, k: Tensor, v: Tensor, mask: MaskLike = None, *, scale: float = 0.0, softcap: float = 0.0,
    dropout_p: float = 0.0, seed: Tensor | None = None, return_lse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """softmax(scale q k^T + mask) v. q: [batch, n_q, heads, dim]; k, v: [batch, n_k, kv_heads, dim].

    >>> q, k = torch.randn(1, 5, 8, 64), torch.randn(1, 5, 2, 64)
    >>> tessera.torch.attention(q, k, k, tessera.Mask.causal()).shape
    torch.Size([1, 5, 8, 64])
    """
    if dropout_p > 0 and seed is None:
        seed = new_seed()
    out, lse = call(
        OPS.attention, records(q, k, v), q, k, v, mask_spec(mask), scale, softcap, dropout_p, seed
    )
    return (out, lse) if return_lse else out


def linear(
    x: Tensor, prepared: Tensor, prepared_spec: list[int], packed: Tensor, packed_spec: list[int],
    bias: Tensor | None = None, activation: str = "none", residual: Tensor | None = None,
) -> Tensor:
    """act(x W^T + bias) + residual, with a packed weight; `FusedFP4Linear` holds its two forms.

    x: [..., in]; bias: [out]; residual and the result: [..., out]. prepared, packed: bytes, as `Weight.storage` has
    them, each with its `Weight.spec()`.

    >>> packed = tessera.quantize(torch.ones(48, 64), format="nvfp4")
    >>> forms = [(torch.from_dlpack(w.storage), w.spec()) for w in (tessera.prepare(packed), packed)]
    >>> tessera.torch.linear(torch.ones(2, 64), *forms[0], *forms[1], activation="gelu").shape
    torch.Size([2, 48])
    """
    recorded = records(x, bias, residual)
    return call(OPS.linear, recorded, x, prepared, prepared_spec, packed, packed_spec, bias, activation, residual)


@overload
def layer_norm(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, residuals: tuple[()] = (), *, eps: float = 1e-5,
    dropout_p: float = 0.0, seed: Tensor | None = None,
) -> Tensor: ...
@overload
def layer_norm(
    x: Tensor, weight: Tensor, bias: Tensor | None, residuals: Sequence[Tensor], *, eps: float = 1e-5,
    dropout_p: float = 0.0, seed: Tensor | None = None,
) -> tuple[Tensor, Tensor]: ...
def layer_norm(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, residuals: Sequence[Tensor] = (), *, eps: float = 1e-5,
    dropout_p: float = 0.0, seed: Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """LayerNorm of dropout(x) + residuals. x, residuals: [..., n]; weight, bias: [n].

    Returns out, or (out, sum) with residuals.

    >>> branch, hidden, weight, bias = torch.randn(2, 64), torch.randn(2, 64), torch.ones(64), torch.zeros(64)
    >>> out, hidden = tessera.torch.layer_norm(branch, weight, bias, [hidden])
    """
    if dropout_p > 0 and seed is None:
        seed = new_seed()
    recorded = records(x, weight, bias, *residuals)
    out, total = call(OPS.layer_norm, recorded, x, list(residuals), weight, bias, eps, dropout_p, seed)
    return (out, total) if residuals else out


@overload
def rms_norm(
    x: Tensor, weight: Tensor, residuals: tuple[()] = (), *, eps: float = 1e-5, dropout_p: float = 0.0,
    seed: Tensor | None = None,
) -> Tensor: ...
@overload
def rms_norm(
    x: Tensor, weight: Tensor, residuals: Sequence[Tensor], *, eps: float = 1e-5, dropout_p: float = 0.0,
    seed: Tensor | None = None,
) -> tuple[Tensor, Tensor]: ...
def rms_norm(
    x: Tensor, weight: Tensor, residuals: Sequence[Tensor] = (), *, eps: float = 1e-5, dropout_p: float = 0.0,
    seed: Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """RMSNorm of dropout(x) + residuals. x, residuals: [..., n]; weight: [n].

    Returns out, or (out, sum) with residuals.

    >>> tessera.torch.rms_norm(torch.randn(2, 64), torch.ones(64), eps=1e-6).shape
    torch.Size([2, 64])
    """
    if dropout_p > 0 and seed is None:
        seed = new_seed()
    recorded = records(x, weight, *residuals)
    out, total = call(OPS.rms_norm, recorded, x, list(residuals), weight, eps, dropout_p, seed)
    return (out, total) if residuals else out


def rotary(x: Tensor, positions: Tensor, inv_freq: Tensor, style: str = "half_split") -> Tensor:
    """Rotates x [batch, seq, heads, dim] by positions ([seq] or [batch, seq]); inv_freq: f32 [dims / 2].

    >>> inv_freq = torch.tensor(tessera.rope_inv_freq(64))
    >>> tessera.torch.rotary(torch.randn(1, 5, 8, 64), torch.arange(5), inv_freq).shape
    torch.Size([1, 5, 8, 64])
    """
    return call(OPS.rotary, records(x), x, positions, inv_freq, style)
