"""Models of transformers on our kernels: tiny ones of each family, made here."""

import copy

import pytest
import torch
import transformers
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM, LlamaConfig, LlamaForCausalLM, masking_utils

import tessera
import tessera.transformers as tf
from tessera.torch import FusedFP4Linear
from tessera.transformers import streaming, verifying

SMALL = {
    "vocab_size": 96, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 3, "num_attention_heads": 2,
    "max_position_embeddings": 256, "bos_token_id": 1, "eos_token_id": 2,
}


def neox(**options):
    return GPTNeoXForCausalLM(GPTNeoXConfig(**SMALL, **options))


def llama(**options):
    return LlamaForCausalLM(LlamaConfig(**SMALL, num_key_value_heads=1, **options))


def other(name, **options):
    config = getattr(transformers, f"{name}Config")(**SMALL, num_key_value_heads=1, **options)
    return getattr(transformers, f"{name}ForCausalLM")(config)


MODELS = {
    "neox_parallel": neox,
    "neox_serial": lambda: neox(use_parallel_residual=False),
    "llama": llama,
    "mistral": lambda: other("Mistral", sliding_window=8),
    "mistral_wide": lambda: other("Mistral", sliding_window=32),
    "qwen2": lambda: other("Qwen2"),
    "qwen2_sliding": lambda: other("Qwen2", use_sliding_window=True, sliding_window=8, max_window_layers=1),
    "qwen3": lambda: other("Qwen3", head_dim=64),
}


def make(name: str):
    torch.manual_seed(0)
    model = MODELS[name]().eval()
    with torch.no_grad():  # larger weights, so that tokens differ
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.mul_(4)
    return model


