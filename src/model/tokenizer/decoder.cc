#include "model/tokenizer/decoder.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "model/tokenizer/byte_level.h"
#include "model/tokenizer/unicode.h"

namespace tessera::model {
namespace {

constexpr std::string_view kReplacement = "\uFFFD";

std::string strip_characters(const StripCharacters& step, std::string_view token) {
  std::vector<std::size_t> begins;  // of the characters, and the end
  for (std::size_t at = 0; at < token.size(); next_code_point(token, at)) begins.push_back(at);
  const auto n = static_cast<std::int64_t>(begins.size());
  begins.push_back(token.size());
  const auto is_content = [&](std::int64_t i) {
    std::size_t at = begins[static_cast<std::size_t>(i)];
    return next_code_point(token, at) == step.content;
  };
  std::int64_t first = 0, last = n;
  while (first < std::min(step.start, n) && is_content(first)) ++first;
  while (last > first && n - last < step.stop && is_content(last - 1)) --last;
  const std::size_t begin = begins[static_cast<std::size_t>(first)];
  return std::string(token.substr(begin, begins[static_cast<std::size_t>(last)] - begin));
}

std::string spaces_for(const MetaspaceToSpace& step, std::string_view token, bool drop) {
  std::string text;
  for (std::size_t at = 0; at < token.size();) {
    const char32_t c = next_code_point(token, at);
    if (c != step.replacement) {
      append_utf8(text, c);
    } else if (!drop) {
      text += ' ';
    }
  }
  return text;
}

// Removes whole characters from the front of `bytes` and returns them, with U+FFFD for invalid
// bytes. Bytes that may still become a character stay.
std::string take_characters(std::string& bytes) {
  std::string text;
  std::size_t at = 0;
  while (at < bytes.size()) {
    const Utf8Scan scan = scan_utf8(std::string_view(bytes).substr(at));
    if (scan.kind == Utf8Scan::Kind::incomplete) break;
    if (scan.kind == Utf8Scan::Kind::character) {
      text.append(bytes, at, scan.length);
    } else {
      text += kReplacement;
    }
    at += scan.length;
  }
  bytes.erase(0, at);
  return text;
}

}  // namespace

// Passes a token (or a part of the one token that is left after fusing) to step `index`, which
// passes its result to the next step.
struct Decoder::Feed {
  const Decoder& decoder;
  Decoder::State& states;
  std::string& out;
  std::size_t index = 0;
  std::string_view token{};

  StepState& state() const { return states[index]; }
  bool fused() const { return decoder.fused_[index]; }
  void pass(std::string_view text) const { Feed{decoder, states, out, index + 1, text}.push(); }
  void hold() const { state().held += token; }  // until finish()

  void push() const {
    if (index == decoder.steps_.size()) {
      out += token;
    } else {
      std::visit(*this, decoder.steps_[index]);
    }
  }

  void operator()(const Replace& step) const {
    if (fused()) return hold();
    pass(replace_all(step, std::string(token), state().effort));
  }

  void operator()(const StripCharacters& step) const {
    if (!fused()) return pass(strip_characters(step, token));
    if (step.stop > 0) return hold();
    std::size_t at = 0;
    while (at < token.size() && !state().started) {
      std::size_t next = at;
      state().started = state().count == step.start || next_code_point(token, next) != step.content;
      if (state().started) break;
      ++state().count;
      at = next;
    }
    if (at < token.size()) pass(token.substr(at));
  }

  void operator()(const MetaspaceToSpace& step) const {
    const bool first = fused() || !std::exchange(state().started, true);
    pass(spaces_for(step, token, first && step.drop_in_first));
  }

  void operator()(BytesFromFallback) const {
    if (fused()) return hold();
    const std::optional<char> byte = fallback_byte(token);
    if (!byte) {
      end_run();
      return pass(token);
    }
    state().held += *byte;
    check_run();
  }

  // A run with one wrong byte becomes U+FFFD for each of its bytes, which is certain once that byte
  // is here.
  void check_run() const {
    std::string& run = state().held;
    auto checked = static_cast<std::size_t>(state().count);
    while (!state().started && checked < run.size()) {
      const Utf8Scan scan = scan_utf8(std::string_view(run).substr(checked));
      if (scan.kind == Utf8Scan::Kind::incomplete) break;
      state().started = scan.kind == Utf8Scan::Kind::invalid;  // the run is bad
      checked += scan.length;
    }
    state().count = static_cast<std::int64_t>(checked);
    if (state().started) replace_run();
  }

  void replace_run() const {
    for (std::size_t i = 0; i < state().held.size(); ++i) pass(kReplacement);
    state().held.clear();
  }

  void end_run() const {
    if (static_cast<std::size_t>(state().count) != state().held.size()) {
      replace_run();
    } else if (!state().held.empty()) {
      pass(state().held);
    }
    state() = {};
  }

  void operator()(BytesFromByteLevel) const {
    if (fused()) return hold();
    state().held += byte_level_bytes(token).value_or(std::string(token));
    pass(take_characters(state().held));
  }

  void operator()(Fuse) const { pass(token); }

  void operator()(JoinWithSpaces) const {
    if (std::exchange(state().started, true)) pass(" ");
    pass(token);
  }

  void finish(const DecoderStep& step) const {
    const std::string held = state().held;
    if (std::holds_alternative<BytesFromByteLevel>(step)) {
      std::string bytes = fused() ? byte_level_bytes(held).value_or(held) : held;
      pass(take_characters(bytes));
      if (!bytes.empty()) pass(kReplacement);
    } else if (std::holds_alternative<BytesFromFallback>(step)) {
      if (!fused()) return end_run();
      const std::optional<char> byte = fallback_byte(held);
      if (!byte) return pass(held);
      pass(static_cast<unsigned char>(*byte) < 0x80 ? std::string_view(&*byte, 1) : kReplacement);
    } else if (!held.empty() && std::holds_alternative<Replace>(step)) {
      pass(replace_all(std::get<Replace>(step), held, state().effort));
    } else if (!held.empty() && std::holds_alternative<StripCharacters>(step)) {
      pass(strip_characters(std::get<StripCharacters>(step), held));
    }
  }
};

Decoder::Decoder(std::vector<DecoderStep> steps) : steps_(std::move(steps)) {
  bool fused = false;
  for (const DecoderStep& step : steps_) {
    fused_.push_back(fused);
    fused = fused || std::holds_alternative<Fuse>(step) ||
            std::holds_alternative<BytesFromByteLevel>(step);
  }
}

void Decoder::push(std::string_view token, State& state, std::string& out) const {
  Feed{*this, state, out, 0, token}.push();
}

void Decoder::finish(State& state, std::string& out) const {
  for (std::size_t i = 0; i < steps_.size(); ++i) Feed{*this, state, out, i}.finish(steps_[i]);
}

}  // namespace tessera::model
