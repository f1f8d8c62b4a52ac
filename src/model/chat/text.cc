#include "model/chat/text.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace tessera::model::chat {
namespace {

constexpr std::size_t kTextOverhead = 128;  // bytes of an empty text, roughly

bool all_ascii(std::string_view bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](char c) { return (c & '\x80') == 0; });
}

}  // namespace

Text Text::literal(std::string bytes) {
  Text text;
  const bool ascii = all_ascii(bytes);
  text.data_ = std::make_shared<const Data>(Data{std::move(bytes), {}, ascii, false, {}});
  return text;
}

const std::vector<Span>& Text::foreign() const {
  static const std::vector<Span> none;
  return data_ ? data_->foreign : none;
}

bool Text::touches_foreign(std::size_t begin, std::size_t end) const {
  const auto& spans = foreign();
  const auto span = std::upper_bound(spans.begin(), spans.end(), begin,
                                     [](std::size_t at, const Span& s) { return at < s.end; });
  return span != spans.end() && span->begin < end;
}

std::size_t Text::characters() const {
  if (is_ascii()) return size();
  const std::string_view bytes = view();
  const auto starts = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; };
  return static_cast<std::size_t>(std::count_if(bytes.begin(), bytes.end(), starts));
}

TextBuilder::TextBuilder(Run& run) : run_(&run), charge_(run, kTextOverhead) {}

void TextBuilder::mark(std::size_t begin, std::size_t end) {
  if (begin == end) return;
  if (!foreign_.empty() && foreign_.back().end == begin) {
    foreign_.back().end = end;
    return;
  }
  charge_.grow(sizeof(Span));
  foreign_.push_back({begin, end});
}

void TextBuilder::add(std::string_view bytes, bool is_foreign) {
  run_->work_on(bytes.size());
  charge_.grow(bytes.size());
  if (is_foreign) mark(bytes_.size(), bytes_.size() + bytes.size());
  bytes_ += bytes;
}

void TextBuilder::add(const Text& text, std::size_t begin, std::size_t end) {
  const std::size_t start = bytes_.size();
  add(text.view().substr(begin, end - begin), false);
  const auto& spans = text.foreign();
  auto span = std::upper_bound(spans.begin(), spans.end(), begin,
                               [](std::size_t at, const Span& s) { return at < s.end; });
  std::size_t count = 0;
  for (; span != spans.end() && span->begin < end; ++span, ++count) {
    mark(start + std::max(span->begin, begin) - begin, start + std::min(span->end, end) - begin);
  }
  run_->step(count / 8);
}

Text TextBuilder::take(bool is_markup) {
  Text text;
  const bool ascii = all_ascii(bytes_);
  text.data_ = std::make_shared<const Text::Data>(
      Text::Data{std::exchange(bytes_, {}), std::exchange(foreign_, {}), ascii, is_markup,
                 std::exchange(charge_, Charge(*run_, kTextOverhead))});
  return text;
}

Text part(Run& run, const Text& text, std::size_t begin, std::size_t end) {
  if (begin == 0 && end == text.size()) return text;
  TextBuilder builder(run);
  builder.add(text, begin, end);
  return builder.take();
}

Text own_text(Run& run, std::string_view bytes) {
  TextBuilder builder(run);
  builder.own(bytes);
  return builder.take();
}

std::size_t find_in(std::string_view text, std::string_view wanted, std::size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (wanted.empty()) return from;
  // glibc's memmem() takes linear time for any two texts; std::string_view::find() does not.
  const void* found = memmem(text.data() + from, text.size() - from, wanted.data(), wanted.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}

}  // namespace tessera::model::chat
