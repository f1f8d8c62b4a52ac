"""The operators of torch.ops.tessera: opcheck, gradients against PyTorch's own, compiled without a graph break."""

import gc
import itertools
import sysconfig
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

import tessera
import tessera.torch as tt
from conftest import resident_bytes

OPS = torch.ops.tessera
MASKS = {
    "full": tessera.Mask.full(),
    "causal": tessera.Mask.causal(),
    "window": tessera.Mask.window(2, 1),
    "sinks": tessera.Mask.sinks(1, 3),
    "blocks": tessera.Mask.blocks(tessera.BlockMask.local(4, 3, 3, 1), causal=True),
}


def allowed(mask: tessera.Mask, n_q: int, n_k: int) -> torch.Tensor:
    rows = range(n_q)
    return torch.tensor([[mask.allows(i, i + n_k - n_q, j) for j in range(n_k)] for i in rows])


def plain_attention(q, k, v, mask, softcap=0.0):
    groups = q.shape[2] // k.shape[2]
    q, k, v = (x.transpose(1, 2) for x in (q, k.repeat_interleave(groups, 2), v.repeat_interleave(groups, 2)))
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    scores = scores.masked_fill(~allowed(mask, q.shape[2], k.shape[2]), -torch.inf)
    return (torch.softmax(scores, -1) @ v).transpose(1, 2)


def inputs(*shapes, dtype=torch.float32, grad=True):
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(s, generator=generator).to(dtype).requires_grad_(grad) for s in shapes]


def check_gradients(ours, theirs, tensors, atol=2e-5):
    """The same result and the same gradients of a random sum of it."""
    torch.testing.assert_close(ours, theirs, atol=atol, rtol=1e-4)
    weights = torch.randn(ours.shape, generator=torch.Generator().manual_seed(5)).to(ours.dtype)
    wanted = torch.autograd.grad((theirs * weights).sum(), tensors)
    for a, b in zip(torch.autograd.grad((ours * weights).sum(), tensors), wanted, strict=True):
        torch.testing.assert_close(a, b, atol=10 * atol, rtol=1e-3)


@pytest.mark.parametrize("name", MASKS)
def test_attention_gradients_with_every_mask_and_grouped_heads(name):
    q, k, v = inputs((2, 9, 4, 64), (2, 11, 2, 64), (2, 11, 2, 64))
    ours = tt.attention(q, k, v, MASKS[name], softcap=5.0)
    check_gradients(ours, plain_attention(q, k, v, MASKS[name], 5.0), [q, k, v])


def test_attention_returns_the_logarithms_of_its_sums():
    q, k, v = inputs((2, 9, 4, 64), (2, 11, 2, 64), (2, 11, 2, 64), grad=False)
    out, lse = tt.attention(q, k, v, scale=0.25, return_lse=True)
    assert torch.equal(out, tt.attention(q, k, v, scale=0.25))
    scores = 0.25 * q.transpose(1, 2) @ k.repeat_interleave(2, 2).permute(0, 2, 3, 1)
    torch.testing.assert_close(lse, torch.logsumexp(scores, -1), atol=2e-5, rtol=1e-5)


def test_attention_dropout_is_repeated_by_the_backward_pass():
    q, k, v = inputs((1, 16, 2, 64), (1, 16, 2, 64), (1, 16, 2, 64))
    seed = torch.tensor([17])
    ours = tt.attention(q, k, v, dropout_p=0.3, seed=seed)
    assert torch.equal(ours, tt.attention(q, k, v, dropout_p=0.3, seed=seed))
    assert not torch.equal(ours, tt.attention(q, k, v, dropout_p=0.3, seed=torch.tensor([18])))
    # v = identity shows the weights: which were dropped, and that the others were scaled.
    one = torch.eye(16, 64).reshape(1, 16, 1, 64).expand(1, 16, 2, 64)
    weights = tt.attention(q, k, one, dropout_p=0.3, seed=seed)[..., :16]
    plain = tt.attention(q, k, one)[..., :16]
    kept = (weights != 0).float() / 0.7
    torch.testing.assert_close(weights, plain * kept, atol=1e-6, rtol=1e-5)
    scores = torch.softmax(q.transpose(1, 2) @ k.permute(0, 2, 3, 1) / 8, -1)
    theirs = ((scores * kept.detach().transpose(1, 2)) @ v.transpose(1, 2)).transpose(1, 2)
    check_gradients(ours, theirs, [q, k, v])
    torch.manual_seed(4)
    first = tt.attention(q, k, v, dropout_p=0.3)
    torch.manual_seed(4)
    assert torch.equal(first, tt.attention(q, k, v, dropout_p=0.3))