def prompt(n=12, batch=1):
    return torch.randint(3, 96, (batch, n), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", MODELS)
def test_a_patched_model_passes_all_five_checks_and_can_be_restored(name):
    model, ids = make(name), prompt()
    before = model(ids).logits
    tf.patch(model)
    report = tf.verify(model, ids, tokens=8)
    assert report.ok, str(report)
    assert [c.name for c in report.checks] == ["kernels", "hidden states", "tokens", "call trace", "time"]
    assert len(report.hidden_errors) == 4 and set(report.layers.values()) == {1} and len(report.layers) == 3
    tf.unpatch(model)
    assert torch.equal(model(ids).logits, before) and tf.patch_of(model) is None


@pytest.mark.parametrize("name", ["neox_parallel", "llama"])
@pytest.mark.parametrize("format", ["nvfp4", "int8"])
def test_packed_layers_are_called_and_counted(name, format):
    model, ids = make(name), prompt()
    before = model(ids).logits
    head = "lm_head" if hasattr(model, "lm_head") else "embed_out"
    tf.patch(model, linear=format, keep_dense=[head])
    packed = [n for n, m in model.named_modules() if isinstance(m, FusedFP4Linear)]
    report = tf.verify(model, ids, tokens=8)
    assert report.ok, str(report)
    assert set(packed) < set(report.layers) and len(report.layers) == len(packed) + 3
    assert all(report.layers[name] == 1 for name in packed)
    tf.unpatch(model)
    assert torch.equal(model(ids).logits, before)


COMBINATIONS = {
    "linear": {"linear": "int8", "keep_dense": ["lm_head"]},
    "groups": {"linear": "int4", "group": 32},
    "streaming": {"streaming": (4, 28)},
    "both": {"linear": "nvfp4", "streaming": (4, 28)},
}


@pytest.mark.parametrize("own", ["eager", "sdpa"])
@pytest.mark.parametrize("name", COMBINATIONS)
def test_a_model_that_keeps_its_own_attention(name, own):
    """attention=False leaves the model's own, but for streaming, which is an attention of ours."""
    model, ids = make("llama"), prompt(20)
    model.set_attn_implementation(own)
    before = model(ids).logits
    tf.patch(model, attention=False, **COMBINATIONS[name])
    streams = "streaming" in COMBINATIONS[name]
    assert model.config._attn_implementation == ("tessera" if streams else own)
    packed = [n for n, m in model.named_modules() if isinstance(m, FusedFP4Linear)]
    assert bool(packed) == ("linear" in COMBINATIONS[name]) and ("lm_head" in packed) == (name in ("groups", "both"))
    report = tf.verify(model, ids, tokens=8)
    assert report.ok, str(report)
    assert len(report.layers) == len(packed) + 3 * streams
    cache = transformers.DynamicCache()  # a prompt, then a few tokens at once
    parts = [model(ids[:, part], past_key_values=cache).logits for part in (slice(0, 12), slice(12, 20))]
    torch.testing.assert_close(torch.cat(parts, 1), model(ids).logits, atol=1e-3, rtol=1e-3)
    tf.unpatch(model)
    assert model.config._attn_implementation == own and torch.equal(model(ids).logits, before)


@pytest.mark.parametrize("part", ["prompt", "token"])
def test_a_kernel_that_is_never_called_fails_the_verification_and_is_named(part):
    model, ids = make("llama"), prompt()
    tf.patch(model, linear="int8")
    layer = model.model.layers[1].mlp.up_proj
    own = layer.forward

    def bypass(x):  # somebody's monkey patch
        return torch.nn.functional.linear(x, layer.dense_weight()) if (x.shape[1] == 1) == (part == "token") else own(x)

    layer.forward = bypass
    report = tf.verify(model, ids, tokens=4)
    assert [check.ok for check in report.checks] == [True, True, True, False, True], str(report)
    assert report.checks[3].detail.endswith(f"; no kernel ran for the {part} in: model.layers.1.mlp.up_proj")
    silent, counts = (report.layers, report.steps) if part == "prompt" else (report.steps, report.layers)
    assert [name for name, calls in silent.items() if calls == 0] == ["model.layers.1.mlp.up_proj"]
    assert set(counts.values()) == {1} and len(counts) == 3 + 3 * 7 + 1


def test_attention_that_goes_another_way_is_named():
    model, ids = make("llama"), prompt()
    tf.patch(model)
    layer = model.model.layers[2].self_attn
    layer.config = copy.copy(layer.config)
    layer.config._attn_implementation = "sdpa"  # of this layer alone
    report = tf.verify(model, ids, tokens=4)
    assert not report.ok and not report.checks[3].ok, str(report)
    assert report.checks[3].detail.count("in: model.layers.2.self_attn") == 2 and not report.fallbacks


def test_a_layer_that_falls_back_in_generate_alone_fails_the_verification():
    """Fallbacks are of all checks, not of the trace's passes; and what fell back earlier is not forgotten."""
    model, ids = make("llama"), prompt()
    tf.patch(model)
    tf.patch_of(model).calls.fallbacks[0] = "something of earlier"
    assert tf.verify(model, ids, tokens=4).ok  # that was no part of it
    assert tf.patch_of(model).calls.fallbacks == {0: "something of earlier"}
    model.generation_config.cache_implementation = "static"
    report = tf.verify(model, ids, tokens=4)
    assert [check.ok for check in report.checks] == [True, True, True, False, True], str(report)
    assert list(report.fallbacks) == [f"model.layers.{i}.self_attn" for i in range(3)]
    assert all("static caches" in why for why in report.fallbacks.values())
    assert set(report.layers.values()) == set(report.steps.values()) == {1}
    assert "static caches" in tf.patch_of(model).calls.fallbacks[0]


def test_packed_layers_are_checked_in_four_kinds_of_memory():
    model, ids = make("llama"), prompt()
    tf.patch(model, linear="int8")
    layer = model.model.layers[0].mlp.gate_proj
    own = layer.forward

    def in_order_only(x):
        strides = x.stride()
        return own(x) if sorted(strides, reverse=True) == list(strides) else own(x).roll(1, 0)

    layer.forward = in_order_only
    report = tf.verify(model, ids, tokens=4)
    assert [check.ok for check in report.checks] == [False, True, True, True, True], str(report)


def test_what_is_not_packed_is_listed_with_the_reason():
    model, ids = other("Mixtral", num_local_experts=4), prompt()
    model.lm_head.weight = model.model.embed_tokens.weight
    q = model.model.layers[1].self_attn.q_proj
    q.__class__ = type("ScaledLinear", (torch.nn.Linear,), {})
    tf.patch(model, linear="int8", keep_dense=["model.layers.0.self_attn.k_proj"])
    report = tf.verify(model, ids, tokens=2)
    assert report.dense["lm_head"] == "tied to the embedding"
    assert report.dense["model.layers.0.self_attn.k_proj"] == "keep_dense names it"
    assert report.dense["model.layers.1.self_attn.q_proj"].startswith("ScaledLinear, a subclass of nn.Linear")
    packed = {n for n, m in model.named_modules() if isinstance(m, FusedFP4Linear)}
    assert len(packed) == 12 - 2 and packed.isdisjoint(report.dense)
    experts = "model.layers.*.mlp.experts (3): MixtralExperts, which holds gate_up_proj [4, 512, 128]"
    assert f"stayed dense: {experts}" in str(report) and "model.layers.*.mlp.gate (3)" in str(report)


def test_a_model_with_nothing_to_pack_is_refused():
    """GPT-2: its layers are Conv1D, and its head is the embedding."""
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=96, n_embd=64, n_layer=2, n_head=1))
    told = r"GPT2LMHeadModel has no layer to pack \(transformer.h.\*.attn.c_attn \(2\): Conv1D.*; lm_head: tied"
    with pytest.raises(tessera.Error, match=told):
        tf.patch(model.eval(), linear="nvfp4")
    assert tf.patch_of(model) is None and model.config._attn_implementation == "sdpa"
    tf.patch(model)
    assert tf.verify(model, prompt(), tokens=4).ok


