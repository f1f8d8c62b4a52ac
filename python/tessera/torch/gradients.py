"""The backward passes of the operators. Each is written in operators again, so that a compiler sees through it."""

import math

import torch
from torch import Tensor

from .. import _native
from .operators import LIBRARY

OPS = torch.ops.tessera


def _register(name: str, backward, setup_context) -> None:
    torch.library.register_autograd(f"tessera::{name}", backward, setup_context=setup_context, lib=LIBRARY)


# ---- attention -------------------------------------------------------------------------------------------------------


def _attention_setup(ctx, inputs, output) -> None:
    q, k, v, mask, scale, softcap, dropout_p, seed = inputs
    ctx.save_for_backward(q, k, v, *output, *([] if seed is None else [seed]))
    ctx.options = mask, scale, softcap, dropout_p
    ctx.mark_non_differentiable(output[1])


def _attention_backward(ctx, d_out, _d_lse):
    q, k, v, out, lse, *seed = ctx.saved_tensors
    gradients = OPS.attention_backward(d_out, q, k, v, out, lse, *ctx.options, seed[0] if seed else None)
    return (*gradients, None, None, None, None, None)


def _no_second_gradients(ctx, *_):
    raise _native.Error("attention has first gradients only; leave out create_graph=True, or use PyTorch's attention")


_register("attention", _attention_backward, _attention_setup)
_register("attention_backward", _no_second_gradients, lambda ctx, inputs, output: None)


# ---- linear ----------------------------------------------------------------------------------------------------------


def activation_slope(activation: str, x: Tensor) -> Tensor:
    """The derivative of an activation at x."""
    if activation == "relu":
        return (x > 0).to(x.dtype)
    if activation == "gelu":
        density = torch.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
        return 0.5 * (1 + torch.erf(x / math.sqrt(2))) + x * density
    if activation == "gelu_tanh":
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
        slope = math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x * x)
        tanh = torch.tanh(inner)
        return 0.5 * (1 + tanh) + 0.5 * x * (1 - tanh * tanh) * slope
    if activation == "silu":
        sigmoid = torch.sigmoid(x)
        return sigmoid * (1 + x * (1 - sigmoid))
    return torch.ones_like(x)


def _linear_setup(ctx, inputs, output) -> None:
    x, prepared, prepared_spec, packed, packed_spec, bias, activation, residual = inputs
    ctx.save_for_backward(x, prepared, packed, *([] if bias is None else [bias]))
    ctx.specs = prepared_spec, packed_spec
    ctx.activation = activation
    ctx.residual_dtype = None if residual is None else residual.dtype


def _linear_backward(ctx, d_out):
    x, prepared, packed, *bias = ctx.saved_tensors
    prepared_spec, packed_spec = ctx.specs
    gradient = d_out.float()
    if ctx.activation != "none":  # the sum before the activation is not kept: it is computed again
        before = OPS.linear(x, prepared, prepared_spec, packed, packed_spec, bias[0] if bias else None, "none", None)
        gradient = gradient * activation_slope(ctx.activation, before.float())
    d_x = (gradient @ OPS.dequantize(packed, packed_spec)).to(x.dtype) if ctx.needs_input_grad[0] else None
    d_bias = None
    if bias and ctx.needs_input_grad[5]:
        d_bias = gradient.reshape(-1, gradient.shape[-1]).sum(0).to(bias[0].dtype)
    d_residual = None if ctx.residual_dtype is None else d_out.to(ctx.residual_dtype)
    return d_x, None, None, None, None, d_bias, None, d_residual


_register("linear", _linear_backward, _linear_setup)


# ---- norms -----------------------------------------------------------------------------------------------------------


def _kept(x: Tensor, dropout_p: float, seed: Tensor | None) -> Tensor | None:
    """What dropout multiplied each element of x with: it drops the same places of a tensor of ones."""
    if dropout_p == 0:
        return None
    return OPS.rms_norm(torch.ones_like(x), [torch.zeros_like(x)], x.new_ones(x.shape[-1]), 1e-5, dropout_p, seed)[1]


def _norm_setup(ctx, inputs, output, has_bias: bool) -> None:
    x, residuals, weight, *rest = inputs
    bias = rest.pop(0) if has_bias else None
    eps, dropout_p, seed = rest
    summed = output[1] if residuals else x
    ctx.save_for_backward(summed, weight, *([] if seed is None else [seed]))
    ctx.residuals, ctx.eps, ctx.dropout_p = len(residuals), eps, dropout_p
    ctx.bias_dtype = None if bias is None else bias.dtype


def _norm_parts(ctx, d_out, d_sum, centred: bool):
    """Gradients of the sum, weight and bias, in f32."""
    summed, weight = ctx.saved_tensors[:2]
    s = summed.float()
    if centred:
        s = s - s.mean(-1, keepdim=True)
    scale = torch.rsqrt((s * s).mean(-1, keepdim=True) + ctx.eps)
    normal = s * scale
    d_out = d_out.float()
    d_normal = d_out * weight.float()
    d_s = d_normal - normal * (d_normal * normal).mean(-1, keepdim=True)
    if centred:
        d_s = d_s - d_normal.mean(-1, keepdim=True)
    d_s = d_s * scale
    if ctx.residuals and d_sum is not None:
        d_s = d_s + d_sum.float()
    width = d_out.shape[-1]
    d_weight = (d_out * normal).reshape(-1, width).sum(0).to(weight.dtype)
    d_bias = None if ctx.bias_dtype is None else d_out.reshape(-1, width).sum(0).to(ctx.bias_dtype)
    return d_s.to(summed.dtype), d_weight, d_bias


def _norm_inputs(ctx, d_s: Tensor):
    """Gradients of x and of the residuals."""
    seed = ctx.saved_tensors[2] if len(ctx.saved_tensors) > 2 else None
    kept = _kept(d_s, ctx.dropout_p, seed)
    return d_s if kept is None else d_s * kept, [d_s] * ctx.residuals


def _layer_norm_backward(ctx, d_out, d_sum):
    d_s, d_weight, d_bias = _norm_parts(ctx, d_out, d_sum, centred=True)
    d_x, d_residuals = _norm_inputs(ctx, d_s)
    return d_x, d_residuals, d_weight, d_bias, None, None, None


def _rms_norm_backward(ctx, d_out, d_sum):
    d_s, d_weight, _ = _norm_parts(ctx, d_out, d_sum, centred=False)
    d_x, d_residuals = _norm_inputs(ctx, d_s)
    return d_x, d_residuals, d_weight, None, None, None


_register("layer_norm", _layer_norm_backward, lambda ctx, inputs, output: _norm_setup(ctx, inputs, output, True))
_register("rms_norm", _rms_norm_backward, lambda ctx, inputs, output: _norm_setup(ctx, inputs, output, False))


# ---- rotary ----------------------------------------------------------------------------------------------------------


def _rotary_setup(ctx, inputs, output) -> None:
    _, positions, inv_freq, style = inputs
    ctx.save_for_backward(positions, inv_freq)
    ctx.style = style


def _rotary_backward(ctx, d_out):
    positions, inv_freq = ctx.saved_tensors
    return OPS.rotary(d_out, positions, -inv_freq, ctx.style), None, None, None  # rotated back


_register("rotary", _rotary_backward, _rotary_setup)
