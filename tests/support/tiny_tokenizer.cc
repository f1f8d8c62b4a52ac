#include "support/tiny_tokenizer.h"

#include <nlohmann/json.hpp>

namespace tessera::test {
namespace {

// GPT-2's alphabet: a byte that is not a printable Latin-1 character is written as a character from
// 256 on.
std::string letter_of(int byte) {
  const auto printable = [](int b) {
    return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || (b >= 174 && b <= 255);
  };
  int code = byte;
  if (!printable(byte)) {
    code = 256;
    for (int b = 0; b < byte; ++b) code += printable(b) ? 0 : 1;
  }
  if (code < 128) return {static_cast<char>(code)};
  return {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))};
}

}  // namespace

std::string tiny_tokenizer_json(TinyVocabulary vocabulary, bool add_bos) {
  using Json = nlohmann::json;
  const bool all = vocabulary == TinyVocabulary::bytes;
  const std::string end = "<|endoftext|>";
  Json vocab = {{end, 0}};
  for (int byte = all ? 0 : 32, id = 1; byte <= (all ? 255 : 126); ++byte, ++id) {
    vocab[letter_of(byte)] = id;
  }
  const Json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", true},
                           {"use_regex", true}};
  Json post_processor = byte_level;
  if (add_bos) {
    const Json special = {{"SpecialToken", {{"id", end}, {"type_id", 0}}}};
    const Json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
    const Json second = {{"Sequence", {{"id", "B"}, {"type_id", 1}}}};
    post_processor = {{"type", "TemplateProcessing"},
                      {"single", {special, text}},
                      {"pair", {special, text, second}},
                      {"special_tokens", {{end, {{"id", end}, {"ids", {0}}, {"tokens", {end}}}}}}};
  }
  const Json end_token = {{"id", 0},         {"content", end},  {"single_word", false},
                          {"lstrip", false}, {"rstrip", false}, {"normalized", false},
                          {"special", true}};
  const Json json = {{"version", "1.0"},
                     {"truncation", nullptr},
                     {"padding", nullptr},
                     {"added_tokens", Json::array({end_token})},
                     {"normalizer", nullptr},
                     {"pre_tokenizer", byte_level},
                     {"post_processor", post_processor},
                     {"decoder", byte_level},
                     {"model",
                      {{"type", "BPE"},
                       {"dropout", nullptr},
                       {"unk_token", nullptr},
                       {"continuing_subword_prefix", nullptr},
                       {"end_of_word_suffix", nullptr},
                       {"fuse_unk", false},
                       {"byte_fallback", false},
                       {"vocab", vocab},
                       {"merges", Json::array()}}}};
  return json.dump(1);
}

}  // namespace tessera::test
