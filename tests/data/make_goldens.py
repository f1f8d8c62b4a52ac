#!/usr/bin/env python3
"""Writes the dense parity goldens: tiny random checkpoints as transformers saves them, with the results of transformers for them.

    python tests/data/make_goldens.py --out tests/data/goldens

Each folder holds config.json, model.safetensors and golden.safetensors (input_ids, hidden_states.i, logits, generated_ids), computed in
float32 with eager attention. hidden_states.0 is the embedding, and hidden_states.i is the state after layer i; the last one is after the
final norm too. make_packed_goldens.py writes the packed goldens, and uses this file.
Needs: torch, transformers==5.17.0, safetensors. Runs on a CPU in seconds.
"""
import argparse
import json
import pathlib

import torch
import transformers
from safetensors.torch import save_file

PROMPT_LENGTH = 21  # odd, and longer than every sliding window and original_max_position_embeddings used below
GENERATED = 24
# If a greedy token leads the second best by less than this, rounding alone could flip it. Such a seed is not used.
MIN_LEAD = 0.02


def randomise(model, seed):
    """Biases and norms start as zeros and ones in transformers. A golden with those would not notice a forgotten one."""
    gen = torch.Generator().manual_seed(seed)
    for name, p in sorted(model.named_parameters()):
        centre = 1.0 if p.ndim == 1 and "norm" in name and name.endswith("weight") else 0.0
        p.data = centre + 0.2 * torch.randn(p.shape, generator=gen)


def compute(model, batch):
    """The results of the model, and the lead of the least certain greedy token."""
    model.eval()
    gen = torch.Generator().manual_seed(7)
    ids = torch.randint(1, model.config.vocab_size, (batch, PROMPT_LENGTH), generator=gen)
    with torch.no_grad():
        out = model(ids, output_hidden_states=True, use_cache=False)
        full = model.generate(
            ids[:1], max_new_tokens=GENERATED, do_sample=False, eos_token_id=None, pad_token_id=0,
            return_dict_in_generate=True, output_logits=True)
        whole = model(full.sequences[:, :-1], use_cache=False).logits.argmax(-1)
    assert torch.equal(whole[:, PROMPT_LENGTH - 1:], full.sequences[:, PROMPT_LENGTH:]), "cached and full attention differ"
    top = torch.stack(full.logits)[:, 0].topk(2, dim=-1).values  # [GENERATED, 2]
    golden = {"input_ids": ids, "logits": out.logits, "generated_ids": full.sequences[:, PROMPT_LENGTH:]}
    for i, state in enumerate(out.hidden_states):
        golden[f"hidden_states.{i}"] = state
    return {k: v.contiguous() for k, v in golden.items()}, (top[:, 0] - top[:, 1]).min().item()


def load(folder):
    """Loads the stored file, so that weights rounded to a 16-bit type count as stored. Everything else stays float32."""
    return transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32)


def build(config, seed):
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    randomise(model, seed)
    return model


def write(out, name, config, *, batch=1, dtype=torch.float32, edit_config=None):
    folder = out / name
    for seed in range(100):
        build(config, seed).to(dtype).save_pretrained(folder)
        golden, lead = compute(load(folder), batch)
        if lead > MIN_LEAD:
            break
    else:
        raise SystemExit(f"{name}: no seed gives greedy tokens with a clear lead")
    path = folder / "config.json"
    saved = json.loads(path.read_text())
    if edit_config:
        edit_config(saved)
        path.write_text(json.dumps(saved, indent=2, sort_keys=True) + "\n")
    save_file(golden, folder / "golden.safetensors", metadata={"format": "pt"})
    (folder / "generation_config.json").unlink(missing_ok=True)  # it repeats the config
    repeated, _ = compute(load(folder), batch)
    assert all(torch.equal(golden[k], repeated[k]) for k in golden), f"{name}: does not reload to the same values"
    size = sum(f.stat().st_size for f in folder.iterdir())
    print(f"{name:28} seed {seed}  least lead {lead:.3f}  {size // 1024} KiB", flush=True)


def common(hidden=32, heads=4, **more):
    return dict(vocab_size=96, hidden_size=hidden, num_hidden_layers=2, num_attention_heads=heads, initializer_range=0.2,
                max_position_embeddings=256, bos_token_id=0, eos_token_id=0, pad_token_id=0, **more)


def llama_like(**more):
    return common(num_key_value_heads=2, intermediate_size=64, **more)


def use_old_rotary_keys(config):
    """A config as in Pythia's published config.json."""
    rope = config.pop("rope_parameters")
    config["rotary_pct"] = rope["partial_rotary_factor"]
    config["rotary_emb_base"] = int(rope["rope_theta"])


def write_all(out):
    t = transformers
    write(out, "llama-rope-llama3", t.LlamaConfig(**llama_like(head_dim=16), rope_parameters={
        "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16}))
    write(out, "llama-rope-linear", t.LlamaConfig(**llama_like(), rope_parameters={
        "rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}))
    write(out, "llama-biases-tied", t.LlamaConfig(
        **llama_like(), attention_bias=True, mlp_bias=True, tie_word_embeddings=True), batch=2)
    write(out, "mistral-window", t.MistralConfig(**llama_like(), sliding_window=8))
    write(out, "qwen2", t.Qwen2Config(**llama_like()), batch=2)
    write(out, "qwen2-window", t.Qwen2Config(
        **llama_like(), use_sliding_window=True, sliding_window=8, max_window_layers=1))
    write(out, "qwen3", t.Qwen3Config(**llama_like(head_dim=16)))
    write(out, "neox-head80-old-keys", t.GPTNeoXConfig(
        **common(hidden=80, heads=1), intermediate_size=64, use_parallel_residual=True, hidden_act="gelu",
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25}),
        dtype=torch.float16, edit_config=use_old_rotary_keys)
    write(out, "neox-serial-untied", t.GPTNeoXConfig(
        **common(), intermediate_size=64, use_parallel_residual=False, attention_bias=True, tie_word_embeddings=False,
        hidden_act="gelu", rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}))


if __name__ == "__main__":
    transformers.utils.logging.disable_progress_bar()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    write_all(parser.parse_args().out)
