// Each file of tests/data/bad is wrong in one way. This test knows the message for each. A file
// without a row here fails, and so does a row without a file.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "model/architectures/config.h"
#include "model/checkpoint/mapped_file.h"
#include "model/checkpoint/safetensors.h"
#include "support/files.h"
#include "tessera/error.h"
#include "tessera/tokenizer.h"

namespace tessera::model {
namespace {

namespace fs = std::filesystem;

// The name of a file without its extension, and a part of the message.
struct Row {
  const char* file;
  std::string part;
};
using Reader = std::function<void(const MappedFile& file, const std::string& where)>;

bool has_control_characters(const std::string& text) {
  return std::any_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

void expect_refusal(const fs::path& path, const std::string& part, const Reader& read) {
  SCOPED_TRACE(path.string());
  try {
    const MappedFile file(path);
    read(file, path.string());
    ADD_FAILURE() << "was not refused; expected: " << part;
  } catch (const Error& error) {
    const std::string sentence = error.what();
    EXPECT_TRUE(error.code() == ErrorCode::file || error.code() == ErrorCode::unsupported);
    EXPECT_TRUE(sentence.starts_with(path.string())) << sentence;
    EXPECT_NE(sentence.find(part), std::string::npos) << sentence << "\nexpected: " << part;
    EXPECT_FALSE(has_control_characters(sentence)) << sentence;
  }
}

void expect_refusals(const char* folder, const std::vector<Row>& rows, const Reader& read) {
  std::map<std::string, std::string> expected;
  for (const Row& row : rows) expected[row.file] = row.part;
  for (const auto& entry : fs::directory_iterator(test::data_path("bad") / folder)) {
    const std::string name = entry.path().stem().string();
    ASSERT_TRUE(expected.contains(name)) << "no row for " << entry.path();
    expect_refusal(entry.path(), expected[name], read);
    expected.erase(name);
  }
  for (const auto& [name, part] : expected) ADD_FAILURE() << "no file " << name;
}

TEST(BadFiles, SafetensorsAreRefused) {
  const std::vector<Row> rows = {
      {"data_begins_late",
       ": tensor \"x\" begins at byte 1 of the data, it must begin at 0: there is a gap before it"},
      {"data_left_over", ": the tensors end at byte 4 of the data and the file holds 5"},
      {"data_of_no_tensor", ": the tensors end at byte 0 of the data and the file holds 4"},
      {"data_overlaps",
       ": tensor \"y\" begins at byte 3 of the data, it must begin at 4: it overlaps another one"},
      {"data_shared_by_two",
       ": tensor \"y\" begins at byte 0 of the data, it must begin at 4: it overlaps another one"},
      {"data_truncated",
       ": tensor \"y\" ends at byte 8 of the data and the file holds 6; it is truncated, fetch it "
       "again"},
      {"data_with_a_gap",
       ": tensor \"y\" begins at byte 5 of the data, it must begin at 4: there is a gap before it"},
      {"dtype_in_small_letters", ": tensor \"x\": the format has no dtype \"u8\""},
      {"dtype_is_a_number", ": tensor \"x\": dtype is 8, it must be a string"},
      {"dtype_missing", ": tensor \"x\": dtype is missing, it must be a string"},
      {"dtype_unknown", ": tensor \"x\": the format has no dtype \"F7\""},
      {"dtype_with_a_line_break", ": tensor \"x\\x0a\": the format has no dtype \"\\x1b[31m\""},
      {"empty", " is empty"},
      {"empty_tensor_inside_another",
       ": tensor \"y\" begins at byte 2 of the data, it must begin at 4: it overlaps another one"},
      {"five_bytes", ": 5 bytes are too few for a safetensors file, which starts with 8"},
      {"gguf", " is a GGUF file; Tessera reads Hugging Face safetensors"},
      {"git_lfs_pointer",
       " is a Git LFS pointer and not the file itself; fetch it with 'git lfs pull'"},
      {"header_after_a_space",
       ": the header does not start with '{'; this is not a safetensors file"},
      {"header_and_more",
       " (header): not valid JSON at byte 4: unexpected '{'; expected end of input"},
      {"header_half_a_surrogate",
       " (header): not valid JSON at byte 9: invalid string: surrogate U+D800..U+DBFF must be "
       "followed by U+DC00..U+DFFF; expected string literal"},
      {"header_is_an_array",
       ": the header does not start with '{'; this is not a safetensors file"},
      {"header_nested_deep", " (header): JSON nested deeper than 64 levels; no model needs that"},
      {"header_not_closed",
       " (header): not valid JSON at byte 21: unexpected end of input; expected '}'"},
      {"header_not_utf8",
       " (header): not valid JSON at byte 3: invalid string: ill-formed UTF-8 byte; expected "
       "string literal"},
      {"header_number_too_large", " (header): not valid JSON at byte 11: a number is too large"},
      {"key_twice",
       " (header): the key \"dtype\" appears twice in one object; each may appear once"},
      {"length_cuts_the_header",
       " (header): not valid JSON at byte 21: unexpected end of input; expected '}'"},
      {"length_over_63_bits",
       ": the header would have 18446744073709551615 bytes, at most 100000000 are allowed; this is "
       "not a safetensors file"},
      {"length_over_the_cap",
       ": the header would have 100000001 bytes, at most 100000000 are allowed; this is not a "
       "safetensors file"},
      {"length_past_the_end",
       ": the header has 4096 bytes and the file ends after 64 of them; it is truncated, fetch it "
       "again"},
      {"length_zero", ": the header does not start with '{'; this is not a safetensors file"},
      {"metadata_holds_a_number",
       ": __metadata__: \"step\" is not a string; only strings are allowed"},
      {"metadata_is_an_array", ": __metadata__ is an array of 1, it must be an object"},
      {"name_twice", " (header): the key \"x\" appears twice in one object; each may appear once"},
      {"offsets_missing",
       ": tensor \"x\": data_offsets must be an array of at most 64 whole numbers"},
      {"offsets_near_64_bits",
       ": tensor \"x\": data_offsets holds 18446744073709551612; only whole numbers from 0 to 2^63 "
       "- 1 are allowed"},
      {"offsets_negative",
       ": tensor \"x\": data_offsets holds -4; only whole numbers from 0 to 2^63 - 1 are allowed"},
      {"offsets_past_the_end",
       ": tensor \"x\" ends at byte 8 of the data and the file holds 4; it is truncated, fetch it "
       "again"},
      {"offsets_reversed",
       ": tensor \"x\": data_offsets must be the begin and the end of its data"},
      {"offsets_three", ": tensor \"x\": data_offsets must be the begin and the end of its data"},
      {"pytorch_pickle", " is a PyTorch pickle; convert it to safetensors first"},
      {"pytorch_zip", " is a PyTorch pickle; convert it to safetensors first"},
      {"shape_bits_overflow", ": tensor \"x\": the shape [1152921504606846976] is too large"},
      {"shape_ends_inside_a_byte", ": tensor \"x\": F4[7] does not end on a whole byte"},
      {"shape_float",
       ": tensor \"x\": shape holds 4.0; only whole numbers from 0 to 2^63 - 1 are allowed"},
      {"shape_fraction",
       ": tensor \"x\": shape holds 2.5; only whole numbers from 0 to 2^63 - 1 are allowed"},
      {"shape_is_a_number", ": tensor \"x\": shape must be an array of at most 64 whole numbers"},
      {"shape_missing", ": tensor \"x\": shape must be an array of at most 64 whole numbers"},
      {"shape_needs_fewer_bytes", ": tensor \"x\": U8[3] needs 3 bytes, data_offsets give it 4"},
      {"shape_needs_more_bytes", ": tensor \"x\": F32[2] needs 8 bytes, data_offsets give it 4"},
      {"shape_negative",
       ": tensor \"x\": shape holds -4; only whole numbers from 0 to 2^63 - 1 are allowed"},
      {"shape_of_rank_65", ": tensor \"x\": shape must be an array of at most 64 whole numbers"},
      {"shape_over_63_bits",
       ": tensor \"x\": shape holds 9223372036854775808; only whole numbers from 0 to 2^63 - 1 are "
       "allowed"},
      {"shape_over_64_bits",
       ": tensor \"x\": shape holds 1.8446744073709552e+19; only whole numbers from 0 to 2^63 - 1 "
       "are allowed"},
      {"shape_overflows_beside_zero",
       ": tensor \"x\": the shape [4611686018427387904, 4611686018427387904, 0] is too large"},
      {"shape_product_overflows",
       ": tensor \"x\": the shape [4294967296, 4294967296] is too large"},
      {"shape_product_wraps_to_four",
       ": tensor \"x\": the shape [4611686018427387905, 4] is too large"},
      {"shape_text",
       ": tensor \"x\": shape holds \"4\"; only whole numbers from 0 to 2^63 - 1 are allowed"},
      {"tensor_is_a_number", ": tensor \"x\" is 4, it must be an object"},
      {"tensor_is_null", ": tensor \"x\" is null, it must be an object"},
      {"web_page",
       ": the header would have 5789751444030890300 bytes, at most 100000000 are allowed; this is "
       "not a safetensors file"},
  };
  expect_refusals("safetensors", rows, [](const MappedFile& file, const std::string& where) {
    (void)parse_safetensors(file.bytes(), where);
  });
}

// The architectures that the readers list as supported.
const std::string kArchitectures =
    "gpt_neox (GPTNeoXForCausalLM), llama (LlamaForCausalLM), mistral (MistralForCausalLM), qwen2 "
    "(Qwen2ForCausalLM), qwen3 (Qwen3ForCausalLM)";

TEST(BadFiles, ConfigsAreRefused) {
  const std::vector<Row> rows = {
      {"activation_a_number", ": hidden_act is 3, it must be a string"},
      {"activation_unknown",
       ": hidden_act \"mish\" is not supported; supported: gelu, gelu_python, gelu_new, gelu_fast, "
       "gelu_pytorch_tanh, gelu_python_tanh, gelu_accurate, silu, swish, relu, linear"},
      {"an_array", " is an array of 1, it must be an object"},
      {"architecture_a_text",
       ": architectures is \"LlamaForCausalLM\", it must be an array of strings"},
      {"architecture_and_type_differ",
       ": architecture \"LlamaForCausalLM\" (model_type \"gpt_neox\") is not supported; "
       "supported: " +
           kArchitectures},
      {"architecture_missing",
       ": there is neither model_type nor architectures; supported: " + kArchitectures},
      {"architecture_unknown",
       ": architecture \"MambaForCausalLM\" (model_type \"mamba\") is not supported; supported: " +
           kArchitectures},
      {"architecture_with_control_characters",
       ": architecture \"\\x1b[31m\\x0a\" (model_type \"\\x1b[31m\\x0a\") is not supported; "
       "supported: " +
           kArchitectures},
      {"dtype_unknown",
       ": torch_dtype \"int4\" is not supported; supported: float32, float16, bfloat16"},
      {"empty", " is empty"},
      {"eos_2_to_63", ": eos_token_id must be a token id or a list of them"},
      {"eos_negative", ": eos_token_id must be a token id or a list of them"},
      {"eos_text", ": eos_token_id must be a token id or a list of them"},
      {"eps_infinite", ": not valid JSON at byte 268: invalid literal"},
      {"eps_nan", ": not valid JSON at byte 268: invalid literal"},
      {"eps_negative", ": rms_norm_eps is -1e-05; a number from 0 to below 1 is accepted"},
      {"eps_one", ": rms_norm_eps is 1; a number from 0 to below 1 is accepted"},
      {"eps_text", ": rms_norm_eps is \"1e-5\", it must be a number"},
      {"eps_too_large_for_a_number", ": not valid JSON at byte 256: a number is too large"},
      {"experts",
       ": num_local_experts is 8, an option that is not supported for llama; leave it out"},
      {"head_dim_odd",
       ": 15 of 15 elements of a head are to be rotated; an even number from 2 on is accepted"},
      {"head_dim_zero", ": head_dim is 0, it must be a whole number from 1 to 65536"},
      {"heads_do_not_divide",
       ": 6 heads do not divide a hidden_size of 64, and head_dim is not given"},
      {"heads_do_not_divide_neox",
       ": 7 heads do not divide a hidden_size of 64, and head_dim is not given"},
      {"heads_zero", ": num_attention_heads is 0, it must be a whole number from 1 to 65536"},
      {"hidden_size_2_to_62",
       ": hidden_size is 4611686018427387904, it must be a whole number from 1 to 16777216"},
      {"hidden_size_2_to_64",
       ": hidden_size is 1.8446744073709552e+19, it must be a whole number from 1 to 16777216"},
      {"hidden_size_fraction",
       ": hidden_size is 64.5, it must be a whole number from 1 to 16777216"},
      {"hidden_size_list",
       ": hidden_size is an array of 1, it must be a whole number from 1 to 16777216"},
      {"hidden_size_missing",
       ": hidden_size is missing, it must be a whole number from 1 to 16777216"},
      {"hidden_size_negative",
       ": hidden_size is -64, it must be a whole number from 1 to 16777216"},
      {"hidden_size_null",
       ": hidden_size is missing, it must be a whole number from 1 to 16777216"},
      {"hidden_size_text", ": hidden_size is \"64\", it must be a whole number from 1 to 16777216"},
      {"hidden_size_true", ": hidden_size is true, it must be a whole number from 1 to 16777216"},
      {"hidden_size_zero", ": hidden_size is 0, it must be a whole number from 1 to 16777216"},
      {"intermediate_missing",
       ": intermediate_size is missing, it must be a whole number from 1 to 16777216"},
      {"key_twice", ": the key \"hidden_size\" appears twice in one object; each may appear once"},
      {"kv_heads_do_not_divide", ": 3 key/value heads do not divide 4 query heads"},
      {"kv_heads_too_many", ": 8 key/value heads do not divide 4 query heads"},
      {"kv_heads_zero", ": num_key_value_heads is 0, it must be a whole number from 1 to 65536"},
      {"layer_types_too_few", ": layer_types names 1 layers, but num_hidden_layers is 2"},
      {"layer_types_unknown",
       ": layer_types[1] is \"linear_attention\", which is not supported; supported: "
       "full_attention, sliding_attention"},
      {"layers_2_to_40",
       ": num_hidden_layers is 1099511627776, it must be a whole number from 1 to 65536"},
      {"layers_missing",
       ": num_hidden_layers is missing, it must be a whole number from 1 to 65536"},
      {"nested_deep", ": JSON nested deeper than 64 levels; no model needs that"},
      {"not_closed", ": not valid JSON at byte 305: unexpected end of input; expected '}'"},
      {"not_json", ": not valid JSON at byte 1: invalid literal"},
      {"not_utf8", ": not valid JSON at byte 20: invalid string: ill-formed UTF-8 byte"},
      {"positions_zero",
       ": max_position_embeddings is 0, it must be a whole number from 1 to 2147483647"},
      {"rope_a_text", ": rope_scaling is \"linear\", it must be an object"},
      {"rope_bands_crossed",
       ", rope_scaling: high_freq_factor 1 must be greater than low_freq_factor 4"},
      {"rope_factor_missing", ", rope_scaling: rope type linear needs the key factor"},
      {"rope_factor_text", ", rope_scaling: factor is \"4\", it must be a number"},
      {"rope_factor_zero", ", rope_scaling: factor is 0; it must be a positive number"},
      {"rope_theta_negative", ": rope_theta is -10000; it must be a positive number"},
      {"rope_theta_zero", ": rope_theta is 0; it must be a positive number"},
      {"rope_type_unknown",
       ", rope_scaling: rope type \"yarn\" is not supported; supported: default, linear, llama3"},
      {"rotary_share_of_one_element",
       ": 1 of 16 elements of a head are to be rotated; an even number from 2 on is accepted"},
      {"rotary_share_over_one",
       ": 1.5 of each head is to be rotated; at most 1 (all of it) is accepted"},
      {"rotary_share_zero", ": rotary_pct is 0; it must be a positive number"},
      {"softcap",
       ": attn_logit_softcapping is 50.0, an option that is not supported for llama; leave it out"},
      {"tied_head_text", ": tie_word_embeddings is \"yes\", it must be true or false"},
      {"utf16", ": not valid JSON at byte 1: invalid literal"},
      {"vocab_2_to_40",
       ": vocab_size is 1099511627776, it must be a whole number from 1 to 2147483647"},
      {"vocab_zero", ": vocab_size is 0, it must be a whole number from 1 to 2147483647"},
      {"window_of_llama",
       ": sliding_window is 64, an option that is not supported for llama (mistral, qwen2, qwen3 "
       "have it); leave it out"},
  };
  expect_refusals("config", rows, [](const MappedFile& file, const std::string& where) {
    (void)parse_model_config(file.text(), where);
  });
}

TEST(BadFiles, TokenizersAreRefused) {
  const std::vector<Row> rows = {
      {"added_token_id_2_to_62",
       ": added_tokens: id is 4611686018427387904, it must be a whole number from 0 to 2097151"},
      {"added_token_normalized_to_550_bytes", " has 550 bytes; at most 512 are accepted"},
      {"added_token_of_a_kilobyte", " has 1024 bytes; at most 512 are accepted"},
      {"added_token_twice", " (id 3) is there twice"},
      {"added_token_with_a_second_id", " has the id 3, but 0 in the vocabulary"},
      {"added_token_with_the_id_of_another", " has the id 0, which is that of "},
      {"added_token_without_content", ": added_tokens: content is missing, it must be a string"},
      {"added_tokens_an_object", ": added_tokens has to be a list"},
      {"an_array", " is an array of 0, it must be an object"},
      {"decoder_doubles_forty_times",
       ": the decoder can make a text 1.1e+12 times as long; at most 250 are accepted"},
      {"decoder_unknown", ": the decoder is of type "},
      {"dropout",
       ": the model has dropout, which makes every encoding a different one; set it to null"},
      {"empty", " is empty"},
      {"id_2_to_40", " is 1099511627776; ids are whole numbers from 0 to 2097151"},
      {"id_a_fraction", " is 0.5; ids are whole numbers from 0 to 2097151"},
      {"id_a_text", "; ids are whole numbers from 0 to 2097151"},
      {"id_negative", " is -1; ids are whole numbers from 0 to 2097151"},
      {"id_of_two_tokens", ": the model: two tokens have the id 0; one of them is "},
      {"id_wrong_of_a_control_character", " is -1; ids are whole numbers from 0 to 2097151"},
      {"literal_of_five_kilobytes",
       ": the normalizer: the pattern of Replace has 5000 bytes; 1 to 4096 are accepted"},
      {"merge_a_number", ": the model: merge 0 is 7; a merge is "},
      {"merge_makes_an_unknown_token", ": the model: merge 0 needs the token "},
      {"merge_of_an_unknown_token", ": the model: merge 0 needs the token "},
      {"merge_of_three", ": the model: merge 0 is "},
      {"merges_missing", " has to be a list of at most 16777216 pairs"},
      {"metaspace_of_two_characters", "; it has to be one character"},
      {"model_missing", ": there is no "},
      {"model_unigram", ", which is not supported; supported is BPE"},
      {"normalizer_and_pre_tokenizer_grow_a_text",
       ": the normalizer and the pre_tokenizer together can make a text 800 times as long; at most "
       "250 are accepted"},
      {"normalizer_doubles_forty_times",
       ": the normalizer can make a text 1.1e+12 times as long; at most 250 are accepted"},
      {"normalizer_of_a_hundred_steps", ": the normalizer has more than 64 steps"},
      {"normalizer_of_many_byte_levels",
       ": the normalizer can make a text 1.15e+18 times as long; at most 250 are accepted"},
      {"normalizer_unknown", ": the normalizer is of type "},
      {"normalizer_without_type", ": the normalizer: type is missing, it must be a string"},
      {"not_closed",
       ": not valid JSON at byte 30: unexpected end of input; expected string literal"},
      {"pattern_class_not_closed", " has a [ without its ] at byte 2"},
      {"pattern_closed_twice", " has a ) without its ( at byte 1"},
      {"pattern_interval_of_an_interval", " has an interval of a repeated interval at byte 5"},
      {"pattern_not_closed", " cannot be used: missing closing parenthesis at byte 2"},
      {"pattern_of_five_kilobytes",
       ": the pre_tokenizer: a pattern has 5000 bytes; at most 4096 are accepted"},
      {"pattern_refers_back", " at byte 3, which is not supported"},
      {"pattern_repeats_a_billion_times", " has an interval beyond 1000 at byte 4"},
      {"pattern_with_a_line_break", " has a [ without its ] at byte 7"},
      {"pre_tokenizer_of_many_byte_levels",
       ": the normalizer and the pre_tokenizer together can make a text 1.15e+18 times as long; at "
       "most 250 are accepted"},
      {"pre_tokenizer_unknown", ": the pre_tokenizer is of type "},
      {"replace_nothing",
       ": the normalizer: the pattern of Replace has 0 bytes; 1 to 4096 are accepted"},
      {"replace_without_pattern", ": the normalizer: Replace needs a "},
      {"sequence_without_list", ": the decoder: a Sequence needs a list "},
      {"split_behavior_unknown", ": the pre_tokenizer: the behavior "},
      {"template_id_negative", " is -1, which is no token id"},
      {"suffix_of_a_kilobyte", ": the model: a prefix or suffix of 1024 bytes; at most 64 are"},
      {"template_of_many_texts", ": the template has the text 100 times and 0 tokens around it"},
      {"template_of_many_tokens", ": the template has the text 1 times and 1000 tokens around it"},
      {"template_token_unknown", ": the post_processor adds token 9, which does not exist"},
      {"template_token_without_ids", " has no ids in special_tokens"},
      {"token_twice", " appears twice in one object; each may appear once"},
      {"version_unknown", " is not supported; supported is 1.0"},
      {"vocab_a_list", " has to be an object of tokens and their ids"},
      {"vocab_missing", " has to be an object of tokens and their ids"},
  };
  expect_refusals("tokenizer", rows, [](const MappedFile& file, const std::string& where) {
    (void)Tokenizer::from_json(file.text(), where);
  });
}

}  // namespace
}  // namespace tessera::model