@pytest.mark.parametrize("name", ["neox_parallel", "llama"])
def test_a_packed_model_changes_its_type(name):
    """The dense layers that unpatch() gives back are not in the model meanwhile: model.to() does not see them."""
    model, ids = make(name), prompt()
    expected = copy.deepcopy(model).to(torch.bfloat16)
    tf.patch(model, linear="int8")
    held = next(iter(tf.patch_of(model).dense.values()))
    model.to(torch.bfloat16).train()
    assert held.weight.dtype is torch.float32  # not moved for nothing
    report = tf.verify(model, ids, tokens=4)
    assert report.ok, str(report)
    tf.unpatch(model)
    assert all(module.training for module in model.modules())
    ours, theirs = model.state_dict(), expected.state_dict()
    assert all(torch.equal(ours[key], value) and ours[key].dtype == value.dtype for key, value in theirs.items())
    assert torch.equal(model.eval()(ids).logits, expected(ids).logits)


def test_a_layer_that_falls_back_says_which_and_why():
    model, ids = make("llama"), prompt()
    tf.patch(model)
    custom = torch.zeros(1, 1, 12, 12).masked_fill(torch.ones(12, 12).triu(1).bool(), float("-inf"))
    out = model(ids, attention_mask=custom).logits
    torch.testing.assert_close(out, tf.unpatch(model)(ids).logits, atol=1e-4, rtol=1e-3)
    tf.patch(model)
    model(ids, attention_mask=custom)
    fallbacks = tf.patch_of(model).calls.fallbacks
    assert set(fallbacks) == {0, 1, 2} and "a mask of 4 dimensions" in fallbacks[0]
    model.double()
    report = tf.verify(model, ids, tokens=4)
    assert not report.ok and "float64" in str(report) and "model.layers.0.self_attn" in str(report)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padded_batches_give_what_each_gives_alone(side):
    model = make("neox_parallel")
    ids, mask = prompt(10, batch=2), torch.ones(2, 10, dtype=torch.long)
    cut = slice(0, 4) if side == "left" else slice(6, 10)
    mask[1, cut] = 0
    tf.patch(model)
    together = model(ids, attention_mask=mask, position_ids=(mask.cumsum(1) - 1).clamp(min=0)).logits
    alone = model(ids[1:, 4:] if side == "left" else ids[1:, :6]).logits
    kept = together[1:, 4:] if side == "left" else together[1:, :6]
    torch.testing.assert_close(kept, alone, atol=2e-4, rtol=1e-3)
    torch.testing.assert_close(together[:1], model(ids[:1]).logits, atol=2e-4, rtol=1e-3)
    assert not tf.patch_of(model).calls.fallbacks


def generate(model, ids, **options):
    return model.generate(ids, max_new_tokens=12, min_new_tokens=12, do_sample=False, pad_token_id=0, **options)


