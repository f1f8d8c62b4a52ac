"""The modules: state_dict, .to, train and eval, packing models, compiling, and training beside PyTorch's own ops."""

import copy
import io
import pickle

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional as F

import tessera
import tessera.torch as tt


def through_a_file(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize("format", [f.name for f in tessera.formats()])
def test_a_packed_layer_keeps_its_state(format):
    torch.manual_seed(0)
    dense = nn.Linear(128, 96)
    layer = tt.FusedFP4Linear.from_linear(dense, activation="gelu", format=format)
    x = torch.randn(3, 128)
    assert (layer(x) - F.gelu(dense(x))).norm() / F.gelu(dense(x)).norm() < (0.02 if format in ("int8",) else 0.2)
    other = tt.FusedFP4Linear(128, 96, "gelu", format=format)
    assert not torch.equal(other(x), layer(x))
    other.load_state_dict(through_a_file(layer.state_dict()))
    assert torch.equal(other(x), layer(x))
    assert torch.equal(copy.deepcopy(layer)(x), layer(x))
    assert not layer.packed.is_floating_point() and [n for n, _ in layer.named_parameters()] == ["bias"]


def test_a_packed_layer_takes_a_state_of_another_format_and_of_its_own_size_alone():
    eight, layer = (tt.FusedFP4Linear(128, 96, format=format) for format in ("int8", "nvfp4"))
    eight.load_state_dict(through_a_file(layer.state_dict()))
    x = torch.randn(3, 128)
    assert torch.equal(eight(x), layer(x)) and eight.format == "nvfp4"
    with pytest.raises(tessera.Error, match=r"whose \[out, in\] is \[96, 128\]; this one's is \[128, 96\]"):
        tt.FusedFP4Linear(96, 128).load_state_dict(layer.state_dict())


def test_a_state_goes_through_safetensors(tmp_path):
    """Which holds tensors and nothing else."""
    block, other = (tt.TransformerBlock(64, 1, 128, use_fp4=True, format=format) for format in ("nvfp4", "int8"))
    save_file(block.state_dict(), tmp_path / "block.safetensors")
    assert other.load_state_dict(load_file(tmp_path / "block.safetensors")) == ([], [])
    x = torch.randn(1, 3, 64)
    assert torch.equal(other(x), block(x)) and other.up.format == "nvfp4"
    earlier = {"format": block.up.format, "packed_spec": block.up.packed_spec}  # files before that had this
    layer = tt.FusedFP4Linear(64, 128, "gelu")
    layer.load_state_dict({**block.up.state_dict(), "_extra_state": earlier})
    assert torch.equal(layer(x), block.up(x))


def test_a_state_without_its_scale_is_refused():
    """strict=False would leave new codes with the scale of the old ones."""
    layer = tt.FusedFP4Linear(64, 32)
    state = {key: value for key, value in layer.state_dict().items() if key != "_extra_state"}
    with pytest.raises(tessera.Error, match="the state has packed without _extra_state, which holds its scale"):
        tt.FusedFP4Linear(64, 32).load_state_dict(state, strict=False)


def test_whole_modules_are_pickled_without_the_layout_of_one_processor():
    block = tt.TransformerBlock(256, 4, 512, use_fp4=True, rotary_dims=32)
    x, file = torch.randn(1, 3, 256), io.BytesIO()
    torch.save(block, file)
    file.seek(0)
    again = torch.load(file, weights_only=False)
    assert torch.equal(again(x), block(x)) and torch.equal(copy.deepcopy(block)(x), block(x))
    layer = block.up
    assert len(pickle.dumps(layer)) < layer.packed.nbytes + layer.prepared.nbytes
    assert pickle.loads(pickle.dumps(layer)).prepared_spec == layer.prepared_spec


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize(("name", "use_fp4"), [("serial", False), ("parallel", True), ("llama", True)])
def test_blocks_under_autocast(name, use_fp4, compiled):
    """Products in bf16, norms and what they are added to in f32, as with PyTorch's own layers."""
    torch.manual_seed(2)
    block = tt.TransformerBlock(128, 2, 256, use_fp4=use_fp4, **OPTIONS[name])
    x = torch.randn(2, 9, 128, requires_grad=True)
    expected = block(x)
    run = torch.compile(block, fullgraph=True, backend="aot_eager") if compiled else block
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = run(x)
        assert tt.attention(*[x.view(2, 9, 2, 64)] * 3).dtype is block.attention.output(x).dtype is torch.bfloat16
        assert block.norm1(x.bfloat16()).dtype is torch.float32
    assert out.dtype is torch.float32
    assert 0 < (out - expected).norm() / expected.norm() < 0.02
    ours, theirs = (torch.autograd.grad(y.square().sum(), x)[0] for y in (out, expected))
    assert (ours - theirs).norm() / theirs.norm() < 0.02


def test_dtypes_and_devices():
    layer = tt.FusedFP4Linear(64, 32).to("cpu")
    x = torch.randn(2, 64)
    half = copy.deepcopy(layer).to(torch.bfloat16)
    assert half(x.bfloat16()).dtype is torch.bfloat16 and half.packed.dtype is torch.uint8
    torch.testing.assert_close(half(x.bfloat16()).float(), layer(x), atol=0.05, rtol=0.05)
    block = tt.TransformerBlock(64, 1, 128, rotary_dims=32).to(torch.bfloat16)
    assert block.attention.inv_freq.dtype is torch.float32
    assert block(torch.randn(1, 3, 64).bfloat16()).dtype is torch.bfloat16


def test_a_packed_block_without_biases_changes_its_type():
    """Packed layers are buffers, so its attention has no parameter at all."""
    block = tt.TransformerBlock(64, 1, 128, use_fp4=True, bias=False, norm="rms_norm", rotary_dims=32)
    assert not list(block.attention.parameters())
    block.to(torch.bfloat16)
    assert block.attention.inv_freq.dtype is torch.float32
    assert block(torch.randn(1, 3, 64).bfloat16()).dtype is torch.bfloat16


def test_packing_a_model_keeps_what_it_is_told_to():
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Sequential(nn.Linear(64, 32), nn.Linear(32, 8)))
    tt.quantize_model(model, "int4", keep_dense=["2.*"], group=32)
    assert isinstance(model[0], tt.FusedFP4Linear) and type(model[2][0]) is nn.Linear
    assert model(torch.randn(2, 64)).shape == (2, 8)
    with pytest.raises(tessera.Error, match="'head' matches no linear layer; there are: 2.0, 2.1"):
        tt.quantize_model(model, keep_dense=["head"])
    with pytest.raises(tessera.Error, match="activation 'tanh' is not known"):
        tt.FusedFP4Linear(8, 8, "tanh")


