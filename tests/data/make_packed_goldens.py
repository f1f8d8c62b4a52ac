#!/usr/bin/env python3
"""Writes the packed parity goldens: one tiny Llama in every published weight layout Tessera reads.

    python tests/data/make_packed_goldens.py --out tests/data/goldens

The compressed-tensors package itself writes its layouts (with its compressors and its QuantizationConfig). The ModelOpt ones follow
ModelOpt's documented layout. Each golden is computed in float32 on the exactly decoded weights, with no rounding of activations. (The
package's own decoder rounds FP4 to bfloat16, so the exact decoding is written out below and only compared with the package's.)
`decoded.NAME` is one decoded matrix. The file format is that of make_goldens.py.
Needs: torch, transformers==5.17.0, compressed-tensors==0.19.0, safetensors. Runs on a CPU in seconds.
"""
import argparse
import json
import pathlib
import re
import shutil

import compressed_tensors
import torch
import transformers
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.compressors.nvfp4.helpers import pack_fp4_to_uint8
from compressed_tensors.quantization import QuantizationArgs, QuantizationConfig, QuantizationScheme
from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam
from safetensors.torch import save_file

from make_goldens import MIN_LEAD, build, compute, llama_like

SHOWN = "model.layers.0.self_attn.k_proj"  # the matrix that a golden holds decoded
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


# ---- exact decoding, float32 -------------------------------------------------------------------------------------------------------

def fp4_codes(packed):
    return torch.stack([packed & 15, packed >> 4], dim=-1).flatten(1).long()  # low nibble first


def int_codes(packed, bits, count):
    """Codes of `bits` bits, low bits first, stored plus 2^(bits-1)."""
    shifts = torch.arange(0, 32, bits)
    codes = (packed.long().unsqueeze(-1) >> shifts) & ((1 << bits) - 1)  # [rows, words, 32 / bits]
    return codes.flatten(1)[:, :count] - (1 << (bits - 1))


