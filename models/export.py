"""Writes a trained model as a Hugging Face folder, in float16 or packed in NVFP4 (compressed-tensors), and reads it back."""
import json
import pathlib
import shutil

import torch
from safetensors.torch import load_file, save_file

import nvfp4
from corpus import BEGIN, BEGIN_ID, STORY, STORY_ID
from neox import Shape

PLAIN = {"nvfp4": torch.bfloat16, "float16": torch.float16}  # dtype of tensors that are not packed


def is_packed(name, parameter, fmt):
    """Every Linear, including the head, but not the embedding: transformers (5.17) cannot load a packed one."""
    return fmt == "nvfp4" and parameter.ndim == 2 and "embed_in" not in name


def stored_values(model, fmt):
    """Every parameter as it will be in the file, in float32, by name."""
    return {n: nvfp4.rounded(p) if is_packed(n, p, fmt) else p.to(PLAIN[fmt]).float() for n, p in model.named_parameters()}


def tensors_of(model, fmt):
    tensors = {}
    for name, p in model.named_parameters():
        if is_packed(name, p, fmt):
            module = name.removesuffix(".weight")
            tensors.update({f"{module}.{k}": v for k, v in nvfp4.pack(p.detach().float()).items()})
        else:
            tensors[name] = p.detach().to(PLAIN[fmt])
    return {k: v.cpu().contiguous() for k, v in tensors.items()}


def decode(tensors):
    """File tensors -> float32 parameters by name: the exact values that every reader of the file computes with."""
    out = {}
    for name, t in tensors.items():
        module, _, kind = name.rpartition(".")
        if kind == "weight_packed":
            fields = ("weight_packed", "weight_scale", "weight_global_scale")
            out[f"{module}.weight"] = nvfp4.unpack({k: tensors[f"{module}.{k}"] for k in fields})
        elif kind in ("weight", "bias"):
            out[name] = t.float()
    return out


def quantization_config():
    """The quantization config, as compressed-tensors writes it."""
    weights = {"actorder": None, "block_structure": None, "dynamic": False, "group_size": nvfp4.BLOCK, "num_bits": 4,
               "observer": None, "observer_kwargs": {}, "scale_dtype": "torch.float8_e4m3fn", "strategy": "tensor_group",
               "symmetric": True, "type": "float", "zp_dtype": None}
    group = {"format": "nvfp4-pack-quantized", "input_activations": None, "output_activations": None,
             "targets": ["Linear"], "weights": weights}
    return {"config_groups": {"group_0": group}, "format": "nvfp4-pack-quantized", "global_compression_ratio": None, "ignore": [],
            "kv_cache_scheme": None, "quant_method": "compressed-tensors", "quantization_status": "compressed",
            "sparsity_config": {}, "transform_config": {}, "version": "0.19.0"}


def config_of(shape, fmt):
    config = {
        "architectures": ["GPTNeoXForCausalLM"], "model_type": "gpt_neox", "attention_bias": True, "attention_dropout": 0.0,
        "bos_token_id": BEGIN_ID, "eos_token_id": STORY_ID, "dtype": str(PLAIN[fmt]).removeprefix("torch."),
        "hidden_act": "gelu", "hidden_dropout": 0.0, "hidden_size": shape.hidden, "initializer_range": 0.02,
        "intermediate_size": 4 * shape.hidden, "layer_norm_eps": 1e-05, "max_position_embeddings": shape.window,
        "num_attention_heads": shape.heads, "num_hidden_layers": shape.layers,
        "rope_parameters": {"partial_rotary_factor": shape.rotary_fraction, "rope_theta": shape.rotary_base,
                            "rope_type": "default"},
        "tie_word_embeddings": shape.tied, "use_cache": True, "use_parallel_residual": True, "vocab_size": shape.vocab}
    if fmt == "nvfp4":
        config["quantization_config"] = quantization_config()
    return config


def shape_of(config):
    return Shape(vocab=config["vocab_size"], layers=config["num_hidden_layers"], hidden=config["hidden_size"],
                 heads=config["num_attention_heads"], window=config["max_position_embeddings"], tied=config["tie_word_embeddings"],
                 rotary_fraction=config["rope_parameters"]["partial_rotary_factor"])


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n")


def write(model, tokenizer, out, fmt):
    """`tokenizer`: path of tokenizer.json."""
    out = pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    save_file(tensors_of(model, fmt), out / "model.safetensors", metadata={"format": "pt"})
    write_json(out / "config.json", config_of(model.shape, fmt))
    write_json(out / "generation_config.json", {"bos_token_id": BEGIN_ID, "eos_token_id": STORY_ID})
    write_json(out / "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": BEGIN, "eos_token": STORY, "add_bos_token": True,
        "add_prefix_space": False, "clean_up_tokenization_spaces": False, "model_max_length": model.shape.window})
    if pathlib.Path(tokenizer).resolve() != (out / "tokenizer.json").resolve():
        shutil.copyfile(tokenizer, out / "tokenizer.json")
    return sum(f.stat().st_size for f in out.iterdir())


def load_into(model, folder):
    """From here on, the model computes with exactly the values of the file."""
    values = decode(load_file(pathlib.Path(folder) / "model.safetensors"))
    if model.shape.tied:
        values["embed_out.weight"] = values["gpt_neox.embed_in.weight"]
    model.load_state_dict(values)