def test_second_gradients_are_right_or_refused():
    """Those of attention do not exist: zeros would be silently wrong."""
    q, x, weight = inputs((1, 5, 2, 64), (3, 64), (64,))
    (gradient,) = torch.autograd.grad(tt.attention(q, q, q).square().sum(), q, create_graph=True)
    with pytest.raises(tessera.Error, match="attention has first gradients only"):
        torch.autograd.grad(gradient.sum(), q)
    layer = tt.FusedFP4Linear(64, 48, "gelu")

    def second(function):
        (gradient,) = torch.autograd.grad(function(x).square().sum(), x, create_graph=True)
        return torch.autograd.grad(gradient.square().sum(), x)[0]

    for ours, theirs in (
        (layer, lambda x: F.gelu(F.linear(x, layer.dense_weight(), layer.bias))),
        (lambda x: tt.rms_norm(x, weight), lambda x: F.rms_norm(x, (64,), weight, 1e-5)),
    ):
        expected = second(theirs)
        assert (second(ours) - expected).norm() / expected.norm() < 1e-5


def test_what_is_no_mask_is_refused_in_a_sentence():
    (q,) = inputs((1, 5, 2, 64))
    with pytest.raises(tessera.Error, match=r"^mask is a str; give a tessera.Mask, as Mask.causal\(\), or"):
        tt.attention(q, q, q, "causal")


@pytest.mark.parametrize("activation", ["none", "relu", "gelu", "gelu_tanh", "silu"])
@pytest.mark.parametrize("format", ["nvfp4", "int8"])
def test_linear_gradients_to_x_bias_and_residual(format, activation):
    layer = tt.FusedFP4Linear(64, 48, activation, format=format)
    x, residual = inputs((3, 5, 64), (3, 5, 48))
    act = {"none": lambda y: y, "gelu_tanh": lambda y: F.gelu(y, approximate="tanh")}.get(
        activation, getattr(F, activation, None)
    )
    theirs = act(F.linear(x, layer.dense_weight(), layer.bias)) + residual
    check_gradients(layer(x, residual), theirs, [x, layer.bias, residual])


@pytest.mark.parametrize(("kind", "count"), list(itertools.product(("layer", "rms"), (0, 1, 3))))
def test_norm_gradients_with_residuals(kind, count):
    x, weight, bias, *residuals = inputs((4, 7, 24), (24,), (24,), *[(4, 7, 24)] * count)
    total = sum(residuals, x)
    if kind == "layer":
        ours, theirs = tt.layer_norm(x, weight, bias, residuals), F.layer_norm(total, (24,), weight, bias)
    else:
        ours, theirs = tt.rms_norm(x, weight, residuals), F.rms_norm(total, (24,), weight, 1e-5)
    tensors = [x, weight, *residuals] + ([bias] if kind == "layer" else [])
    if count:
        check_gradients(ours[0] + 0.5 * ours[1], theirs + 0.5 * total, tensors)
    else:
        check_gradients(ours, theirs, tensors)


def test_norm_dropout_gradient():
    x, residual, weight = inputs((8, 32), (8, 32), (32,))
    seed = torch.tensor([6])
    out, total = tt.rms_norm(x, weight, [residual], dropout_p=0.4, seed=seed)
    kept = ((total - residual).detach() != 0).float() / 0.6
    expected = x * kept + residual
    check_gradients(out + total, F.rms_norm(expected, (32,), weight, 1e-5) + expected, [x, residual, weight])


def test_rotary_gradient():
    (x,) = inputs((2, 5, 3, 64))
    positions, inv_freq = torch.tensor([4, 0, 7, 2, 9]), torch.tensor(tessera.rope_inv_freq(32))
    angles = positions[:, None] * inv_freq
    cos, sin = angles.cos()[None, :, None], angles.sin()[None, :, None]
    a, b, rest = x[..., :16], x[..., 16:32], x[..., 32:]
    check_gradients(
        tt.rotary(x, positions, inv_freq), torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1), [x]
    )


