#!/usr/bin/env python3
"""Writes the bad files that tests/model/checkpoint/bad_files_test.cc gives to the readers. Each is wrong in one way.

    python3 tests/data/make_bad_files.py            # writes tests/data/bad/{safetensors,config,tokenizer}/*

The test has a table of the expected messages; a new file needs a row there.
"""
import json
import pathlib
import shutil
import struct

BAD = pathlib.Path(__file__).parent / "bad"


def write(folder, name, data):
    path = BAD / folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())


# ---- safetensors --------------------------------------------------------------------------------------------------
def file_of(header, data=b"", length=None):
    """A file around a header, given as text or as an object; `length` overrides the stored one."""
    text = header if isinstance(header, bytes) else (header if isinstance(header, str) else json.dumps(header)).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def tensor(dtype="U8", shape=(4,), offsets=(0, 4)):
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def without(key):
    info = tensor()
    del info[key]
    return info


def safetensors():
    def put(name, header, data=b"wxyz", **options):
        write("safetensors", name + ".safetensors", file_of(header, data, **options))

    def raw(name, data):
        write("safetensors", name + ".safetensors", data)

    # the first eight bytes, and files that are not safetensors at all
    raw("empty", b"")
    raw("five_bytes", b"\x10\0\0\0\0")
    put("length_zero", "", b"")
    put("length_past_the_end", {"x": tensor()}, length=4096)
    put("length_over_the_cap", {"x": tensor()}, length=100_000_001)
    put("length_over_63_bits", {"x": tensor()}, length=2**64 - 1)
    put("length_cuts_the_header", {"x": tensor()}, length=20)
    raw("git_lfs_pointer", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    raw("web_page", "<!DOCTYPE html><html><head><title>404</title></head></html>\n")
    raw("gguf", b"GGUF\x03\0\0\0\0\0\0\0\0\0\0\0")
    raw("pytorch_zip", b"PK\x03\x04\0\0\x08\x08archive/data.pkl")
    raw("pytorch_pickle", b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.")
    # the header as JSON
    put("header_is_an_array", "[1]", b"")
    put("header_after_a_space", " {}", b"")
    put("header_not_closed", '{"x": {"dtype": "U8"', b"")
    put("header_and_more", "{} {}", b"")
    put("header_not_utf8", b'{"\xff": 1}', b"")
    put("header_half_a_surrogate", '{"\\ud800": 1}', b"")
    put("header_nested_deep", '{"x": ' + "[" * 100 + "]" * 100 + "}", b"")
    put("header_number_too_large", '{"x": 1e999}', b"")
    put("name_twice", '{"x": %s, "x": %s}' % ((json.dumps(tensor()),) * 2))
    put("key_twice", '{"x": {"dtype": "U8", "dtype": "U8", "shape": [4], "data_offsets": [0, 4]}}')
    put("metadata_holds_a_number", {"__metadata__": {"step": 7}}, b"")
    put("metadata_is_an_array", {"__metadata__": ["pt"]}, b"")
    # one tensor
    put("tensor_is_null", {"x": None})
    put("tensor_is_a_number", {"x": 4})
    put("dtype_missing", {"x": without("dtype")})
    put("dtype_is_a_number", {"x": tensor(dtype=8)})
    put("dtype_unknown", {"x": tensor(dtype="F7")})
    put("dtype_in_small_letters", {"x": tensor(dtype="u8")})
    put("dtype_with_a_line_break", {"x\n": tensor(dtype="\x1b[31m")})
    put("shape_missing", {"x": without("shape")})
    put("shape_is_a_number", {"x": tensor(shape=4)})
    put("shape_negative", {"x": tensor(shape=[-4])})
    put("shape_fraction", {"x": tensor(shape=[2.5])})
    put("shape_float", {"x": tensor(shape=[4.0])})
    put("shape_text", {"x": tensor(shape=["4"])})
    put("shape_over_63_bits", {"x": tensor(shape=[2**63])})
    put("shape_over_64_bits", {"x": tensor(shape=[2**64])})
    put("shape_product_overflows", {"x": tensor(shape=[2**32, 2**32])})
    put("shape_product_wraps_to_four", {"x": tensor(shape=[2**62 + 1, 4])})
    put("shape_bits_overflow", {"x": tensor(dtype="F64", shape=[2**60])})
    put("shape_overflows_beside_zero", {"x": tensor(shape=[2**62, 2**62, 0], offsets=[0, 0])}, b"")
    put("shape_of_rank_65", {"x": tensor(shape=[1] * 65, offsets=[0, 1])}, b"w")
    put("shape_ends_inside_a_byte", {"x": tensor(dtype="F4", shape=[7])})
    put("shape_needs_more_bytes", {"x": tensor(dtype="F32", shape=[2])})
    put("shape_needs_fewer_bytes", {"x": tensor(shape=[3])})
    put("offsets_missing", {"x": without("data_offsets")})
    put("offsets_three", {"x": tensor(offsets=[0, 2, 4])})
    put("offsets_reversed", {"x": tensor(offsets=[4, 0])})
    put("offsets_negative", {"x": tensor(offsets=[-4, 0])})
    put("offsets_past_the_end", {"x": tensor(offsets=[4, 8])})
    put("offsets_near_64_bits", {"x": tensor(offsets=[2**64 - 4, 2**64 - 1])})
    # all tensors together
    put("data_truncated", {"x": tensor(), "y": tensor(offsets=[4, 8])}, b"wxyzwx")
    put("data_left_over", {"x": tensor()}, b"wxyz!")
    put("data_of_no_tensor", {}, b"wxyz")
    put("data_begins_late", {"x": tensor(offsets=[1, 5])}, b"wxyz!")
    put("data_with_a_gap", {"x": tensor(), "y": tensor(offsets=[5, 9])}, b"wxyz!wxyz")
    put("data_overlaps", {"x": tensor(), "y": tensor(offsets=[3, 7])}, b"wxyzwxy")
    put("data_shared_by_two", {"x": tensor(), "y": tensor()})
    put("empty_tensor_inside_another", {"x": tensor(), "y": tensor(shape=[0], offsets=[2, 2])})


# ---- config.json --------------------------------------------------------------------------------------------------
LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 256,
    "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "hidden_act": "silu", "torch_dtype": "float32",
}
NEOX = {
    "architectures": ["GPTNeoXForCausalLM"], "model_type": "gpt_neox", "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 256, "max_position_embeddings": 128,
    "layer_norm_eps": 1e-5, "hidden_act": "gelu", "rotary_pct": 0.5, "torch_dtype": "float32",
}


def config():
    def raw(name, data):
        write("config", name + ".json", data)

    def put(name, base=LLAMA, drop=(), **changes):
        raw(name, json.dumps({k: v for k, v in {**base, **changes}.items() if k not in drop}, indent=1) + "\n")

    # not the JSON it should be
    raw("empty", "")
    raw("not_json", "hidden_size: 64\n")
    raw("not_closed", json.dumps(LLAMA)[:-1])
    raw("utf16", json.dumps(LLAMA).encode("utf-16"))
    raw("not_utf8", b'{"model_type": "ll\xe4ma"}')
    raw("an_array", json.dumps([LLAMA]))
    raw("key_twice", json.dumps(LLAMA)[:-1] + ', "hidden_size": 64}')
    raw("nested_deep", '{"a":' * 100 + "1" + "}" * 100)
    put("eps_nan", rms_norm_eps=float("nan"))
    put("eps_infinite", rms_norm_eps=float("inf"))
    raw("eps_too_large_for_a_number", json.dumps(LLAMA).replace("1e-05", "1e999"))
    # sizes
    put("hidden_size_missing", drop=["hidden_size"])
    put("hidden_size_null", hidden_size=None)
    put("hidden_size_text", hidden_size="64")
    put("hidden_size_list", hidden_size=[64])
    put("hidden_size_true", hidden_size=True)
    put("hidden_size_zero", hidden_size=0)
    put("hidden_size_negative", hidden_size=-64)
    put("hidden_size_fraction", hidden_size=64.5)
    put("hidden_size_2_to_62", hidden_size=2**62)
    put("hidden_size_2_to_64", hidden_size=2**64)
    put("layers_2_to_40", num_hidden_layers=2**40)
    put("layers_missing", drop=["num_hidden_layers"])
    put("vocab_2_to_40", vocab_size=2**40)
    put("vocab_zero", vocab_size=0)
    put("intermediate_missing", drop=["intermediate_size"])
    put("positions_zero", max_position_embeddings=0)
    put("heads_zero", num_attention_heads=0)
    put("heads_do_not_divide", num_attention_heads=6, num_key_value_heads=2)
    put("heads_do_not_divide_neox", NEOX, num_attention_heads=7)
    put("kv_heads_do_not_divide", num_key_value_heads=3)
    put("kv_heads_zero", num_key_value_heads=0)
    put("kv_heads_too_many", num_key_value_heads=8)
    put("head_dim_zero", head_dim=0)
    put("head_dim_odd", head_dim=15)
    put("eps_negative", rms_norm_eps=-1e-5)
    put("eps_text", rms_norm_eps="1e-5")
    put("eps_one", rms_norm_eps=1)
    # what the model is
    put("architecture_missing", drop=["architectures", "model_type"])
    put("architecture_unknown", architectures=["MambaForCausalLM"], model_type="mamba")
    put("architecture_with_control_characters", architectures=["\x1b[31m\n"], model_type="\x1b[31m\n")
    put("architecture_a_text", architectures="LlamaForCausalLM")
    put("architecture_and_type_differ", model_type="gpt_neox")
    put("experts", num_local_experts=8)
    put("softcap", attn_logit_softcapping=50.0)
    put("activation_unknown", hidden_act="mish")
    put("activation_a_number", hidden_act=3)
    put("dtype_unknown", torch_dtype="int4")
    put("tied_head_text", tie_word_embeddings="yes")
    put("eos_text", eos_token_id="</s>")
    put("eos_negative", eos_token_id=[2, -1])
    put("eos_2_to_63", eos_token_id=2**63)
    put("window_of_llama", sliding_window=64)
    put("layer_types_too_few", layer_types=["full_attention"])
    put("layer_types_unknown", layer_types=["full_attention", "linear_attention"])
    # rotary embedding
    put("rope_a_text", rope_scaling="linear")
    put("rope_type_unknown", rope_scaling={"rope_type": "yarn", "factor": 4.0})
    put("rope_factor_missing", rope_scaling={"rope_type": "linear"})
    put("rope_factor_zero", rope_scaling={"rope_type": "linear", "factor": 0})
    put("rope_factor_text", rope_scaling={"type": "linear", "factor": "4"})
    put("rope_bands_crossed", rope_scaling={"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 4.0,
                                            "high_freq_factor": 1.0, "original_max_position_embeddings": 64})
    put("rope_theta_negative", rope_theta=-10000)
    put("rope_theta_zero", rope_theta=0)
    put("rotary_share_over_one", NEOX, rotary_pct=1.5)
    put("rotary_share_zero", NEOX, rotary_pct=0)
    put("rotary_share_of_one_element", NEOX, rotary_pct=0.1)


# ---- tokenizer.json -----------------------------------------------------------------------------------------------
def tokenizer():
    def raw(name, data):
        write("tokenizer", name + ".json", data)

    def put(name, model=(), drop=(), **changes):
        """A good tokenizer except for the changes: those of its model, and those of the file."""
        good = {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]}
        good = {k: v for k, v in {**good, **dict(model)}.items() if k not in drop}
        file = {
            "version": "1.0", "added_tokens": [{"id": 3, "content": "<s>", "special": True}], "normalizer": None,
            "pre_tokenizer": {"type": "ByteLevel"}, "post_processor": None, "decoder": {"type": "ByteLevel"}, "model": good,
        }
        raw(name, json.dumps({k: v for k, v in {**file, **changes}.items() if k not in drop}) + "\n")

    def added(**changes):
        return [{"id": 3, "content": "<s>", "special": True, **changes}]

    def split(regex):
        return {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated"}

    def replace(old, new):
        return {"type": "Replace", "pattern": {"String": old}, "content": new}

    def template(token="<s>", ids=(3,)):
        return {"type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                "special_tokens": {token: {"id": token, "ids": list(ids), "tokens": [token]}}}

    # the file
    raw("empty", "")
    raw("not_closed", '{"version": "1.0", "model": {')
    raw("an_array", "[]")
    raw("token_twice", '{"model": {"type": "BPE", "vocab": {"a": 0, "a": 1}, "merges": []}}')
    put("version_unknown", version="2.0")
    # the model
    put("model_missing", drop=["model"])
    put("model_unigram", model={"type": "Unigram"})
    put("vocab_missing", drop=["vocab"])
    put("vocab_a_list", model={"vocab": ["a", "b", "ab"]})
    put("id_negative", model={"vocab": {"a": -1}})
    put("id_2_to_40", model={"vocab": {"a": 2**40}})
    put("id_a_text", model={"vocab": {"a": "0"}})
    put("id_a_fraction", model={"vocab": {"a": 0.5}})
    put("id_of_two_tokens", model={"vocab": {"a": 0, "b": 0}})
    put("id_wrong_of_a_control_character", model={"vocab": {"\x1b[31m\n": -1}})
    put("merges_missing", drop=["merges"])
    put("merge_of_three", model={"merges": ["a b c"]})
    put("merge_a_number", model={"merges": [7]})
    put("merge_of_an_unknown_token", model={"merges": [["a", "c"]]})
    put("merge_makes_an_unknown_token", model={"merges": [["b", "a"]]})
    put("suffix_of_a_kilobyte", model={"end_of_word_suffix": "x" * 1024})
    put("dropout", model={"dropout": 0.1})
    # added tokens
    put("added_tokens_an_object", added_tokens={})
    put("added_token_without_content", added_tokens=[{"id": 3}])
    put("added_token_twice", added_tokens=added() + added())
    put("added_token_with_the_id_of_another", added_tokens=added(id=0))
    put("added_token_with_a_second_id", added_tokens=added(content="a"))
    put("added_token_id_2_to_62", added_tokens=added(id=2**62))
    put("added_token_of_a_kilobyte", added_tokens=added(content="<" * 1024))
    put("added_token_normalized_to_550_bytes", normalizer=replace("a", "b" * 50),
        added_tokens=added(content="a" * 11, special=False))
    # the steps
    put("normalizer_unknown", normalizer={"type": "Precompiled", "precompiled_charsmap": ""})
    put("normalizer_without_type", normalizer={"normalizers": []})
    put("replace_without_pattern", normalizer={"type": "Replace", "content": "x"})
    put("replace_nothing", normalizer=replace("", "x"))
    put("pre_tokenizer_unknown", pre_tokenizer={"type": "UnicodeScripts"})
    put("split_behavior_unknown", pre_tokenizer={**split("a"), "behavior": "Sometimes"})
    put("pattern_not_closed", pre_tokenizer=split("(a"))
    put("pattern_closed_twice", pre_tokenizer=split("a)"))
    put("pattern_class_not_closed", pre_tokenizer=split("[a"))
    put("pattern_repeats_a_billion_times", pre_tokenizer=split("(?:a{60000}){60000}"))
    put("pattern_interval_of_an_interval", pre_tokenizer=split("a" + "{1}+" * 500))
    put("pattern_of_five_kilobytes", pre_tokenizer=split("a" * 5000))
    put("literal_of_five_kilobytes", normalizer=replace("a" * 5000, "x"))
    put("pattern_refers_back", pre_tokenizer=split("(a)\\1"))
    put("pattern_with_a_line_break", pre_tokenizer=split("(\n\x1b[31m"))
    put("metaspace_of_two_characters", pre_tokenizer={"type": "Metaspace", "replacement": "__"})
    put("decoder_unknown", decoder={"type": "CTC"})
    put("sequence_without_list", decoder={"type": "Sequence"})
    put("template_token_unknown", post_processor=template(ids=[9]))
    put("template_token_without_ids", post_processor=template(token="</s>"))
    put("template_id_negative", post_processor=template(ids=[-1]))
    put("template_of_many_texts", post_processor={**template(), "single": [{"Sequence": {"id": "A"}}] * 100})
    put("template_of_many_tokens", post_processor=template(ids=[3] * 1000))
    # files that would take more memory than there is
    put("normalizer_doubles_forty_times", normalizer={"type": "Sequence", "normalizers": [replace("a", "aa")] * 40})
    put("normalizer_of_many_byte_levels", normalizer={"type": "Sequence", "normalizers": [{"type": "ByteLevel"}] * 60})
    put("pre_tokenizer_of_many_byte_levels",
        pre_tokenizer={"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}] * 30})
    put("normalizer_and_pre_tokenizer_grow_a_text", normalizer=replace("a", "b" * 200))
    put("normalizer_of_a_hundred_steps", normalizer={"type": "Sequence", "normalizers": [{"type": "StripAccents"}] * 100})
    put("decoder_doubles_forty_times", decoder={"type": "Sequence", "decoders": [replace("a", "aa")] * 40})


if __name__ == "__main__":
    for part in (safetensors, config, tokenizer):
        shutil.rmtree(BAD / part.__name__, ignore_errors=True)
        part()
    print(sum(1 for _ in BAD.rglob("*.*")), "files under", BAD)