@pytest.mark.parametrize("padding", [False, True], ids=["alone", "with padding"])
@pytest.mark.parametrize("name", ["neox_parallel", "llama", "mistral"])
def test_a_static_cache_gives_the_tokens_of_the_unpatched_model(name, padding):
    """It holds room for tokens that are not there yet: nobody may see it, nor a later token."""
    model, ids, mask = make(name), prompt(10, batch=2), torch.ones(2, 10, dtype=torch.long)
    if padding:
        mask[1, :4] = 0
    options = {"attention_mask": mask, "cache_implementation": "static"}
    cache = {"past_key_values": transformers.StaticCache(model.config, max_cache_len=32), "attention_mask": mask}
    expected, logits = generate(model, ids, **options), model(ids, **cache).logits[mask.bool()]
    tf.patch(model)
    assert torch.equal(generate(model, ids, **options), expected)
    # A cache of a sliding window ends with the last token once it is full.
    assert set(tf.patch_of(model).calls.fallbacks) == (set() if name == "mistral" else {0, 1, 2})
    cache["past_key_values"] = transformers.StaticCache(model.config, max_cache_len=32)
    torch.testing.assert_close(model(ids, **cache).logits[mask.bool()], logits, atol=2e-4, rtol=1e-3)
    tf.patch_of(model).calls.clear()
    del options["cache_implementation"]
    assert torch.equal(generate(model, ids, **options), expected) and not tf.patch_of(model).calls.fallbacks


@pytest.mark.parametrize("name", ["llama", "mistral"])
def test_packed_sequences_do_not_see_each_other(name):
    model, ids = make(name), prompt(16)
    places = torch.cat([torch.arange(5), torch.arange(11)])[None]
    expected = model(ids, position_ids=places, use_cache=False).logits
    tf.patch(model)
    torch.testing.assert_close(
        model(ids, position_ids=places, use_cache=False).logits, expected, atol=2e-4, rtol=1e-3
    )
    assert set(tf.patch_of(model).calls.fallbacks) == {0, 1, 2}


def test_masks_of_a_models_own_are_those_of_sdpa():
    """Functions that are added to the causal one; a mask that ours has no name for."""
    config = LlamaConfig(**SMALL, attention_chunk_size=4, sliding_window=4)
    x = torch.zeros(1, 9, 128)

    def made(make_mask, **options):
        options = {"inputs_embeds": x, "attention_mask": None, "past_key_values": None, **options}
        masks = []
        for config._attn_implementation in ("tessera", "sdpa"):
            masks.append(make_mask(config, **options))
        return masks

    tf.patch(make("llama"))  # registers our attention
    for options in (
        {"or_mask_function": lambda b, h, q, k: k < 2},
        {"and_mask_function": lambda b, h, q, k: k != 3},
        {"position_ids": torch.tensor([[0, 1, 2, 3, 0, 1, 2, 0, 1]])},
    ):
        for make_mask in (masking_utils.create_causal_mask, masking_utils.create_sliding_window_causal_mask):
            ours, theirs = made(make_mask, **options)
            assert ours.shape == (1, 1, 9, 9) and torch.equal(ours, theirs)
    ours, theirs = made(masking_utils.create_chunked_causal_mask)
    assert torch.equal(ours, theirs)
    for make_mask in (
        masking_utils.create_causal_mask, masking_utils.create_sliding_window_causal_mask,
        masking_utils.create_bidirectional_mask, masking_utils.create_bidirectional_sliding_window_mask,
    ):
        padding = torch.tensor([[0, 0, *[1] * 7]])
        assert made(make_mask)[0] is None and made(make_mask, attention_mask=torch.ones(1, 9))[0] is None
        assert torch.equal(made(make_mask, attention_mask=padding)[0], padding.bool())


def test_gradients_flow_through_a_patched_model():
    model, ids = make("llama"), prompt()
    theirs = torch.autograd.grad(model(ids, labels=ids).loss, model.model.embed_tokens.weight)[0]
    tf.patch(model)
    ours = torch.autograd.grad(model(ids, labels=ids).loss, model.model.embed_tokens.weight)[0]
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-3)


def rotated(x, position, inv_freq):
    half = len(inv_freq)
    cos, sin = (position * inv_freq).cos(), (position * inv_freq).sin()
    a, b = x[..., :half], x[..., half : 2 * half]
    return torch.cat([a * cos - b * sin, b * cos + a * sin, x[..., 2 * half :]], -1)


