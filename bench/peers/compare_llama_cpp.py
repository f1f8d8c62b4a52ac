#!/usr/bin/env python3
"""Compares Tessera with llama.cpp on the CPU: the same random model, the same machine, the same minute.

    python bench/peers/compare_llama_cpp.py [--shape pythia-160m] [--threads 2] [--rounds 3]

Writes one random model as a Hugging Face checkpoint and as GGUF files into --work (kept, so that a second run
starts at once), then times both programs in turns: pp512 is a prompt of 512 tokens into an empty cache, tg128
is 128 tokens one by one. Results are medians, in tokens per second. The words of such a model mean nothing, but
its speed is real. Needs build/bin/bench_generate, and numpy, safetensors, gguf and llama-cpp-python from pip
(the last one is compiled, which takes some minutes).
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

import numpy as np

SHAPES = {  # layers, hidden, heads, feed-forward, vocabulary: the GPT-NeoX sizes of Pythia
    "pythia-160m": (12, 768, 12, 3072, 50304),
    "pythia-410m": (24, 1024, 16, 4096, 50304),
}
# llama.cpp's file type -> our weights: the pairs that are compared. Both have the same bits per weight (Q4_0 has groups of 32).
PAIRS = {"f16": ["dense"], "q8_0": ["int8"], "q4_0": ["int4:32", "nvfp4"]}
CONTEXT = 4096


def tensors(layers, hidden, feed_forward, vocab):
    """(Hugging Face name, GGUF name, array) of every tensor. Vectors are ones and zeros, matrices are noise."""
    rng = np.random.default_rng(0)

    def noise(rows, columns):
        return (rng.standard_normal((rows, columns), np.float32) * 0.02).astype(np.float16)

    def norm(hf, gg):
        yield hf + ".weight", gg + ".weight", np.ones(hidden, np.float16)
        yield hf + ".bias", gg + ".bias", np.zeros(hidden, np.float16)

    def linear(hf, gg, out, inside):
        yield hf + ".weight", gg + ".weight", noise(out, inside)
        yield hf + ".bias", gg + ".bias", np.zeros(out, np.float16)

    yield "gpt_neox.embed_in.weight", "token_embd.weight", noise(vocab, hidden)
    for i in range(layers):
        hf, gg = f"gpt_neox.layers.{i}.", f"blk.{i}."
        yield from norm(hf + "input_layernorm", gg + "attn_norm")
        yield from norm(hf + "post_attention_layernorm", gg + "ffn_norm")
        yield from linear(hf + "attention.query_key_value", gg + "attn_qkv", 3 * hidden, hidden)
        yield from linear(hf + "attention.dense", gg + "attn_output", hidden, hidden)
        yield from linear(hf + "mlp.dense_h_to_4h", gg + "ffn_up", feed_forward, hidden)
        yield from linear(hf + "mlp.dense_4h_to_h", gg + "ffn_down", hidden, feed_forward)
    yield from norm("gpt_neox.final_layer_norm", "output_norm")
    yield "embed_out.weight", "output.weight", noise(vocab, hidden)


def write_checkpoint(folder, shape, parts):
    from safetensors.numpy import save_file

    layers, hidden, heads, feed_forward, vocab = shape
    folder.mkdir(parents=True, exist_ok=True)
    config = dict(architectures=["GPTNeoXForCausalLM"], model_type="gpt_neox", hidden_size=hidden, vocab_size=vocab,
                  num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=feed_forward,
                  max_position_embeddings=CONTEXT, hidden_act="gelu", rotary_pct=0.25, rotary_emb_base=10000,
                  use_parallel_residual=True, layer_norm_eps=1e-5, tie_word_embeddings=False, dtype="float16",
                  bos_token_id=0, eos_token_id=0)
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    save_file({name: array for name, _, array in parts}, folder / "model.safetensors", metadata={"format": "pt"})


def write_gguf(path, kind, shape, parts, tokens=None):
    """`tokens`: the vocabulary, for a server that reads and writes text; without it, only ids."""
    import gguf

    layers, hidden, heads, feed_forward, vocab = shape
    packed = gguf.GGMLQuantizationType[kind.upper()]
    writer = gguf.GGUFWriter(path, "gptneox")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(hidden)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(feed_forward)
    writer.add_head_count(heads)
    writer.add_vocab_size(vocab)
    if tokens is None:
        writer.add_tokenizer_model("no_vocab")
    else:
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("gpt-2")
        writer.add_token_list(tokens)
        writer.add_token_types([gguf.TokenType.NORMAL] * len(tokens))
        writer.add_token_merges([f"{tokens[64]} {tokens[65]}"])  # it wants one; no prompt here is text
    writer.add_rope_dimension_count(hidden // heads // 4)
    writer.add_parallel_residual(True)
    writer.add_layer_norm_eps(1e-5)
    for _, name, array in parts:
        if array.ndim == 1:
            writer.add_tensor(name, array.astype(np.float32))
        elif kind == "f16":
            writer.add_tensor(name, array)
        else:
            writer.add_tensor(name, gguf.quantize(array.astype(np.float32), packed), raw_dtype=packed)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class LlamaCpp:
    """One GGUF file in llama.cpp, run on random tokens."""

    def __init__(self, path, threads, prompt, generate):
        import llama_cpp

        self.api, self.prompt, self.generate = llama_cpp, prompt, generate
        self.silence = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(self.silence, None)
        self.model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
        params = llama_cpp.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = prompt + generate, prompt, prompt
        params.n_threads = params.n_threads_batch = threads
        self.context = llama_cpp.llama_init_from_model(self.model, params)
        vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))
        self.tokens = np.random.default_rng(1).integers(0, vocab, prompt + generate)

    def decode(self, tokens, start):
        batch = self.api.llama_batch_init(len(tokens), 0, 1)
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0] = int(token), start + i, 1, 0
            batch.logits[i] = i == len(tokens) - 1
        if self.api.llama_decode(self.context, batch) != 0:
            raise RuntimeError("llama_decode failed")
        self.api.llama_synchronize(self.context)
        self.api.llama_batch_free(batch)

    def run(self, count, step):
        self.api.llama_memory_clear(self.api.llama_get_memory(self.context), True)
        start = time.perf_counter()
        for i in range(0, count, step):
            self.decode(self.tokens[i:i + step], i)
        return count / (time.perf_counter() - start)

    def measure(self, repeat):
        self.run(self.prompt, self.prompt)  # warm-up
        prompt = [self.run(self.prompt, self.prompt) for _ in range(repeat)]
        generate = [self.run(self.generate, 1) for _ in range(repeat)]
        return statistics.median(prompt), statistics.median(generate)

    def close(self):
        self.api.llama_free(self.context)
        self.api.llama_model_free(self.model)


def tessera(program, model, weights, threads, a):
    command = [program, "--model", str(model), "--weights", weights, "--threads", str(threads), "--prompt", str(a.prompt),
               "--generate", str(a.generate), "--repeat", str(a.repeat)]
    row = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return row[f"pp{a.prompt}"], row[f"tg{a.generate}"], row["of_linear_alone"]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--shape", choices=SHAPES, default="pythia-160m")
    p.add_argument("--work", type=pathlib.Path, default=pathlib.Path("build/peers"), help="folder for the model files")
    p.add_argument("--program", default="build/bin/bench_generate")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--prompt", type=int, default=512)
    p.add_argument("--generate", type=int, default=128)
    p.add_argument("--repeat", type=int, default=3, help="runs of each program per round")
    p.add_argument("--rounds", type=int, default=3, help="number of turns that the two programs take")
    p.add_argument("--pairs", default=",".join(PAIRS), help="llama.cpp file types")
    a = p.parse_args()

    folder, shape = a.work / a.shape, SHAPES[a.shape]
    layers, hidden, _, feed_forward, vocab = shape
    wanted = a.pairs.split(",")
    if not all((folder / f"{kind}.gguf").exists() for kind in wanted):
        print(f"making {a.shape} in {folder}", file=sys.stderr)
        parts = list(tensors(layers, hidden, feed_forward, vocab))
        write_checkpoint(folder / "hf", shape, parts)
        for kind in wanted:
            write_gguf(folder / f"{kind}.gguf", kind, shape, parts)

    print(f"{a.shape}, {a.threads} threads, tokens/s, medians of {a.rounds} rounds of {a.repeat}\n")
    print("| llama.cpp | pp | tg | Tessera | pp | tg | pp ratio | tg ratio | pp of linear alone |")
    print("|---|---|---|---|---|---|---|---|---|")
    for kind in wanted:
        theirs, ours = [], {weights: [] for weights in PAIRS[kind]}
        for _ in range(a.rounds):
            peer = LlamaCpp(folder / f"{kind}.gguf", a.threads, a.prompt, a.generate)
            theirs.append(peer.measure(a.repeat))
            peer.close()
            for weights in ours:
                ours[weights].append(tessera(a.program, folder / "hf", weights, a.threads, a))
        peer_pp, peer_tg = (statistics.median(column) for column in zip(*theirs))
        for weights, rows in ours.items():
            pp, tg, of_linear = (statistics.median(column) for column in zip(*rows))
            label = "f16" if weights == "dense" else weights
            print(f"| {kind.upper()} | {peer_pp:.0f} | {peer_tg:.1f} | {label} | {pp:.0f} | {tg:.1f} | {pp / peer_pp:.2f}x "
                  f"| {tg / peer_tg:.2f}x | {of_linear:.2f} |", flush=True)


if __name__ == "__main__":
    main()
