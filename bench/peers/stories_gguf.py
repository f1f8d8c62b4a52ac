#!/usr/bin/env python3
"""The bundled model as a GGUF file for llama.cpp: dense f16 weights, decoded from nvfp4, and no vocabulary.

    stories_gguf.py [models/stories] OUT.gguf

Python's standard library is enough. llama_cache.cc reads token ids, so the file needs no tokenizer.
"""

import json
import struct
import sys
from array import array
from pathlib import Path

E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0]
F32, F16 = 0, 1  # types of GGML


def e4m3(code):
    exponent, mantissa = code >> 3 & 15, code & 7
    value = mantissa * 2.0**-9 if exponent == 0 else (8 + mantissa) * 2.0 ** (exponent - 10)
    return -value if code & 128 else value


class Checkpoint:
    def __init__(self, folder):
        data = (folder / "model.safetensors").read_bytes()
        size = struct.unpack("<Q", data[:8])[0]
        self.header, self.data = json.loads(data[8 : 8 + size]), data[8 + size :]

    def bytes_of(self, name):
        begin, end = self.header[name]["data_offsets"]
        return self.data[begin:end]

    def vector(self, name):
        """bf16 numbers as floats."""
        halves = array("H", self.bytes_of(name))
        return [struct.unpack("<f", struct.pack("<I", bits << 16))[0] for bits in halves]

    def rows(self, name):
        """[out] rows of an nvfp4 matrix as lists of floats: e2m1 * scale / global scale, low nibble first."""
        out, packed = self.header[name + "_packed"]["shape"]
        codes, scales = self.bytes_of(name + "_packed"), self.bytes_of(name + "_scale")
        whole = struct.unpack("<f", self.bytes_of(name + "_global_scale"))[0]
        table = [e4m3(code) / whole for code in range(256)]
        for row in range(out):
            values = []
            for block in range(packed // 8):
                scale = table[scales[row * (packed // 8) + block]]
                for byte in codes[row * packed + block * 8 : row * packed + block * 8 + 8]:
                    values += (E2M1[byte & 15] * scale, E2M1[byte >> 4] * scale)
            yield values


def f16_rows(rows):
    return b"".join(struct.pack(f"<{len(row)}e", *row) for row in rows)


def thirds(rows, heads):
    """The rows of queries, keys and values: from [heads, 3, dim] to [3, heads, dim]."""
    dim = len(rows) // (3 * heads)
    return [rows[(h * 3 + part) * dim + d] for part in range(3) for h in range(heads) for d in range(dim)]


def tensors(checkpoint, config):
    hidden, heads = config["hidden_size"], config["num_attention_heads"]

    def vector(name, source, order=None):
        values = checkpoint.vector(source)
        return name, [len(values)], F32, struct.pack(f"<{len(values)}f", *(order(values) if order else values))

    def matrix(name, source, order=None):
        rows = list(checkpoint.rows(source))
        return name, [len(rows[0]), len(rows)], F16, f16_rows(order(rows) if order else rows)

    def by_part(rows):
        return thirds(rows, heads)

    table = checkpoint.vector("gpt_neox.embed_in.weight")
    yield "token_embd.weight", [hidden, config["vocab_size"]], F16, struct.pack(f"<{len(table)}e", *table)
    for layer in range(config["num_hidden_layers"]):
        hf, gg = f"gpt_neox.layers.{layer}.", f"blk.{layer}."
        for kind in ("weight", "bias"):
            yield vector(f"{gg}attn_norm.{kind}", f"{hf}input_layernorm.{kind}")
            yield vector(f"{gg}ffn_norm.{kind}", f"{hf}post_attention_layernorm.{kind}")
        for name, source, order in (("attn_qkv", "attention.query_key_value", by_part),
                                    ("attn_output", "attention.dense", None),
                                    ("ffn_up", "mlp.dense_h_to_4h", None), ("ffn_down", "mlp.dense_4h_to_h", None)):
            yield matrix(f"{gg}{name}.weight", f"{hf}{source}.weight", order)
            yield vector(f"{gg}{name}.bias", f"{hf}{source}.bias", order)
    for kind in ("weight", "bias"):
        yield vector(f"output_norm.{kind}", f"gpt_neox.final_layer_norm.{kind}")
    yield matrix("output.weight", "embed_out.weight")


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def main():
    folder, out = Path(sys.argv[1] if len(sys.argv) > 2 else "models/stories"), Path(sys.argv[-1])
    config = json.loads((folder / "config.json").read_text())
    dim = config["hidden_size"] // config["num_attention_heads"]
    u32, f32, boolean, string = 4, 6, 7, 8  # types of values
    pairs = [("general.architecture", string, "gptneox"), ("tokenizer.ggml.model", string, "no_vocab")]
    pairs += [("gptneox." + key, kind, value) for key, kind, value in (
        ("vocab_size", u32, config["vocab_size"]),
        ("context_length", u32, config["max_position_embeddings"]), ("embedding_length", u32, config["hidden_size"]),
        ("block_count", u32, config["num_hidden_layers"]), ("feed_forward_length", u32, config["intermediate_size"]),
        ("attention.head_count", u32, config["num_attention_heads"]), ("rope.dimension_count", u32, dim // 4),
        ("use_parallel_residual", boolean, True), ("attention.layer_norm_epsilon", f32, config["layer_norm_eps"]))]
    formats = {u32: "<I", f32: "<f", boolean: "<?"}
    made = list(tensors(Checkpoint(folder), config))
    head = b"GGUF" + struct.pack("<IQQ", 3, len(made), len(pairs))
    for key, kind, value in pairs:
        head += text(key) + struct.pack("<I", kind)
        head += text(value) if kind == string else struct.pack(formats[kind], value)
    offset, body = 0, []
    for name, shape, kind, data in made:
        head += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)
        data += bytes(-len(data) % 32)
        body.append(data)
        offset += len(data)
    out.write_bytes(head + bytes(-len(head) % 32) + b"".join(body))


if __name__ == "__main__":
    main()