def inputs_on(device, *shapes, dtype=torch.float32):
    """As inputs(), on a device: leaves of the graph there."""
    return [t.detach().to(device).requires_grad_() for t in inputs(*shapes, dtype=dtype)]


def attention_cases(device):
    shapes = (1, 5, 4, 64), (1, 5, 2, 64), (1, 5, 2, 64)
    q, k, v = inputs_on(device, *shapes)
    causal = MASKS["causal"].spec()
    plain_options, dropped = (causal, 0.0, 0.0, 0.0, None), (causal, 0.0, 0.0, 0.2, torch.tensor([3]))
    yield "attention", OPS.attention, (q, k, v, *plain_options)
    yield "attention_dropout", OPS.attention, (q, k, v, *dropped)
    for name, mask, dtype in (("f16", "causal", torch.float16), ("bf16", "window", torch.bfloat16)):
        options = MASKS[mask].spec(), 0.0, 0.0, 0.0, None
        yield f"attention_{name}_{mask}", OPS.attention, (*inputs_on(device, *shapes, dtype=dtype), *options)
    yield "attention_window", OPS.attention, (q, k, v, MASKS["window"].spec(), 0.0, 5.0, 0.0, None)
    yield "attention_sinks", OPS.attention, (q, k, v, MASKS["sinks"].spec(), 0.2, 0.0, 0.0, None)
    blocks = (MASKS["blocks"].spec(), 0.0, 0.0, 0.0, None)
    yield "attention_blocks", OPS.attention, (q, k, v, *blocks)
    plain = [t.detach() for t in (q, k, v)]
    for name, options in (
        ("attention_backward", plain_options), ("attention_backward_dropout", dropped),
        ("attention_backward_blocks", blocks),
    ):
        with torch.no_grad():
            out, lse = OPS.attention(q, k, v, *options)
        yield name, OPS.attention_backward, (torch.ones_like(out), *plain, out, lse, *options)


def opcheck_cases(device="cpu"):
    """Of each operator: a name, and its arguments. A seed is on the CPU, as new_seed() makes it."""
    yield from attention_cases(device)
    layer = tt.FusedFP4Linear(64, 32, "gelu").to(device)
    x, residual, weight, bias = inputs_on(device, (3, 64), (3, 64), (64,), (64,))
    packed = (layer.prepared, layer.prepared_spec, layer.packed, layer.packed_spec)
    layer_bias, added = layer.bias.detach(), inputs_on(device, (3, 32))[0]
    yield "linear", OPS.linear, (x, *packed, layer_bias.requires_grad_(), "gelu", None)
    yield "linear_residual", OPS.linear, (x, *packed, layer_bias.requires_grad_(), "silu", added)
    yield "linear_without_bias", OPS.linear, (x, *packed, None, "none", added)
    half = inputs_on(device, (3, 64), (32,), dtype=torch.bfloat16)
    yield "linear_bf16", OPS.linear, (half[0], *packed, half[1], "gelu", None)
    yield "dequantize", OPS.dequantize, (layer.packed, layer.packed_spec)
    seed = torch.tensor([3])
    yield "layer_norm", OPS.layer_norm, (x, [residual], weight, bias, 1e-5, 0.0, None)
    yield "layer_norm_alone", OPS.layer_norm, (x, [], weight, bias, 1e-5, 0.0, None)
    yield "layer_norm_without_bias", OPS.layer_norm, (x, [residual], weight, None, 1e-5, 0.0, None)
    yield "layer_norm_dropout", OPS.layer_norm, (x, [residual], weight, bias, 1e-5, 0.2, seed)
    yield "rms_norm", OPS.rms_norm, (x, [residual], weight, 1e-5, 0.0, None)
    yield "rms_norm_alone", OPS.rms_norm, (x, [], weight, 1e-5, 0.0, None)
    yield "rms_norm_dropout", OPS.rms_norm, (x, [residual], weight, 1e-5, 0.2, seed)
    half = inputs_on(device, (3, 64), (3, 64), (64,), dtype=torch.float16)
    yield "rms_norm_f16", OPS.rms_norm, (half[0], [half[1]], half[2], 1e-5, 0.0, None)
    inv_freq = torch.tensor(tessera.rope_inv_freq(64), device=device)
    (q,) = inputs_on(device, (1, 5, 4, 64))
    yield "rotary", OPS.rotary, (q, torch.arange(5, device=device), inv_freq, "half_split")