def test_a_layer_with_two_names_is_packed_once():
    layer = nn.Linear(64, 64)
    shared = tt.quantize_model(nn.Sequential(layer, nn.ReLU(), layer))
    assert isinstance(shared[0], tt.FusedFP4Linear) and shared[2] is shared[0]
    kept = tt.quantize_model(nn.Sequential(layer, nn.Linear(64, 8), layer), keep_dense="2")
    assert kept[0] is kept[2] is layer and isinstance(kept[1], tt.FusedFP4Linear)


def test_a_module_without_linear_layers_is_not_packed_in_silence():
    for module in (nn.Linear(64, 64), nn.ReLU()):
        with pytest.raises(tessera.Error, match="has no nn.Linear below it; from_linear.. packs a single layer"):
            tt.quantize_model(module)


class PlainBlock(nn.Module):
    """The same layer in PyTorch's own ops, with the weights of ours."""

    def __init__(self, block: tt.TransformerBlock) -> None:
        super().__init__()
        self.block = block

    def rotate(self, x):
        attention = self.block.attention
        half = attention.rotary_dims // 2
        angles = torch.arange(x.shape[1])[:, None] * attention.inv_freq
        cos, sin = angles.cos()[None, :, None], angles.sin()[None, :, None]
        a, b = x[..., :half], x[..., half : 2 * half]
        return torch.cat([a * cos - b * sin, b * cos + a * sin, x[..., 2 * half :]], -1)

    def norm(self, layer, x):
        if isinstance(layer, tt.LayerNorm):
            return F.layer_norm(x, x.shape[-1:], layer.weight, layer.bias, layer.eps)
        return F.rms_norm(x, x.shape[-1:], layer.weight, layer.eps)

    def attend(self, x):
        a = self.block.attention
        parts = a.qkv(x).view(*x.shape[:2], -1, a.head_dim).split([a.n_heads, a.kv_heads, a.kv_heads], 2)
        q, k, v = (self.rotate(p) if a.rotary_dims and i < 2 else p for i, p in enumerate(parts))
        out = F.scaled_dot_product_attention(
            *(p.transpose(1, 2) for p in (q, k, v)), is_causal=True, enable_gqa=True
        )
        return a.output(out.transpose(1, 2).reshape(x.shape))

    def mlp(self, x):
        b = self.block
        if b.gate is not None:
            return b.down(F.silu(b.gate(x)) * b.up(x))
        return b.down(F.gelu(b.up(x)))

    def forward(self, x):
        b = self.block
        if b.parallel_residual:
            return x + self.attend(self.norm(b.norm1, x)) + self.mlp(self.norm(b.norm2, x))
        x = x + self.attend(self.norm(b.norm1, x))
        return x + self.mlp(self.norm(b.norm2, x))


