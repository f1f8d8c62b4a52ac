#include "model/checkpoint/module_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>

#include "core/fail.h"
#include "core/wildcard.h"
#include "model/checkpoint/quote.h"

namespace tessera::model {
namespace {

constexpr std::string_view kExpression = "re:";
// The most steps that an expression may take: names have some 60 characters, and an ordinary
// expression takes a few thousand steps.
constexpr std::uint32_t kMaxSteps = 1'000'000;

std::string expression_error(int error) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(error, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

struct FreeExpression {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};

}  // namespace

struct ModulePattern::Expression {
  std::unique_ptr<pcre2_code, FreeExpression> code;
};

ModulePattern ModulePattern::target(const std::string& text, const std::string& where) {
  ModulePattern pattern;
  pattern.text_ = text;
  if (!text.starts_with(kExpression)) return pattern;
  const std::string_view expression = std::string_view(text).substr(kExpression.size());
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto compiled = std::make_shared<Expression>();
  compiled->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()),
                                     expression.size(), PCRE2_ANCHORED, &error, &offset, nullptr));
  if (!compiled->code) {
    fail(ErrorCode::file, "{}: the pattern {} is not a regular expression: {} at character {}",
         where, in_quotes(text), expression_error(error), offset);
  }
  pattern.expression_ = std::move(compiled);
  return pattern;
}

ModulePattern ModulePattern::wildcard(const std::string& text) {
  ModulePattern pattern;
  pattern.text_ = text;
  pattern.wildcard_ = true;
  return pattern;
}

bool ModulePattern::matches(std::string_view name) const {
  if (wildcard_) return wildcard_match(text_, name);
  if (!expression_) return text_ == name;
  const std::unique_ptr<pcre2_match_data, FreeExpression> data(
      pcre2_match_data_create_from_pattern(expression_->code.get(), nullptr));
  const std::unique_ptr<pcre2_match_context, FreeExpression> limits(
      pcre2_match_context_create(nullptr));
  if (!data || !limits) fail(ErrorCode::out_of_memory, "no memory to match {}", in_quotes(text_));
  pcre2_set_match_limit(limits.get(), kMaxSteps);
  const int result = pcre2_match(expression_->code.get(), reinterpret_cast<PCRE2_SPTR>(name.data()),
                                 name.size(), 0, 0, data.get(), limits.get());
  if (result >= 0) return true;
  if (result == PCRE2_ERROR_NOMATCH) return false;
  fail(ErrorCode::file, "the pattern {} of the quantization config fails on {}: {}",
       in_quotes(text_), in_quotes(name), expression_error(result));
}

}  // namespace tessera::model