OPCHECK_NAMES = [name for name, _, _ in opcheck_cases()]


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("name", OPCHECK_NAMES)
def test_opcheck(name, device):
    ((op, arguments),) = [(op, arguments) for one, op, arguments in opcheck_cases(device) if one == name]
    torch.library.opcheck(op.default, arguments)


def test_a_compiled_function_has_no_graph_break():
    layer = tt.FusedFP4Linear(64, 64, "silu")
    weight = torch.ones(64)
    causal = MASKS["causal"].spec()

    def step(x):
        heads = layer(x).view(2, 6, 1, 64)
        out = tt.attention(heads, heads, heads, causal).reshape(2, 6, 64)
        return tt.rms_norm(out, weight, [x])[0]

    (x,) = inputs((2, 6, 64))
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    check_gradients(compiled(x), step(x), [x], atol=1e-6)


def why_not_inductor() -> str | None:
    """What inductor needs on a CPU, and this machine lacks."""
    from torch._inductor.cpp_builder import get_cpp_compiler

    try:
        get_cpp_compiler()
    except Exception as error:
        return f"inductor finds no C++ compiler: {error}"
    header = Path(sysconfig.get_path("include"), "Python.h")
    return None if header.exists() else f"inductor compiles against {header}, which is missing"


def test_inductor_compiles_grouped_heads_and_dropout(tmp_path, monkeypatch):
    """The default backend of torch.compile: our operators between code that it makes."""
    if why := why_not_inductor():
        pytest.skip(why)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    layer, weight, window = tt.FusedFP4Linear(256, 128, "gelu"), torch.ones(256), MASKS["window"].spec()

    def step(x, seed):
        k = layer(x).view(2, 6, 2, 64)
        out = tt.attention(x.view(2, 6, 4, 64), k, torch.tanh(k), window, dropout_p=0.2, seed=seed)
        return tt.rms_norm(out.reshape(2, 6, 256), weight, [x], dropout_p=0.1, seed=seed)[0]

    (x,) = inputs((2, 6, 256))
    seed = torch.tensor([5])
    with torch._inductor.config.patch(compile_threads=1):
        compiled = torch.compile(step, fullgraph=True)
        check_gradients(compiled(x, seed), step(x, seed), [x], atol=1e-6)
    assert not torch.equal(compiled(x, torch.tensor([6])), compiled(x, seed))


def test_forward_and_backward_leave_no_memory():
    """Neither Python objects, nor tensors, nor memory that no object holds."""
    layer, norm = tt.FusedFP4Linear(64, 64, "gelu"), tt.RMSNorm(64)
    (x,) = inputs((1, 32, 64))
    seed = torch.tensor([1])

    def steps(count):
        for _ in range(count):
            heads = layer(x).view(1, 32, 1, 64)
            out = tt.attention(heads, heads, heads, MASKS["causal"], dropout_p=0.1, seed=seed)
            out, total = norm(out.view(1, 32, 64), [x])
            (out + total).sum().backward()
            for tensor in (x, layer.bias, norm.weight):
                tensor.grad = None
        gc.collect()
        return len(gc.get_objects()), resident_bytes()

    steps(200)
    objects, memory = steps(100)
    objects_after, memory_after = steps(1000)
    assert objects_after - objects < 100
    assert memory_after - memory < 2 << 20  # one activation of each step would be 8 MB


@pytest.mark.gpu
@pytest.mark.parametrize("name", MASKS)
def test_attention_gradients_on_the_gpu(name):
    q, k, v = (t.detach().cuda().requires_grad_() for t in inputs((2, 9, 4, 64), (2, 11, 2, 64), (2, 11, 2, 64)))
    ours = tt.attention(q, k, v, MASKS[name])
    cpu = [t.detach().cpu().requires_grad_() for t in (q, k, v)]
    theirs = plain_attention(*cpu, MASKS[name])
    torch.testing.assert_close(ours.cpu(), theirs, atol=1e-4, rtol=1e-3)
    for a, b in zip(
        torch.autograd.grad(ours.sum(), [q, k, v]), torch.autograd.grad(theirs.sum(), cpu), strict=True
    ):
        torch.testing.assert_close(a.cpu(), b, atol=1e-3, rtol=1e-2)
