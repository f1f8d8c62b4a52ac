"""The operators `torch.ops.tessera.*`: schemas, kernels for CPU and CUDA, and fake kernels for tracing.

A kernel hands its tensors to the plain functions of `tessera` without a copy; those put their work in order with
torch's current stream. Gradients are in gradients.py.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from .. import _native

LIBRARY = torch.library.Library("tessera", "FRAGMENT")


def define(schema: str, kernel: Callable, fake: Callable) -> None:
    name = schema.split("(", 1)[0]
    LIBRARY.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    LIBRARY.impl(name, kernel, "CPU")
    LIBRARY.impl(name, kernel, "CUDA")
    torch.library.register_fake(f"tessera::{name}", fake, lib=LIBRARY)


def rows(x: Tensor) -> Tensor:
    """x, or a copy of it if its last dimension is not contiguous, which no kernel takes."""
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def dropout_of(p: float, seed: Tensor | None) -> _native.Dropout:
    if p == 0:
        return _native.Dropout()
    if seed is None:
        raise _native.Error(f"a dropout of {p} was asked for without a seed; give one, an int64 tensor of one element")
    return _native.Dropout(p, int(seed.item()))


# ---- attention -------------------------------------------------------------------------------------------------------

_MASKS: dict[tuple[int, ...], _native.Mask] = {}


def mask_of(spec: list[int]) -> _native.Mask:
    """The mask of its list of numbers; few different ones are in use at a time."""
    key = tuple(spec)
    mask = _MASKS.get(key)
    if mask is None:
        if len(_MASKS) >= 256:
            _MASKS.clear()
        mask = _MASKS[key] = _native.Mask.from_spec(spec)
    return mask


def _attention(q, k, v, mask, scale, softcap, dropout_p, seed):
    q, k, v = rows(q), rows(k), rows(v)
    out = q.new_empty(q.shape)
    lse = q.new_empty((q.shape[0], q.shape[2], q.shape[1]), dtype=torch.float32)
    _native.attention(
        q=q, k=k, v=v, out=out, lse=lse, mask=mask_of(mask), scale=scale, softcap=softcap,
        dropout=dropout_of(dropout_p, seed),
    )
    return out, lse


def _attention_fake(q, k, v, mask, scale, softcap, dropout_p, seed):
    return q.new_empty(q.shape), q.new_empty((q.shape[0], q.shape[2], q.shape[1]), dtype=torch.float32)


def _attention_backward(d_out, q, k, v, out, lse, mask, scale, softcap, dropout_p, seed):
    q, k, v = rows(q), rows(k), rows(v)
    gradients = q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)
    _native.attention_backward(
        q=q, k=k, v=v, out=out, lse=lse, d_out=rows(d_out), d_q=gradients[0], d_k=gradients[1], d_v=gradients[2],
        mask=mask_of(mask), scale=scale, softcap=softcap, dropout=dropout_of(dropout_p, seed),
        deterministic=torch.are_deterministic_algorithms_enabled(),
    )
    return gradients


def _attention_backward_fake(d_out, q, k, v, out, lse, mask, scale, softcap, dropout_p, seed):
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


define(
    "attention(Tensor q, Tensor k, Tensor v, int[] mask, float scale, float softcap, float dropout_p, "
    "Tensor? seed) -> (Tensor, Tensor)",
    _attention, _attention_fake,
)
define(
    "attention_backward(Tensor d_out, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, int[] mask, "
    "float scale, float softcap, float dropout_p, Tensor? seed) -> (Tensor, Tensor, Tensor)",
    _attention_backward, _attention_backward_fake,
)


# ---- linear ----------------------------------------------------------------------------------------------------------
# A packed weight is two tensors of bytes and where their parts lie (`Weight.spec`): `packed`, as checkpoints store it,
# and `prepared`, as the kernels read it.

OUT, IN = 2, 3  # places of the sizes in a spec


def _linear(x, prepared, prepared_spec, packed, packed_spec, bias, activation, residual):
    x = rows(x)
    out = x.new_empty((*x.shape[:-1], packed_spec[OUT]))
    _native.linear(
        x=x, weight=_native.Weight.from_spec(prepared, prepared_spec), bias=bias, activation=activation,
        residual=None if residual is None else rows(residual), out=out,
    )
    return out


def _linear_fake(x, prepared, prepared_spec, packed, packed_spec, bias, activation, residual):
    return x.new_empty((*x.shape[:-1], packed_spec[OUT]))


def _dequantize(packed, packed_spec):
    out = packed.new_empty((packed_spec[OUT], packed_spec[IN]), dtype=torch.float32)
    _native.dequantize(_native.Weight.from_spec(packed, packed_spec), out)
    return out


def _dequantize_fake(packed, packed_spec):
    return packed.new_empty((packed_spec[OUT], packed_spec[IN]), dtype=torch.float32)


define(
    "linear(Tensor x, Tensor prepared, int[] prepared_spec, Tensor packed, int[] packed_spec, Tensor? bias, "
    "str activation, Tensor? residual) -> Tensor",
    _linear, _linear_fake,
)
define("dequantize(Tensor packed, int[] packed_spec) -> Tensor", _dequantize, _dequantize_fake)


# ---- norms -----------------------------------------------------------------------------------------------------------
# The second result is the sum of x and the residuals; without residuals it is empty.


def _sum_of(x: Tensor, residuals: list[Tensor]) -> Tensor:
    return x.new_empty(x.shape if residuals else (0,))


def _layer_norm(x, residuals, weight, bias, eps, dropout_p, seed):
    x, out, total = rows(x), x.new_empty(x.shape), _sum_of(x, residuals)
    _native.layer_norm(
        x=x, weight=weight, bias=bias, residuals=[rows(r) for r in residuals], sum=total if residuals else None,
        eps=eps, dropout=dropout_of(dropout_p, seed), out=out,
    )
    return out, total


def _rms_norm(x, residuals, weight, eps, dropout_p, seed):
    x, out, total = rows(x), x.new_empty(x.shape), _sum_of(x, residuals)
    _native.rms_norm(
        x=x, weight=weight, residuals=[rows(r) for r in residuals], sum=total if residuals else None, eps=eps,
        dropout=dropout_of(dropout_p, seed), out=out,
    )
    return out, total


def _norm_fake(x, residuals, *_):
    return x.new_empty(x.shape), _sum_of(x, residuals)


define(
    "layer_norm(Tensor x, Tensor[] residuals, Tensor weight, Tensor? bias, float eps, "
    "float dropout_p, Tensor? seed) -> (Tensor, Tensor)",
    _layer_norm, _norm_fake,
)
define(
    "rms_norm(Tensor x, Tensor[] residuals, Tensor weight, float eps, float dropout_p, "
    "Tensor? seed) -> (Tensor, Tensor)",
    _rms_norm, _norm_fake,
)


# ---- rotary ----------------------------------------------------------------------------------------------------------


def _rotary(x, positions, inv_freq, style):
    x, out = rows(x), x.new_empty(x.shape)
    _native.rotary(x=x, positions=positions, rope=_native.Rope(inv_freq, style), out=out)
    return out


def _rotary_fake(x, positions, inv_freq, style):
    return x.new_empty(x.shape)


define(
    "rotary(Tensor x, Tensor positions, Tensor inv_freq, str style) -> Tensor", _rotary, _rotary_fake
)
