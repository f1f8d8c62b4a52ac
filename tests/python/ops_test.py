"""Every op of the quick reference, called from Python, against numpy."""

import re

import numpy as np
import pytest
import torch

import reference
import tessera
from conftest import ROOT, f32


def test_every_op_of_the_quick_reference_is_here():
    """But those that the page says are C++ only."""
    page = (ROOT / "docs/QUICK_REFERENCE.md").read_text()
    section = re.search(r"^## Operations\n(.*?)^## ", page, re.MULTILINE | re.DOTALL)[1]
    calls = [row.split("|")[1] for row in section.splitlines() if row.startswith("| `")]
    ops = {name for call in calls for name in re.findall(r"`(\w+)", call)}
    ours_alone = set(re.findall(r"`(\w+)`", re.search(r"^C\+\+ only.*", section, re.MULTILINE)[0]))
    assert {"attention", "rms_norm", "append_attention", "ring_attention_backward", "prepare"} <= ops and len(ops) > 25
    assert ours_alone < ops and not ours_alone & set(tessera.__all__), "no longer C++ only"
    assert ops - ours_alone - set(tessera.__all__) == set()
    assert all(callable(getattr(tessera, name)) for name in ops - ours_alone)


MASKS = [
    tessera.Mask.full(),
    tessera.Mask.causal(),
    tessera.Mask.window(3, 1),
    tessera.Mask.sinks(2, 4),
    tessera.Mask.blocks(tessera.BlockMask.local(4, 3, 4, 1), causal=True),
    tessera.Mask.blocks(tessera.BlockMask.random(4, 3, 4, 2, seed=1)),
]


@pytest.mark.parametrize("mask", MASKS, ids=repr)
def test_attention_with_every_mask(rng, mask):
    q, k, v = f32(rng, 2, 11, 4, 64), f32(rng, 2, 13, 2, 64), f32(rng, 2, 13, 2, 64)
    out, lse = tessera.attention(q=q, k=k, v=v, mask=mask, lse=True)
    expected, expected_lse = reference.attention(q, k, v, mask.allows)
    np.testing.assert_allclose(out, expected, atol=2e-6)
    np.testing.assert_allclose(lse, expected_lse, atol=2e-5)


def test_masks_survive_as_numbers():
    for mask in MASKS:
        assert tessera.Mask.from_spec(mask.spec()) == mask
    assert tessera.Mask.causal() != tessera.Mask.full()
    with pytest.raises(tessera.Error, match="describes no mask"):
        tessera.Mask.from_spec([9, 0, 0, 0])


def test_attention_writes_to_the_array_it_is_given(rng):
    q, k, v = (f32(rng, 1, 5, 2, 64) for _ in range(3))
    out, lse = np.full_like(q, np.nan), np.full((1, 2, 5), np.nan, np.float32)
    assert tessera.attention(q=q, k=k, v=v, out=out, lse=lse, mask=tessera.Mask.causal()) is out
    np.testing.assert_allclose(out, reference.attention(q, k, v, tessera.Mask.causal().allows)[0], atol=2e-6)
    assert np.isfinite(lse).all()


def test_attention_over_pages_and_with_keys_rotated_as_they_are_read(rng):
    dims, page = 64, 4
    k, v, q = f32(rng, 7, 2, dims), f32(rng, 7, 2, dims), f32(rng, 1, 1, 4, dims)
    kp, vp = np.zeros((3, page, 2, dims), np.float32), np.zeros((3, page, 2, dims), np.float32)
    table = np.array([[2, 0]], np.int32)
    slots = np.array([2 * page + i for i in range(4)] + list(range(3)), np.int32)
    tessera.kv_append(k=k, v=v, slots=slots, k_pages=kp, v_pages=vp)
    rope = tessera.Rope(np.float32(tessera.rope_inv_freq(dims)))
    pages = tessera.PageTable(table, np.array([7], np.int32))
    out = tessera.attention(q=q, k=kp, v=vp, pages=pages, rope_on_read=rope)
    rotated = reference.rotary(k[None], np.arange(7), rope.inv_freq)
    np.testing.assert_allclose(out, reference.attention(q, rotated, v[None])[0], atol=5e-6)