OPTIONS = {
    "serial": {},
    "parallel": {"parallel_residual": True, "rotary_dims": 32},
    "llama": {"norm": "rms_norm", "mlp": "silu_gated", "kv_heads": 1, "rotary_dims": 64, "bias": False},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_a_block_computes_what_pytorch_does(name):
    torch.manual_seed(1)
    block = tt.TransformerBlock(128, 2, 256, **OPTIONS[name])
    x = torch.randn(2, 9, 128)
    torch.testing.assert_close(block(x), PlainBlock(block)(x), atol=2e-5, rtol=1e-4)
    other = tt.TransformerBlock(128, 2, 256, **OPTIONS[name])
    other.load_state_dict(through_a_file(block.state_dict()))
    assert torch.equal(other(x), block(x))


@pytest.mark.parametrize("name", OPTIONS)
def test_a_packed_block_keeps_its_state(name):
    """Through a file, into a block of other weights: packed layers with their formats, and what stayed dense."""
    torch.manual_seed(3)
    make = {"use_fp4": True, "keep_dense": ["down"], **OPTIONS[name]}
    block, other = tt.TransformerBlock(128, 2, 256, **make), tt.TransformerBlock(128, 2, 256, **make)
    x = torch.randn(2, 9, 128)
    assert not torch.equal(other(x), block(x))
    assert other.load_state_dict(through_a_file(block.state_dict())) == ([], [])
    assert torch.equal(other(x), block(x))


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize(("format", "bound"), [("nvfp4", 0.05), ("mxfp4", 0.08), ("int4", 0.05), ("int8", 0.005)])
def test_a_packed_block_is_near_the_dense_one(name, format, bound):
    torch.manual_seed(2)
    block = tt.TransformerBlock(256, 4, 512, **OPTIONS[name])
    packed = copy.deepcopy(block).quantize(format)
    x = torch.randn(2, 16, 256)
    assert (packed(x) - block(x)).norm() / block(x).norm() < bound
    kept = tt.TransformerBlock(256, 4, 512, use_fp4=True, keep_dense=["down"], **OPTIONS[name])
    assert type(kept.down) is nn.Linear and isinstance(kept.up, tt.FusedFP4Linear)


@pytest.mark.parametrize("use_fp4", [False, True])
def test_a_block_compiles_without_a_graph_break(use_fp4):
    torch.manual_seed(3)
    block = tt.TransformerBlock(64, 1, 128, use_fp4=use_fp4, rotary_dims=64)
    compiled = torch.compile(block, fullgraph=True, backend="aot_eager")
    x = torch.randn(2, 5, 64, requires_grad=True)
    torch.testing.assert_close(compiled(x), block(x), atol=1e-6, rtol=1e-5)
    (ours,) = torch.autograd.grad(compiled(x).square().sum(), x)
    (theirs,) = torch.autograd.grad(block(x).square().sum(), x)
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


def test_masks_dropout_and_modes():
    torch.manual_seed(4)
    layer = tt.FlashAttention(64, 1, dropout=0.5)
    x = torch.randn(1, 12, 64)
    assert not torch.equal(layer.train()(x), layer(x))
    assert torch.equal(layer.eval()(x), layer(x))
    causal, full = layer(x), layer(x, tessera.Mask.full())
    assert not torch.allclose(causal[:, 0], full[:, 0]) and torch.allclose(causal[:, -1], full[:, -1], atol=1e-6)
    torch.testing.assert_close(layer(x, residual=x), causal + x)
    for heads in (3, 0):
        with pytest.raises(tessera.Error, match="heads must divide"):
            tt.FlashAttention(64, heads)
    for heads in (3, 0):
        with pytest.raises(tessera.Error, match=f"n_heads is 4 and kv_heads {heads}: these must divide those"):
            tt.FlashAttention(64, 4, kv_heads=heads)
    with pytest.raises(tessera.Error, match=r"x is \[12, 64\]; give \[batch, seq, d_model\]"):
        layer(x[0])
    for shape in ((0, 12, 64), (2, 0, 64)):  # no sequence, and no token
        nothing = torch.zeros(shape, requires_grad=True)
        tt.TransformerBlock(64, 1, 128, rotary_dims=32)(nothing).sum().backward()
        assert nothing.grad.shape == shape


class Language(nn.Module):
    """Two layers that learn to continue a sequence."""

    def __init__(self, blocks, vocab: int, width: int) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(vocab, width), nn.Linear(width, vocab)
        self.blocks = nn.ModuleList(blocks)

    def forward(self, ids):
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def test_training_for_200_steps_follows_pytorchs_own_ops():
    torch.manual_seed(5)
    ours = Language([tt.TransformerBlock(64, 2, 128, rotary_dims=32) for _ in range(2)], 32, 64)
    plain = copy.deepcopy(ours)
    plain.blocks = nn.ModuleList(PlainBlock(block) for block in plain.blocks)
    models, losses = [ours, plain], [[], []]
    optimizers = [torch.optim.AdamW(m.parameters(), lr=2e-3) for m in models]
    generator = torch.Generator().manual_seed(6)
    for _ in range(200):
        start = torch.randint(0, 32, (8, 1), generator=generator)
        stride = torch.randint(1, 5, (8, 1), generator=generator)
        ids = (start + stride * torch.arange(17)) % 32
        for model, optimizer, curve in zip(models, optimizers, losses, strict=True):
            loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            curve.append(loss.item())
    curves = torch.tensor(losses)
    assert curves[0, -1] < 0.5 * curves[0, 0]  # it learns
    torch.testing.assert_close(curves[0, :50], curves[1, :50], atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(curves[0], curves[1], atol=2e-2, rtol=5e-2)


@pytest.mark.gpu
@pytest.mark.parametrize("name", OPTIONS)
def test_a_block_moves_to_the_gpu(name):
    torch.manual_seed(7)
    block = tt.TransformerBlock(256, 2, 512, use_fp4=True, **OPTIONS[name])
    x = torch.randn(1, 7, 256)
    expected = block(x)
    got = block.to("cuda", torch.float16)(x.cuda().half())
    assert (got.float().cpu() - expected).norm() / expected.norm() < 0.01


@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-5), (torch.float16, 1e-2), (torch.bfloat16, 5e-2)])
@pytest.mark.parametrize("mask", [tessera.Mask.causal(), tessera.Mask.sinks(2, 16)], ids=repr)
def test_flash_attention_on_the_gpu(mask, dtype, bound):
    """Forward and backward, with grouped heads, a partial rotation and a residual, beside the CPU in f32."""
    torch.manual_seed(8)
    layer = tt.FlashAttention(256, 4, kv_heads=2, rotary_dims=32, mask=mask)
    x = torch.randn(2, 45, 256)

    def run(module, x):
        x = x.requires_grad_()
        out = module(x, residual=x)
        weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(9)).to(out.device, out.dtype)
        return [out, *torch.autograd.grad((out * weights).sum(), [x, module.qkv.weight, module.output.bias])]

    expected = run(layer, x.clone())
    there = copy.deepcopy(layer).to("cuda", dtype)
    assert there.inv_freq.device.type == "cuda" and there.inv_freq.dtype is torch.float32
    for ours, theirs in zip(run(there, x.to("cuda", dtype)), expected, strict=True):
        assert ours.device.type == "cuda" and ours.dtype is dtype
        error = (ours.float().cpu() - theirs).norm() / theirs.norm()
        assert error < bound, error


@pytest.mark.gpu
def test_flash_attention_dropout_on_the_gpu_depends_on_the_seed_alone():
    layer = tt.FlashAttention(128, 2, dropout=0.5, device="cuda", dtype=torch.float16)
    x = torch.randn(1, 40, 128, device="cuda", dtype=torch.float16)
    outs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        outs.append(layer(x))
    assert torch.equal(outs[0], outs[1]) and not torch.equal(outs[0], outs[2])
    assert torch.equal(layer.eval()(x), layer(x))
