#include "model/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <utility>

#include "core/fail.h"
#include "model/checkpoint/quote.h"
#include "model/tokenizer/oniguruma.h"
#include "model/tokenizer/unicode.h"

namespace tessera::model {
namespace {

constexpr std::uint32_t kHeapLimitKib = 512 << 10;  // of the interpreter, if there is no JIT
constexpr std::size_t kJitStackStart = 64 << 10;
constexpr std::size_t kJitStackMost = std::size_t{512} << 20;  // reserved, and used only if needed

template <typename T, void (*release)(T*)>
struct ReleaseWith {
  void operator()(T* pointer) const { release(pointer); }
};
template <typename T, void (*release)(T*)>
using Handle = std::unique_ptr<T, ReleaseWith<T, release>>;

using MatchData = Handle<pcre2_match_data, pcre2_match_data_free>;
using MatchContext = Handle<pcre2_match_context, pcre2_match_context_free>;
using CompileContext = Handle<pcre2_compile_context, pcre2_compile_context_free>;
using JitStack = Handle<pcre2_jit_stack, pcre2_jit_stack_free>;

std::string pcre2_message(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

template <typename T>
T* not_null(T* pointer) {
  if (pointer == nullptr) fail(ErrorCode::out_of_memory, "no memory left for a pattern");
  return pointer;
}

// PCRE2 calls this before every item of a pattern. The distance it has moved since the last call is
// the text it read in between: a repeated character is one item. PCRE2's own limit counts only
// items.
struct StepCount {
  Effort* effort;
  std::size_t last;  // place in the text

  static int count(pcre2_callout_block* block, void* self) {
    StepCount& steps = *static_cast<StepCount*>(self);
    const std::size_t at = block->current_position;
    const std::size_t moved = at > steps.last ? at - steps.last : steps.last - at;
    steps.last = at;
    return steps.effort->spend(1 + moved) ? 0 : PCRE2_ERROR_CALLOUT;
  }
};

}  // namespace

struct Effort::Memory {
  MatchData data{not_null(pcre2_match_data_create(1, nullptr))};
  MatchContext context{not_null(pcre2_match_context_create(nullptr))};
  JitStack stack{};  // null unless a match has needed more than the default

  Memory() {
    pcre2_set_match_limit(context.get(), std::numeric_limits<std::uint32_t>::max());
    pcre2_set_heap_limit(context.get(), kHeapLimitKib);
  }
};

Effort::Effort() = default;
Effort::~Effort() = default;
Effort::Effort(Effort&&) noexcept = default;
Effort& Effort::operator=(Effort&&) noexcept = default;

struct Regex::Code {
  Handle<pcre2_code, pcre2_code_free> code;
  std::string where;

  // The number of matched groups, or an error below zero.
  int match(std::string_view text, std::size_t from, Effort& effort) const {
    Effort::Memory& memory = *effort.memory_;
    StepCount steps{&effort, from};
    pcre2_set_callout(memory.context.get(), StepCount::count, &steps);
    const auto attempt = [&] {
      return pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                         PCRE2_NO_UTF_CHECK, memory.data.get(), memory.context.get());
    };
    const int result = attempt();
    if (result != PCRE2_ERROR_JIT_STACKLIMIT || memory.stack) return result;
    memory.stack.reset(not_null(pcre2_jit_stack_create(kJitStackStart, kJitStackMost, nullptr)));
    pcre2_jit_stack_assign(memory.context.get(), nullptr, memory.stack.get());
    return attempt();
  }
};

Regex Regex::pcre(const std::string& pattern, const std::string& where) {
  const CompileContext context(not_null(pcre2_compile_context_create(nullptr)));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_bsr(context.get(), PCRE2_BSR_UNICODE);
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto code = std::make_shared<Code>();
  code->where = where;
  code->code.reset(pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NO_AUTO_CAPTURE | PCRE2_AUTO_CALLOUT, &error,
      &offset, context.get()));
  if (code->code == nullptr) {
    fail(ErrorCode::unsupported, "{}: the pattern {} cannot be used: {} at byte {}", where,
         in_quotes(pattern), pcre2_message(error), offset);
  }
  // Where the machine forbids generated code, the interpreter does the same more slowly.
  pcre2_jit_compile(code->code.get(), PCRE2_JIT_COMPLETE);
  return Regex(std::move(code));
}

Regex Regex::oniguruma(std::string_view pattern, const std::string& where) {
  if (pattern.size() > kMaxPatternBytes) {
    fail(ErrorCode::unsupported, "{}: a pattern has {} bytes; at most {} are accepted", where,
         pattern.size(), kMaxPatternBytes);
  }
  return pcre(pcre_from_oniguruma(pattern, where), where);
}

void Regex::find_all(std::string_view text, Effort& effort, std::vector<Span>& matches) const {
  effort.allow(text.size());
  if (!effort.memory_) effort.memory_ = std::make_unique<Effort::Memory>();
  constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::size_t from = 0, last_end = kNone;
  while (from <= text.size()) {
    const int result = code_->match(text, from, effort);
    if (result == PCRE2_ERROR_NOMATCH) return;
    if (result == PCRE2_ERROR_CALLOUT) {
      fail(ErrorCode::unsupported,
           "{}: the pattern takes more than {} steps for each byte of this text", code_->where,
           Effort::kStepsPerByte);
    }
    if (result < 0) {
      fail(ErrorCode::unsupported, "{}: the pattern takes too much memory on this text: {}",
           code_->where, pcre2_message(result));
    }
    const PCRE2_SIZE* const found = pcre2_get_ovector_pointer(effort.memory_->data.get());
    const Span span{found[0], found[1]};
    if (span.begin == span.end && span.end == last_end) {
      if (from == text.size()) return;
      next_code_point(text, from);
      continue;
    }
    matches.push_back(span);
    from = last_end = span.end;
  }
}

Pattern::Pattern(std::string literal) : literal_(std::move(literal)) {}
Pattern::Pattern(Regex regex) : regex_{std::move(regex)} {}

void Pattern::find_all(std::string_view text, Effort& effort, std::vector<Span>& matches) const {
  if (!regex_.empty()) return regex_.front().find_all(text, effort, matches);
  for (std::size_t at = text.find(literal_); at != std::string_view::npos;
       at = text.find(literal_, at + literal_.size())) {
    matches.push_back({at, at + literal_.size()});
  }
}

}  // namespace tessera::model