@pytest.mark.parametrize("chunks", [[30], [1] * 30, [5, 11, 14], [9, 1, 20], [10, 20]])
def test_streaming_attention_is_what_the_policy_says(chunks):
    """Token by token in float64: which keys a query sees, and by how much each is rotated."""
    sinks, window, dims = 2, 8, 64
    generator = torch.Generator().manual_seed(2)
    q, k, v = (torch.randn(1, 30, h, dims, generator=generator) for h in (4, 2, 2))
    inv_freq = torch.tensor(tessera.rope_inv_freq(32))
    expected = torch.zeros(1, 30, 4, dims, dtype=torch.float64)
    for p in range(30):
        seen = [j for j in range(p + 1) if p < sinks + window or j < sinks or j > p - window]
        place = {j: i for i, j in enumerate(seen)}
        for h in range(4):
            query = rotated(q[0, p, h].double(), place[p], inv_freq)
            keys = torch.stack([rotated(k[0, j, h // 2].double(), place[j], inv_freq) for j in seen])
            expected[0, p, h] = torch.softmax(keys @ query / 8, 0) @ v[0, seen, h // 2].double()
    layer, outs, at = streaming.SinkLayer(sinks, window), [], 0
    for n in chunks:
        part = slice(at, at + n)
        keys, values = (
            x.transpose(1, 2) for x in layer.update(k[:, part].transpose(1, 2), v[:, part].transpose(1, 2))
        )
        outs.append(streaming.attend_stream(q[:, part], keys, values, at, sinks, window, inv_freq, 0.125))
        at += n
        assert layer.keys.shape[-2] <= sinks + window and layer.get_seq_length() == at
    torch.testing.assert_close(torch.cat(outs, 1).double(), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ["neox_parallel", "neox_serial", "llama", "qwen2", "qwen3"])
def test_a_streaming_model_runs_past_its_window_in_constant_memory(name):
    model, ids = make(name), prompt()
    tf.patch(model, streaming=(4, 28))
    report = tf.verify(model, ids, tokens=8)
    assert report.ok, str(report)
    cache = transformers.DynamicCache()
    out = model.generate(ids, max_new_tokens=300, min_new_tokens=300, do_sample=False, past_key_values=cache)
    assert out.shape == (1, 312)  # longer than the model's 256 positions
    assert all(layer.keys.shape[-2] == 32 for layer in cache.layers)
    static = model.generate(ids, max_new_tokens=50, min_new_tokens=50, do_sample=False, cache_implementation="static")
    assert torch.equal(static, out[:, :62])  # a stream needs no such cache, and gives the same
    tf.unpatch(model)


@pytest.mark.parametrize("name", ["llama", "mistral_wide"])
def test_streaming_agrees_with_tesseras_own_engine(tmp_path, name):
    """The same checkpoint in transformers with our patch, and in tessera.LLM: the same tokens, far past the window."""
    model, ids = make(name), prompt()
    model.save_pretrained(tmp_path)
    tf.patch(model, streaming=(4, 28))
    report = tf.verify(model, ids, tokens=20)  # as many as both windows hold
    assert report.ok, str(report)
    out = model.generate(ids, max_new_tokens=150, min_new_tokens=150, do_sample=False)[0, 12:].tolist()
    llm = tessera.LLM(tmp_path, device="cpu", activations="exact", streaming=(4, 28), max_sequences=1, context=128)
    forbidden = {i: float("-inf") for i in llm.config.eos}
    params = tessera.SamplingParams(temperature=0, max_tokens=150, ignore_eos=True, logit_bias=forbidden)
    assert llm.generate(ids.tolist(), params)[0].token_ids == out
    with pytest.raises(tessera.Error, match="no tokenizer.json, so text cannot be read"):
        llm.generate("Once")


@pytest.mark.parametrize("options", [{"linear": "nvfp4"}, {"streaming": (4, 28)}], ids=str)
def test_a_copy_of_a_patched_model_is_a_model_of_its_own(options):
    model, ids = make("llama"), prompt()
    expected = tf.patch(model, **options)(ids).logits
    copied = copy.deepcopy(model)
    for layer in model.modules():  # what it may share with its copy, a copy that moves would miss
        if hasattr(layer, "inv_freq"):
            layer.inv_freq = layer.inv_freq.to("meta")
    assert torch.equal(copied(ids).logits, expected)
    assert tf.verify(copied, ids, tokens=4).ok and not tf.patch_of(model).calls.fallbacks
    tf.unpatch(copied)
    assert torch.equal(copied(ids).logits, make("llama")(ids).logits) and tf.patch_of(model) is not None


@pytest.mark.parametrize("name", ["mistral", "qwen2_sliding"])
def test_a_stream_beyond_the_models_own_window_is_refused(name):
    """As the engine refuses it. verify() would compare with a model that sees less than the stream."""
    model = make(name)
    with pytest.raises(tessera.Error, match="keeps 9 tokens, but layers of this model see only the last 8: choose"):
        tf.patch(model, streaming=(1, 8))
    assert tf.patch_of(model) is None
    tf.patch(model, streaming=(2, 6))
    assert tf.verify(model, prompt(4), tokens=4).ok


def test_a_tie_is_no_wrong_token():
    """Two tokens whose logits are nearer than the bound may change places; any others may not."""
    theirs = torch.tensor([1.0, 9.99, 10.0, -4.0])
    ours = torch.tensor([1.0, 10.0, 9.995, -4.0])
    assert verifying.is_tie(ours, theirs, 1, 2, 0.02)[0]
    ok, why = verifying.is_tie(ours, theirs, 0, 2, 0.02)
    assert not ok and "no tie: 9.0e-01 apart" in why
    assert not verifying.is_tie(ours + torch.tensor([0.0, 0.0, 0.0, 2.0]), theirs, 1, 2, 0.02)[0]  # logits are wrong


def test_refusals_are_sentences():
    model, ids = make("llama"), prompt()
    with pytest.raises(tessera.Error, match="not patched"):
        tf.unpatch(model)
    with pytest.raises(tessera.Error, match="not patched"):
        tf.verify(model, ids)
    with pytest.raises(tessera.Error, match="'nothing' matches no linear layer"):
        tf.patch(model, linear="nvfp4", keep_dense=["nothing"])
    assert tf.patch_of(model) is None  # undone
    with pytest.raises(tessera.Error, match="attention=False changes nothing without linear= or streaming="):
        tf.patch(model, attention=False)
    assert tf.patch_of(model) is None
    tf.patch(model, streaming=(4, 12))
    for given, told in ((ids[0], r"\[12\]"), (ids.repeat(2, 1), r"\[2, 12\]"), (ids.tolist(), "a list")):
        with pytest.raises(tessera.Error, match=f"^verify: ids is {told}; give one prompt as a tensor"):
            tf.verify(model, given)
    with pytest.raises(tessera.Error, match="patched already"):
        tf.patch(model)
    with pytest.raises(tessera.Error, match="do not fit into sinks and window"):
        tf.verify(model, ids, tokens=8)
    with pytest.raises(tessera.Error, match="without padding"):
        model(ids, attention_mask=torch.tensor([[0] + [1] * 11]))


@pytest.mark.gpu
def test_a_patched_model_on_the_gpu():
    model = make("llama").to("cuda", torch.float16)
    tf.patch(model, linear="nvfp4")
    assert tf.verify(model, prompt().cuda(), tokens=8).ok


@torch.no_grad()
def streamed_logits(model, ids, chunks):
    """The logits after each chunk of a stream, and what the cache then holds of each layer."""
    cache, at, logits = transformers.DynamicCache(), 0, []
    for n in chunks:
        logits.append(model(ids[:, at : at + n], past_key_values=cache, use_cache=True).logits[0].float().cpu())
        at += n
    return torch.cat(logits), [layer.keys.shape[-2] for layer in cache.layers]


@pytest.mark.parametrize("name", ["neox_parallel", "llama"])
def test_a_stream_read_in_chunks_is_the_stream_read_token_by_token(name):
    model, ids = make(name), prompt(60)
    tf.patch(model, streaming=(4, 28))
    expected, _ = streamed_logits(model, ids, [1] * 60)
    for chunks in ([60], [12, *[1] * 30, 9, 9], [40, 20]):
        ours, held = streamed_logits(model, ids, chunks)
        assert verifying.relative(ours, expected) < 1e-4 and held == [32] * 3


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["neox_parallel", "llama"])
def test_a_streaming_model_on_the_gpu_runs_past_its_window_as_on_the_cpu(name):
    """The same tokens are given to both, so that a tie cannot part them: a prompt, single tokens, a few at once."""
    model, ids = make(name), prompt(96)
    tf.patch(model, streaming=(4, 28))
    chunks = [12, *[1] * 60, 9, *[1] * 15]  # the window of 32 is full after 20 of the single tokens
    expected, _ = streamed_logits(model, ids, chunks)
    model.to("cuda")
    assert tf.verify(model, ids[:, :12].cuda(), tokens=8).ok
    ours, held = streamed_logits(model, ids.cuda(), chunks)
    assert verifying.relative(ours, expected) < 1e-3
    assert held == [32] * 3
    model.half()
    out = model.generate(ids[:, :12].cuda(), max_new_tokens=300, min_new_tokens=300, do_sample=False)
    assert out.shape == (1, 312)  # longer than the model's 256 positions
    assert not tf.patch_of(model).calls.fallbacks
