// The tables of a tokenizer.json: the BPE model's vocabulary and merges, and the added tokens.
#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "core/fail.h"
#include "model/checkpoint/quote.h"
#include "model/tokenizer/tokenizer_parse.h"

namespace tessera::model {
namespace {

constexpr std::int64_t kMaxMerges = 1 << 24;  // ranks fit into 32 bits with room to spare
constexpr std::size_t kMaxAffix = 64;         // bytes that every symbol is spelled with
// Bytes of added tokens: every place of a text is compared with them, and all of them are in one
// tree. Published ones have up to 100 bytes, and half a million together.
constexpr std::size_t kMaxAddedToken = 512;
constexpr std::size_t kMaxAddedBytes = 4 << 20;

Vocabulary parse_vocabulary(const JsonView& model) {
  const Json* const vocab = model.find("vocab");
  if (vocab == nullptr || !vocab->is_object()) {
    fail(ErrorCode::file, "{}: 'vocab' has to be an object of tokens and their ids", model.where());
  }
  std::vector<std::pair<std::string, std::int32_t>> tokens;
  tokens.reserve(vocab->size());
  std::vector<bool> taken;
  for (const auto& [token, id] : vocab->get_ref<const Json::object_t&>()) {
    if (!id.is_number_integer() || id < 0 || id > kMaxTokenId) {
      fail(ErrorCode::file, "{}: the id of {} is {}; ids are whole numbers from 0 to {}",
           model.where(), in_quotes(token), shown(id), kMaxTokenId);
    }
    const auto index = id.get<std::size_t>();
    if (index >= taken.size()) taken.resize(index + 1);
    if (taken[index]) {
      fail(ErrorCode::file, "{}: two tokens have the id {}; one of them is {}", model.where(),
           index, in_quotes(token));
    }
    taken[index] = true;
    tokens.emplace_back(token, static_cast<std::int32_t>(index));
  }
  return {std::move(tokens), model.where()};
}

// "a b" or ["a", "b"].
std::pair<std::string_view, std::string_view> parse_pair(const Json& json, std::size_t index,
                                                         const JsonView& model) {
  if (json.is_string()) {
    const std::string_view text = json.get_ref<const std::string&>();
    const std::size_t space = text.find(' ');
    if (space != std::string_view::npos && text.find(' ', space + 1) == std::string_view::npos) {
      return {text.substr(0, space), text.substr(space + 1)};
    }
  } else if (json.is_array() && json.size() == 2 && json[0].is_string() && json[1].is_string()) {
    return {json[0].get_ref<const std::string&>(), json[1].get_ref<const std::string&>()};
  }
  fail(ErrorCode::file, "{}: merge {} is {}; a merge is \"a b\" or [\"a\", \"b\"]", model.where(),
       index, shown(json));
}

MergeTable parse_merges(const JsonView& model, const Vocabulary& vocabulary,
                        std::string_view subword_prefix) {
  const Json* const list = model.find("merges");
  if (list == nullptr || !list->is_array() || list->size() > static_cast<std::size_t>(kMaxMerges)) {
    fail(ErrorCode::file, "{}: 'merges' has to be a list of at most {} pairs", model.where(),
         kMaxMerges);
  }
  std::vector<Merge> merges;
  merges.reserve(list->size());
  std::string joined;
  const auto id_of = [&](std::string_view token) {
    const std::int32_t id = vocabulary.find(token);
    if (id == kNoToken) {
      fail(ErrorCode::file, "{}: merge {} needs the token {}, which is not in the vocabulary",
           model.where(), merges.size(), in_quotes(token));
    }
    return id;
  };
  for (const Json& entry : *list) {
    // The first line of GPT-2's merges.txt, which some converters have kept.
    if (entry.is_string() && entry.get_ref<const std::string&>().starts_with("#version")) continue;
    const auto [left, right] = parse_pair(entry, merges.size(), model);
    joined = left;
    joined += right.substr(std::min(subword_prefix.size(), right.size()));
    merges.push_back({id_of(left), id_of(right), id_of(joined)});
  }
  return {merges, model.where()};
}

AddedToken parse_added_token(const Json& json, const std::string& where) {
  const JsonView view(json, where);
  AddedToken token;
  token.id = static_cast<std::int32_t>(view.integer("id", 0, kMaxTokenId));
  token.content = view.string("content");
  token.single_word = view.optional_boolean("single_word").value_or(false);
  token.lstrip = view.optional_boolean("lstrip").value_or(false);
  token.rstrip = view.optional_boolean("rstrip").value_or(false);
  token.special = view.optional_boolean("special").value_or(false);
  token.normalized = view.optional_boolean("normalized").value_or(!token.special);
  return token;
}

void check_length(const AddedToken& token, std::string_view written, const std::string& where) {
  if (written.size() <= kMaxAddedToken) return;
  fail(ErrorCode::unsupported, "{}: {} has {} bytes; at most {} are accepted", where,
       in_quotes(token.content), written.size(), kMaxAddedToken);
}

void check_id(const AddedToken& token, const Vocabulary& vocabulary, const std::string& where) {
  const std::int32_t known = vocabulary.find(token.content);
  if (known != kNoToken && known != token.id) {
    fail(ErrorCode::file, "{}: {} has the id {}, but {} in the vocabulary", where,
         in_quotes(token.content), token.id, known);
  }
  if (known == kNoToken && vocabulary.has(token.id)) {
    fail(ErrorCode::file, "{}: {} has the id {}, which is that of {} in the vocabulary", where,
         in_quotes(token.content), token.id, in_quotes(vocabulary.token(token.id)));
  }
}

}  // namespace

Bpe parse_model(const Json* json, const std::string& where) {
  if (json == nullptr) fail(ErrorCode::file, "{}: there is no 'model'", where);
  const JsonView model(*json, where + ": the model");
  // Files older than the "type" are recognised by a member that only a BPE model has.
  const std::string type =
      model.optional_string("type").value_or(model.has("merges") ? "BPE" : "none");
  if (type != "BPE") {
    fail(ErrorCode::unsupported, "{} is of type {}, which is not supported; supported is BPE",
         model.where(), in_quotes(type));
  }
  if (model.optional_number("dropout").value_or(0) != 0) {
    fail(ErrorCode::unsupported,
         "{} has dropout, which makes every encoding a different one; set it to null",
         model.where());
  }
  BpeOptions options{
      .unk_token = model.optional_string("unk_token"),
      .continuing_subword_prefix = model.optional_string("continuing_subword_prefix").value_or(""),
      .end_of_word_suffix = model.optional_string("end_of_word_suffix").value_or(""),
      .fuse_unk = model.optional_boolean("fuse_unk").value_or(false),
      .byte_fallback = model.optional_boolean("byte_fallback").value_or(false),
      .ignore_merges = model.optional_boolean("ignore_merges").value_or(false),
  };
  for (const std::string& affix : {options.continuing_subword_prefix, options.end_of_word_suffix}) {
    if (affix.size() > kMaxAffix) {
      fail(ErrorCode::unsupported, "{}: a prefix or suffix of {} bytes; at most {} are accepted",
           model.where(), affix.size(), kMaxAffix);
    }
  }
  Vocabulary vocabulary = parse_vocabulary(model);
  MergeTable merges = parse_merges(model, vocabulary, options.continuing_subword_prefix);
  return {std::move(vocabulary), std::move(merges), std::move(options)};
}

AddedTokens parse_added_tokens(const Json* json, const Normalizer& normalizer,
                               const Vocabulary& vocabulary, const std::string& where) {
  AddedTokens added;
  if (json == nullptr) return added;
  const std::string place = where + ": added_tokens";
  if (!json->is_array()) fail(ErrorCode::file, "{} has to be a list", place);
  Effort effort;
  std::size_t bytes = 0;
  for (const Json& element : *json) {
    const AddedToken token = parse_added_token(element, place);
    if (token.content.empty()) continue;
    check_id(token, vocabulary, place);
    if (!added.by_content.emplace(token.content, token.id).second ||
        added.by_id.contains(token.id)) {
      fail(ErrorCode::file, "{}: {} (id {}) is there twice", place, in_quotes(token.content),
           token.id);
    }
    check_length(token, token.content, place);
    const std::string written =
        token.normalized ? normalizer(token.content, effort) : token.content;
    check_length(token, written, place);
    bytes += written.size();
    if (bytes > kMaxAddedBytes) {
      fail(ErrorCode::unsupported, "{} have more than {} bytes together", place, kMaxAddedBytes);
    }
    if (!written.empty()) {
      (token.normalized ? added.in_normalized : added.in_text).add(written, token);
    }
    added.last_id = std::max(added.last_id, token.id);
    added.by_id.emplace(token.id, AddedTokens::Entry{token, written});
  }
  return added;
}

}  // namespace tessera::model