def test_attention_over_pages_with_a_hole(rng):
    """As a rolling window leaves them: from key 3 on, every key lies two slots further."""
    page, table = 4, np.array([[2, 0, 1]], np.int32)
    k, v, q = f32(rng, 9, 2, 64), f32(rng, 9, 2, 64), f32(rng, 1, 1, 4, 64)
    kp, vp = (np.full((3, page, 2, 64), 50, np.float32) for _ in range(2))
    places = np.array([j if j < 3 else j + 2 for j in range(9)])
    slots = (table[0, places // page] * page + places % page).astype(np.int32)
    tessera.kv_append(k=k, v=v, slots=slots, k_pages=kp, v_pages=vp)
    lengths, holes = np.array([9], np.int32), np.array([[3, 2]], np.int32)
    out = tessera.attention(q=q, k=kp, v=vp, pages=tessera.PageTable(table, lengths, holes=holes))
    np.testing.assert_allclose(out, reference.attention(q, k[None], v[None])[0], atol=5e-6)
    assert np.abs(tessera.attention(q=q, k=kp, v=vp, pages=tessera.PageTable(table, lengths)) - out).max() > 1


def test_keys_and_values_of_8_bits(rng):
    k, v, q = f32(rng, 4, 2, 64), f32(rng, 4, 2, 64), f32(rng, 1, 1, 4, 64)
    kp, vp = np.zeros((2, 4, 2, 64), np.int8), np.zeros((2, 4, 2, 64), np.int8)
    ks, vs = np.zeros((2, 2, 4), np.float32), np.zeros((2, 2, 4), np.float32)
    slots = np.arange(4, 8, dtype=np.int32)
    tessera.kv_append(k=k, v=v, slots=slots, k_pages=kp, v_pages=vp, k_scales=ks, v_scales=vs)
    np.testing.assert_allclose(ks[1].T, np.abs(k).max(-1) / 127, rtol=1e-6)
    np.testing.assert_array_equal(kp[1], np.rint(k / ks[1].T[..., None]))
    out = tessera.attention(q=q, k=kp[1:], v=vp[1:], k_scales=ks[1:], v_scales=vs[1:])
    decoded = [(codes[1] * scales[1].T[..., None])[None] for codes, scales in ((kp, ks), (vp, vs))]
    np.testing.assert_allclose(out, reference.attention(q, *decoded)[0], atol=2e-6)


def test_ragged_attention(rng):
    q, k, v = (f32(rng, 1, 9, 2, 64) for _ in range(3))
    offsets = np.array([0, 4, 9], np.int32)
    out = tessera.attention(q=q, k=k, v=v, q_offsets=offsets, k_offsets=offsets, mask=tessera.Mask.causal())
    for begin, end in ((0, 4), (4, 9)):
        part = (x[:, begin:end] for x in (q, k, v))
        np.testing.assert_allclose(
            out[:, begin:end], reference.attention(*part, tessera.Mask.causal().allows)[0], atol=2e-6
        )


def test_attention_backward_agrees_with_differences(rng):
    q, k, v, d_out = (f32(rng, 1, 5, 2, 64) for _ in range(4))
    mask = tessera.Mask.causal()
    out, lse = tessera.attention(q=q, k=k, v=v, mask=mask, lse=True)
    gradients = tessera.attention_backward(q=q, k=k, v=v, out=out, lse=lse, d_out=d_out, mask=mask)
    for index, step in ((0, (0, 2, 1, 3)), (1, (0, 1, 0, 7)), (2, (0, 3, 1, 9))):
        moved = []
        for sign in (1, -1):
            arrays = [x.astype(np.float64) for x in (q, k, v)]
            arrays[index][step] += sign * 1e-5
            moved.append((reference.attention(*arrays, mask.allows)[0] * d_out).sum())
        assert abs(gradients[index][step] - (moved[0] - moved[1]) / 2e-5) < 1e-4


ACTIVATIONS = {
    "none": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
}


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_linear_dense_and_packed(rng, activation):
    x, w, b, r = f32(rng, 3, 2, 64), f32(rng, 48, 64), f32(rng, 48), f32(rng, 3, 2, 48)
    dense = tessera.linear(x=x, weight=w, bias=b, activation=activation, residual=r)
    expected = ACTIVATIONS[activation](x.astype(np.float64) @ w.T + b) + r
    np.testing.assert_allclose(dense, expected, rtol=1e-4, atol=1e-4)
    packed = tessera.quantize(w, format="int8")
    decoded = tessera.dequantize(packed, np.empty_like(w))
    for weight in (packed, tessera.prepare(packed)):
        got = tessera.linear(x=x, weight=weight, bias=b, activation=activation, residual=r)
        np.testing.assert_allclose(
            got, ACTIVATIONS[activation](x.astype(np.float64) @ decoded.T + b) + r, rtol=1e-4, atol=1e-4
        )


@pytest.mark.parametrize("format", [f.name for f in tessera.formats()])
def test_packed_weights_survive_as_bytes_and_numbers(rng, format):
    w, x = f32(rng, 40, 128), f32(rng, 2, 128)
    packed = tessera.quantize(w, format=format)
    assert packed.format == format and packed.shape == (40, 128)
    assert packed.nbytes == tessera.packed_bytes(format=format, out_features=40, in_features=128)
    error = np.abs(np.asarray(tessera.dequantize(packed)) - w).max() / np.abs(w).max()
    assert error < (0.02 if format == "int8" else 0.07 if format == "fp8" else 0.2)
    for weight in (packed, tessera.prepare(packed)):
        moved = tessera.Tensor([len(weight.storage.numpy())], "u8")  # on a boundary of 64 bytes, as tiles must be
        moved.numpy()[:] = weight.storage.numpy()
        again = tessera.Weight.from_spec(moved, weight.spec())
        np.testing.assert_array_equal(tessera.linear(x=x, weight=again), tessera.linear(x=x, weight=weight))
    with pytest.raises(tessera.Error, match="storage has 16 bytes"):
        tessera.Weight.from_spec(np.zeros(16, np.uint8), packed.spec())


@pytest.mark.parametrize("activation", ["silu", "relu"])
@pytest.mark.parametrize("biases", [(), ("gate_bias",), ("up_bias",), ("gate_bias", "up_bias")], ids=" ".join)
def test_gated_linear(rng, biases, activation):
    x, g, u = f32(rng, 5, 64), f32(rng, 32, 64), f32(rng, 32, 64)
    given = {name: f32(rng, 32) for name in biases}
    gate = x.astype(np.float64) @ g.T + given.get("gate_bias", 0)
    up = x.astype(np.float64) @ u.T + given.get("up_bias", 0)
    np.testing.assert_allclose(
        tessera.gated_linear(x=x, gate=g, up=u, activation=activation, **given), ACTIVATIONS[activation](gate) * up,
        rtol=1e-3, atol=1e-3,
    )


def test_norms_with_and_without_residuals(rng):
    x, r, s, w, b = f32(rng, 3, 33), f32(rng, 3, 33), f32(rng, 3, 33), f32(rng, 33), f32(rng, 33)
    np.testing.assert_allclose(
        tessera.layer_norm(x=x, weight=w, bias=b), reference.layer_norm(x, w, b, 1e-5), atol=1e-5
    )
    out, total = tessera.rms_norm(x=x, weight=w, residuals=[r, s], eps=1e-6)
    np.testing.assert_array_equal(total, (x + r) + s)
    np.testing.assert_allclose(out, reference.rms_norm(total, w, 1e-6), atol=1e-5)
    with pytest.raises(tessera.Error, match="4 residuals were given; none to three"):
        tessera.layer_norm(x=x, weight=w, residuals=[r, r, r, r])


def test_dropout_drops_and_scales(rng):
    x, zero, w = np.ones((64, 64), np.float32), np.zeros((64, 64), np.float32), np.ones(64, np.float32)
    _, total = tessera.layer_norm(x=x, weight=w, residuals=[zero], dropout=tessera.Dropout(0.25, seed=3))
    assert set(np.unique(total)) == {np.float32(0), np.float32(1 / 0.75)}
    assert 0.2 < (total == 0).mean() < 0.3


def test_rotary_and_rotary_append(rng):
    x, positions = f32(rng, 2, 5, 3, 64), np.array([3, 1, 4, 1, 5])
    rope = tessera.Rope(np.float32(tessera.rope_inv_freq(32)))
    expected = reference.rotary(x, positions, rope.inv_freq)
    np.testing.assert_allclose(tessera.rotary(x=x, positions=positions, rope=rope), expected, atol=1e-5)
    q, k, v = f32(rng, 5, 4, 64), f32(rng, 5, 2, 64), f32(rng, 5, 2, 64)
    kp, vp = np.zeros((2, 4, 2, 64), np.float32), np.zeros((2, 4, 2, 64), np.float32)
    q_out = tessera.rotary_append(
        q=q, k=k, v=v, positions=positions, rope=rope, slots=np.arange(5, dtype=np.int32), k_pages=kp, v_pages=vp
    )
    np.testing.assert_allclose(q_out, reference.rotary(q[None], positions, rope.inv_freq)[0], atol=1e-5)
    np.testing.assert_allclose(
        kp.reshape(8, 2, 64)[:5], reference.rotary(k[None], positions, rope.inv_freq)[0], atol=1e-5
    )
    np.testing.assert_array_equal(vp.reshape(8, 2, 64)[:5], v)


def paged_step(rng, sequences, new, page=8, dims=64, heads=4, kv_heads=2):
    """A step of `new` tokens for each sequence, whose lengths after it are given; their pages are out of order."""
    most = -(-max(sequences) // page)
    table = rng.permutation(len(sequences) * most).astype(np.int32).reshape(len(sequences), most)
    places = [(i, n - new + j) for i, n in enumerate(sequences) for j in range(new)]
    slots = np.array([table[i, p // page] * page + p % page for i, p in places], np.int32)
    tokens, pool = len(places), (table.size, page, kv_heads, dims)
    return {
        "q": f32(rng, tokens, heads, dims), "k": f32(rng, tokens, kv_heads, dims),
        "v": f32(rng, tokens, kv_heads, dims), "positions": np.array([p for _, p in places]), "slots": slots,
        "k_pages": f32(rng, *pool), "v_pages": f32(rng, *pool),
        "rope": tessera.Rope(np.float32(tessera.rope_inv_freq(dims // 2))),
    }, tessera.PageTable(table, np.array(sequences, np.int32))


@pytest.mark.parametrize("new", [1, 3])
@pytest.mark.parametrize("mask", MASKS[1:4], ids=repr)
def test_append_attention_is_rotary_append_and_attention(rng, new, mask):
    step, pages = paged_step(rng, [9, 21, 4], new)
    apart = step | {"k_pages": step["k_pages"].copy(), "v_pages": step["v_pages"].copy()}
    q = tessera.rotary_append(**apart).reshape(3, new, 4, 64)
    expected = tessera.attention(q=q, k=apart["k_pages"], v=apart["v_pages"], pages=pages, mask=mask, softcap=9.0)
    out = np.full_like(step["q"], np.nan)
    assert tessera.append_attention(**step, pages=pages, mask=mask, softcap=9.0, out=out, settled=True) is out
    np.testing.assert_array_equal(out.reshape(expected.shape), expected)
    for name in ("k_pages", "v_pages"):
        np.testing.assert_array_equal(step[name], apart[name])


def test_append_attention_gives_sums_and_drops_weights_as_attention_does(rng):
    step, pages = paged_step(rng, [9, 21, 4], 3)
    apart = step | {"k_pages": step["k_pages"].copy(), "v_pages": step["v_pages"].copy()}
    options = {"pages": pages, "mask": tessera.Mask.causal(), "dropout": tessera.Dropout(0.3, 7), "fixed_splits": True}
    q = tessera.rotary_append(**apart).reshape(3, 3, 4, 64)
    expected, sums = tessera.attention(q=q, k=apart["k_pages"], v=apart["v_pages"], lse=True, **options)
    out, lse = tessera.append_attention(**step, lse=True, **options)
    np.testing.assert_array_equal(out.reshape(expected.shape), expected)
    np.testing.assert_array_equal(lse, sums)
    assert lse.shape == (3, 4, 3)
    whole = tessera.attention(q=q, k=apart["k_pages"], v=apart["v_pages"], **options | {"dropout": tessera.Dropout()})
    assert not np.array_equal(whole, expected)


def test_options_for_a_gpu_are_taken_on_the_cpu(rng):
    """Where they change nothing: bits depend neither on the batch nor on the number of rows."""
    x, weight, ctx = f32(rng, 3, 64), f32(rng, 64), tessera.Context("cpu", threads=1, graphs=False)
    one = tessera.rms_norm(x=x[:1], weight=weight, fixed_rows=True, ctx=ctx)
    np.testing.assert_array_equal(tessera.rms_norm(x=x, weight=weight)[:1], one)
    one = tessera.layer_norm(x=x[:1], weight=weight, bias=weight, fixed_rows=True)
    np.testing.assert_array_equal(tessera.layer_norm(x=x, weight=weight, bias=weight)[:1], one)
    q = f32(rng, 3, 5, 2, 64)
    one = tessera.attention(q=q[:1], k=q[:1], v=q[:1], fixed_splits=True)
    np.testing.assert_array_equal(tessera.attention(q=q, k=q, v=q)[:1], one)


def test_append_attention_of_ragged_batches_and_keys_rotated_as_they_are_read(rng):
    step, pages = paged_step(rng, [9, 21], 2)
    apart = step | {"k_pages": step["k_pages"].copy(), "v_pages": step["v_pages"].copy()}
    options = {
        "pages": pages, "q_offsets": np.array([0, 2, 4], np.int32), "rope_on_read": step["rope"],
        "mask": tessera.Mask.causal(),
    }
    q = tessera.rotary_append(**apart, rotate_keys=False)[None]
    expected = tessera.attention(q=q, k=apart["k_pages"], v=apart["v_pages"], **options)
    np.testing.assert_array_equal(tessera.append_attention(**step, rotate_keys=False, **options), expected[0])


def test_append_attention_refuses_tokens_that_belong_to_no_sequence(rng):
    step, pages = paged_step(rng, [9, 21], 1)
    step |= {name: step[name][:1] for name in ("q", "k", "v", "positions", "slots")}
    with pytest.raises(tessera.Error, match="pages has 2 sequences; give as many tokens for each of them"):
        tessera.append_attention(**step, pages=pages)
    with pytest.raises(tessera.Error, match="pages must be a tessera.PageTable"):
        tessera.append_attention(**step, pages=np.zeros((1, 1), np.int32))


@pytest.mark.parametrize("mask", MASKS[:4], ids=repr)
def test_a_ring_of_one_process_is_attention(rng, mask):
    alone = tessera.one_rank()
    assert (alone.rank, alone.size, alone.name) == (0, 1, "one rank")
    q, k, v, d_out = (f32(rng, 2, 11, heads, 64) for heads in (4, 2, 2, 4))
    ring = {"ranks": alone, "tokens": 11}
    out, lse = tessera.ring_attention(**ring, q=q, k=k, v=v, mask=mask, lse=True)
    expected, expected_lse = tessera.attention(q=q, k=k, v=v, mask=mask, lse=True)
    np.testing.assert_allclose(out, expected, atol=2e-6)
    np.testing.assert_allclose(lse, expected_lse, atol=2e-5)
    ours = tessera.ring_attention_backward(**ring, q=q, k=k, v=v, out=out, lse=lse, d_out=d_out, mask=mask)
    theirs = tessera.attention_backward(
        q=q, k=k, v=v, out=expected, lse=expected_lse, d_out=d_out, mask=mask
    )
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-5)
    with pytest.raises(tessera.Error, match="ring_attention"):
        tessera.ring_attention(ranks=alone, tokens=12, q=q, k=k, v=v)  # one row is missing


def optional_outputs(rng):
    """Calls whose outputs are new arrays unless they are given: the op, its inputs, the names of its outputs."""
    q, x, r, w = f32(rng, 1, 5, 2, 64), f32(rng, 3, 16), f32(rng, 3, 16), f32(rng, 16)
    out, lse = tessera.attention(q=q, k=q, v=q, lse=True)
    backward = {"q": q, "k": q, "v": q, "out": out, "lse": lse, "d_out": q, "deterministic": True}
    ring = backward | {"ranks": tessera.one_rank(), "tokens": 5}
    step, pages = paged_step(rng, [9, 21], 1)
    norm = {"x": x, "weight": w, "residuals": [r]}
    drawn = {"logits": x, "rows": np.arange(3, dtype=np.int32), "ids": np.int32([1, 5, 2]), "top": 2}
    yield tessera.attention_backward, backward, ("d_q", "d_k", "d_v")
    yield tessera.ring_attention_backward, ring, ("d_q", "d_k", "d_v")
    yield tessera.layer_norm, norm, ("out", "sum")
    yield tessera.rms_norm, norm, ("out", "sum")
    yield tessera.rotary_append, step, ("q_out",)
    yield tessera.append_attention, step | {"pages": pages, "q_out": np.empty_like(step["q"])}, ("out",)
    yield tessera.argmax, {"x": x}, ("indices",)
    yield tessera.top_k, {"x": x, "k": 4}, ("values", "indices")
    yield tessera.sample, {"logits": x, "seed": 3}, ("ids",)
    yield tessera.logprobs, drawn, ("logprobs", "top_ids", "top_logprobs")


def test_outputs_that_are_given_are_those_that_would_be_made(rng):
    for op, inputs, names in optional_outputs(rng):
        made = op(**inputs)
        made = made if isinstance(made, tuple) else (made,)
        given = {name: np.full_like(one, 99) for name, one in zip(names, made, strict=True)}
        back = op(**inputs, **given)
        back = back if isinstance(back, tuple) else (back,)
        for name, one, same in zip(names, made, back, strict=True):
            assert same is given[name], f"{op.__name__}: {name}"
            np.testing.assert_array_equal(same, one, f"{op.__name__}: {name}")


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_append_attention_on_the_gpu(rng, dtype):
    """One op leaves the bits of two there as well, and in f32 the numbers of the CPU."""
    step, pages = paged_step(rng, [9, 21, 4], 1)
    mask = tessera.Mask.causal()
    moved = {name: torch.tensor(value).cuda() for name, value in step.items() if name != "rope"}
    for name in ("q", "k", "v", "k_pages", "v_pages"):
        moved[name] = moved[name].to(getattr(torch, dtype))
    moved["rope"] = tessera.Rope(torch.tensor(step["rope"].inv_freq).cuda())
    there = tessera.PageTable(torch.tensor(pages.table).cuda(), torch.tensor(pages.lengths).cuda())
    apart = moved | {name: moved[name].clone() for name in ("k_pages", "v_pages")}
    q = tessera.rotary_append(**apart).unsqueeze(1)
    expected = tessera.attention(q=q, k=apart["k_pages"], v=apart["v_pages"], pages=there, mask=mask)
    out = tessera.append_attention(**moved, pages=there, mask=mask)
    assert torch.equal(out, expected.squeeze(1)) and torch.equal(moved["k_pages"], apart["k_pages"])
    on_cpu = tessera.append_attention(**step, pages=pages, mask=mask)
    bound = 1e-5 if dtype == "float32" else 1e-2
    np.testing.assert_allclose(out.float().cpu().numpy(), on_cpu, atol=bound)


@pytest.mark.gpu
def test_a_ring_of_one_process_on_the_gpu(rng):
    arrays = [f32(rng, 2, 33, heads, 64) for heads in (4, 2, 2, 4)]
    ring = {"ranks": tessera.one_rank(), "tokens": 33, "mask": tessera.Mask.causal()}
    results = []
    for q, k, v, d_out in (arrays, [torch.tensor(x).cuda() for x in arrays]):
        out, lse = tessera.ring_attention(**ring, q=q, k=k, v=v, lse=True)
        gradients = tessera.ring_attention_backward(**ring, q=q, k=k, v=v, out=out, lse=lse, d_out=d_out)
        results.append([out, lse, *gradients])
    for on_cpu, on_gpu in zip(*results, strict=True):
        np.testing.assert_allclose(on_gpu.cpu().numpy(), on_cpu, atol=1e-4)


def test_embedding_softmax_convert_argmax_top_k(rng):
    table, x = f32(rng, 10, 16), f32(rng, 4, 9)
    np.testing.assert_array_equal(tessera.embedding(ids=np.array([[3, 1]]), table=table), table[[[3, 1]]])
    p = np.exp(2.0 * x.astype(np.float64))
    np.testing.assert_allclose(tessera.softmax(x=x, scale=2.0), p / p.sum(1, keepdims=True), atol=1e-6)
    np.testing.assert_array_equal(tessera.convert(x=x, dtype="f16"), x.astype(np.float16))
    np.testing.assert_array_equal(tessera.argmax(x=x), x.argmax(1))
    values, indices = tessera.top_k(x=x, k=3)
    np.testing.assert_array_equal(indices, np.argsort(-x, axis=1)[:, :3])
    np.testing.assert_array_equal(values, np.take_along_axis(x, indices, 1))


def test_the_trace_names_the_kernel(rng):
    ctx = tessera.Context("cpu", threads=1, trace=True)
    tessera.softmax(x=f32(rng, 2, 4), ctx=ctx)
    (entry,) = ctx.trace.entries
    assert (entry.op, entry.calls) == ("softmax", 1) and ctx.trace.calls("softmax") == 1
    assert "f32[2, 4]" in entry.shapes