def spread(scale, columns):
    """One scale per row, group or tensor -> one per weight."""
    return scale if scale.numel() == 1 else scale.repeat_interleave(columns // scale.shape[1], dim=1)


def decode(fmt, args, t):
    scale = t["weight_scale"].float()
    if fmt == "nvfp4-pack-quantized":
        values = E2M1[fp4_codes(t["weight_packed"])]
        return values * (spread(scale, values.shape[1]) / t["weight_global_scale"].float())
    if fmt == "mxfp4-pack-quantized":
        values = E2M1[fp4_codes(t["weight_packed"])]
        return values * spread(torch.exp2(scale - 127), values.shape[1])
    if fmt == "pack-quantized":
        rows, columns = t["weight_shape"].tolist()
        codes = int_codes(t["weight_packed"], args.num_bits, columns)
        if not args.symmetric:  # zero points are packed along the rows
            zero = int_codes(t["weight_zero_point"].T, args.num_bits, rows).T
            codes = codes - spread(zero, columns)
        return codes.float() * spread(scale, columns)
    return t["weight"].float() * spread(scale, t["weight"].shape[1])  # float-quantized, int-quantized


# ---- packing with the compressed-tensors package -----------------------------------------------------------------------------------

def pack(weight, fmt, args):
    """The tensors of one Linear as the package's own compressor writes them."""
    shape = {"tensor": (1, weight.numel()), "channel": weight.shape}.get(args.strategy)
    groups = weight.reshape(shape) if shape else weight.unflatten(1, (-1, args.group_size))
    low, high = groups.amin(-1), groups.amax(-1)
    state = {"weight": weight}
    if args.strategy == "tensor_group":
        state["weight_global_scale"] = generate_gparam(low.min(), high.max()).reshape(1)
    scale, zero = calculate_qparams(low, high, args, state.get("weight_global_scale"))
    if args.strategy == "channel":
        scale, zero = scale.unsqueeze(-1), zero.unsqueeze(-1)
    state["weight_scale"] = scale.to(weight.dtype) if args.scale_dtype is None else scale
    state["weight_zero_point"] = zero
    scheme = QuantizationScheme(targets=["Linear"], weights=args)
    compressor = BaseCompressor.get_value_from_registry(fmt)
    packed = compressor.compress(state, scheme)
    exact = decode(fmt, args, packed)
    theirs = compressor.decompress(packed, scheme)["weight"].float()
    assert torch.allclose(exact, theirs, rtol=2 ** -6, atol=1e-6), f"{fmt}: decoded differently"  # theirs may be bfloat16
    return {k: v.contiguous() for k, v in packed.items()}, exact


def compressed_tensors_config(groups, ignore):
    """The part of config.json that ModelCompressor.update_config of compressed-tensors writes."""
    formats = {g.format for g in groups}
    config = QuantizationConfig(
        config_groups={f"group_{i}": g for i, g in enumerate(groups)}, ignore=ignore, quantization_status="compressed",
        format=formats.pop() if len(formats) == 1 else "mixed-precision")
    return {"version": compressed_tensors.__version__, "quant_method": "compressed-tensors", "sparsity_config": {},
            "transform_config": {}, **json.loads(config.model_dump_json(exclude={"quant_method"}))}


# ---- ModelOpt's layout ---------------------------------------------------------------------------------------------------------------

def pack_modelopt(weight, algorithm):
    """NVFP4: code x weight_scale x weight_scale_2. FP8: value x weight_scale."""
    extra = {"input_scale": torch.tensor(0.0123)}  # for activations; the loader must say that it is not applied
    if algorithm == "FP8":
        scale = weight.float().abs().max() / 448
        stored = (weight.float() / scale).to(torch.float8_e4m3fn)
        return {"weight": stored, "weight_scale": scale, **extra}, stored.float() * scale
    scale2 = weight.float().abs().max() / (6 * 448)
    blocks = weight.float().unflatten(1, (-1, 16))  # [N, K / 16, 16]
    scale = (blocks.abs().amax(-1) / 6 / scale2).to(torch.float8_e4m3fn)
    step = scale.float() * scale2
    code = ((blocks / step.unsqueeze(-1)).unsqueeze(-1) - E2M1).abs().argmin(-1)
    stored = pack_fp4_to_uint8(E2M1[code].flatten(1))
    exact = E2M1[fp4_codes(stored)] * step.repeat_interleave(16, dim=1)
    return {"weight": stored, "weight_scale": scale, "weight_scale_2": scale2, **extra}, exact


# ---- checkpoints ---------------------------------------------------------------------------------------------------------------------

def linear_names(model):
    return [n for n, m in model.named_modules() if isinstance(m, torch.nn.Linear)]


def matches(name, targets):
    return any(t == "Linear" or name == t or (t.startswith("re:") and re.match(t[3:], name)) for t in targets)


def write(out, name, choose, finish, dtype=torch.float32):
    """`choose(module name)` -> (tensors, decoded matrix) packed, or None; `finish(folder, config)` adds what names the quantisation."""
    folder = out / name
    config = transformers.LlamaConfig(**{**llama_like(), "vocab_size": 64, "hidden_size": 64, "intermediate_size": 96})
    for seed in range(100):
        model = build(config, seed).to(dtype)
        tensors = {k: v.clone() for k, v in model.state_dict().items()}
        model.float()
        for linear in linear_names(model):
            packed = choose(linear, tensors[f"{linear}.weight"])
            if packed is None:
                continue
            del tensors[f"{linear}.weight"]
            tensors.update({f"{linear}.{k}": v for k, v in packed[0].items()})
            model.get_submodule(linear).weight.data = packed[1]
        # to(16 bits) above rounded the rotary frequencies too, so they are computed again
        exact = build(config, seed)
        exact.load_state_dict(model.state_dict())
        golden, lead = compute(exact, 1)
        if lead > MIN_LEAD:
            break
    else:
        raise SystemExit(f"{name}: no seed gives greedy tokens with a clear lead")
    golden[f"decoded.{SHOWN}.weight"] = exact.get_submodule(SHOWN).weight.data.clone()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    save_file(golden, folder / "golden.safetensors", metadata={"format": "pt"})
    saved = json.loads(config.to_json_string())
    saved.update(architectures=["LlamaForCausalLM"], dtype=str(dtype).removeprefix("torch."))
    finish(folder, saved)
    (folder / "config.json").write_text(json.dumps(saved, indent=2, sort_keys=True) + "\n")
    size = sum(f.stat().st_size for f in folder.iterdir())
    return golden, f"{name:28} seed {seed}  least lead {lead:.3f}  {size // 1024} KiB"


def write_compressed(out, name, groups, ignore=("lm_head",), dtype=torch.float32):
    def choose(module, weight):
        if matches(module, ignore):
            return None
        group = next((g for g in groups if matches(module, g.targets)), None)
        return pack(weight, group.format, group.weights) if group else None

    def finish(_, config):
        config["quantization_config"] = compressed_tensors_config(groups, list(ignore))

    golden, line = write(out, name, choose, finish, dtype)
    # in bfloat16, the only type that its FP4 decoder gives: this checks names and layout, not digits
    theirs = transformers.AutoModelForCausalLM.from_pretrained(out / name, attn_implementation="eager", dtype=torch.bfloat16)
    with torch.no_grad():
        logits = theirs(golden["input_ids"]).logits.float()
    apart = ((logits - golden["logits"]).norm() / golden["logits"].norm()).item()
    assert apart < 0.2, f"{name}: transformers reads other weights"  # FP8 and INT8 round activations there: 0.13
    print(f"{line}  loaded by transformers: {apart:.1e} apart", flush=True)


def write_modelopt(out, name, algorithm, exclude, in_config):
    def choose(module, weight):
        excluded = any(re.fullmatch(p.replace(".", r"\.").replace("*", ".*"), module) for p in exclude)
        return None if excluded else pack_modelopt(weight, algorithm)

    def finish(folder, config):
        quantization = {"quant_algo": algorithm, "kv_cache_quant_algo": None, "exclude_modules": exclude}
        if algorithm == "NVFP4":
            quantization["group_size"] = 16
        producer = {"name": "modelopt", "version": "0.37.0"}
        if in_config:  # newer exports repeat it in config.json, with `ignore` for exclude_modules
            activations = {"dynamic": False, "num_bits": 8, "type": "float"}
            config["quantization_config"] = {
                "quant_method": "modelopt", "quant_algo": algorithm, "producer": producer, "ignore": exclude,
                "config_groups": {"group_0": {"input_activations": activations, "weights": activations, "targets": ["Linear"]}}}
        else:
            text = json.dumps({"producer": producer, "quantization": quantization}, indent=4)
            (folder / "hf_quant_config.json").write_text(text + "\n")

    print(write(out, name, choose, finish)[1], flush=True)


def scheme(fmt, targets=("Linear",), activations=None, **weights):
    return QuantizationScheme(targets=list(targets), format=fmt, weights=QuantizationArgs(**weights), input_activations=activations)


def write_all(out):
    bf16, f16 = torch.bfloat16, torch.float16
    nvfp4 = dict(num_bits=4, type="float", strategy="tensor_group", group_size=16, scale_dtype=torch.float8_e4m3fn,
                 zp_dtype=torch.float8_e4m3fn)
    by_token = QuantizationArgs(num_bits=8, type="float", strategy="token", dynamic=True)
    by_token_int = QuantizationArgs(num_bits=8, type="int", strategy="token", dynamic=True)
    int4 = dict(num_bits=4, type="int", strategy="group", group_size=32)
    write_compressed(out, "llama-mxfp4", [scheme("mxfp4-pack-quantized", num_bits=4, type="float", strategy="group", group_size=32,
                                                 scale_dtype=torch.uint8, zp_dtype=torch.uint8)])
    write_compressed(out, "llama-int4-zero-points", [scheme("pack-quantized", symmetric=False, **int4)], dtype=bf16)
    write_compressed(out, "llama-int4-channel", [scheme("pack-quantized", num_bits=4, type="int", strategy="channel")], dtype=f16)
    write_compressed(out, "llama-int8-group", [scheme("pack-quantized", **{**int4, "num_bits": 8})], dtype=bf16)
    write_compressed(out, "llama-int8-zero-points", [scheme("pack-quantized", symmetric=False, **{**int4, "num_bits": 8})], dtype=f16)
    write_compressed(out, "llama-fp8-channel", [scheme("float-quantized", activations=by_token, num_bits=8, type="float",
                                                       strategy="channel")], dtype=bf16)
    write_compressed(out, "llama-fp8-tensor", [scheme("float-quantized", activations=by_token, num_bits=8, type="float",
                                                      strategy="tensor")], dtype=f16)
    write_compressed(out, "llama-int8-channel", [scheme("int-quantized", activations=by_token_int, num_bits=8, type="int",
                                                        strategy="channel")], dtype=bf16)
    write_compressed(out, "llama-nvfp4-head", [scheme("nvfp4-pack-quantized", **nvfp4)], ignore=(), dtype=bf16)
    write_compressed(out, "llama-mixed-patterns", [
        scheme("nvfp4-pack-quantized", targets=[r"re:.*self_attn\.[qkv]_proj$"], **nvfp4),
        scheme("pack-quantized", targets=["re:.*mlp.*", "model.layers.1.self_attn.o_proj"], **int4),
    ], ignore=("lm_head", r"re:.*layers\.0\.mlp\.down_proj$"))
    write_modelopt(out, "llama-modelopt-nvfp4", "NVFP4", ["lm_head", "model.layers.1.self_attn*"], in_config=False)
    write_modelopt(out, "llama-modelopt-fp8", "FP8", ["lm_head"], in_config=True)


if __name__ == "__main__":
    transformers.utils.logging.disable_progress_bar()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    write_all(parser.parse_args().out)
