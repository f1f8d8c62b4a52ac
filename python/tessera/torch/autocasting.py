"""What the operators do under torch.autocast, as PyTorch's own do: products take its type, norms take f32."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from .operators import LIBRARY

OPS = torch.ops.tessera


def cast(x: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """float64 stays, as with PyTorch: the operators refuse it."""
    return x if x is None or not x.is_floating_point() or x.dtype == torch.float64 else x.to(dtype)


def register(name: str, rule: Callable) -> None:
    """rule(dtype, *arguments) calls the operator again, which no longer sees autocast."""
    for device in ("CPU", "CUDA"):
        key = f"Autocast{device}"
        hidden = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))

        def kernel(*arguments, device=device, hidden=hidden):
            dtype = torch.get_autocast_dtype(device.lower())
            with torch._C._ExcludeDispatchKeyGuard(hidden):
                return rule(dtype, *arguments)

        LIBRARY.impl(name, kernel, key)


def _attention(dtype: torch.dtype, q: Tensor, k: Tensor, v: Tensor, *options):
    return OPS.attention(cast(q, dtype), cast(k, dtype), cast(v, dtype), *options)


def _linear(dtype: torch.dtype, x: Tensor, *arguments):
    *arguments, residual = arguments
    x = cast(x, dtype)
    if residual is None or residual.dtype == x.dtype:
        return OPS.linear(x, *arguments, residual)
    return residual + OPS.linear(x, *arguments, None)  # a residual of f32 stays one


def _norm(op: Callable) -> Callable:
    def rule(_, x: Tensor, residuals: Sequence[Tensor], *arguments):
        f32 = torch.float32
        return op(cast(x, f32), [cast(r, f32) for r in residuals], *arguments)

    return rule


register("attention", _attention)
register("linear", _linear)
register("layer_norm", _norm(OPS.layer_norm))
register("rms_norm", _norm(OPS.rms_norm))
