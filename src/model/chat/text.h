// A string of a template that remembers which of its bytes somebody else wrote.
//
//   "<|im_start|>user\n" ~ message.content        <|im_start|>user\nhi there
//                                                                   ^^^^^^^^ foreign
//
// Whatever a template does with a string (slices, joins, replacements), each byte keeps its author.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/chat/run.h"
#include "model/tokenizer/regex.h"

namespace tessera::model::chat {

// UTF-8. Shared, and never changed.
class Text {
 public:
  Text() = default;
  // A literal of the template. It belongs to no run.
  static Text literal(std::string bytes);

  std::string_view view() const { return data_ ? std::string_view(data_->bytes) : ""; }
  std::size_t size() const { return view().size(); }
  bool empty() const { return size() == 0; }
  // In order; none is empty, none touches another.
  const std::vector<Span>& foreign() const;
  // Whether any byte of the stretch is foreign.
  bool touches_foreign(std::size_t begin, std::size_t end) const;
  // One byte for each character.
  bool is_ascii() const { return !data_ || data_->is_ascii; }
  std::size_t characters() const;
  // It came through |safe: text that is added to it is escaped for HTML, as markupsafe does, even
  // though nothing else is escaped.
  bool is_markup() const { return data_ && data_->is_markup; }

 private:
  friend class TextBuilder;
  struct Data {
    std::string bytes;
    std::vector<Span> foreign;
    bool is_ascii, is_markup;
    Charge charge;
  };
  std::shared_ptr<const Data> data_;
};

class TextBuilder {
 public:
  explicit TextBuilder(Run& run);

  void own(std::string_view bytes) { add(bytes, false); }
  void foreign(std::string_view bytes) { add(bytes, true); }
  void add(std::string_view bytes, bool is_foreign);
  void add(const Text& text) { add(text, 0, text.size()); }
  void add(const Text& text, std::size_t begin, std::size_t end);
  // Replaces a stretch of a text; the author stays the same.
  void instead_of(const Text& text, std::size_t begin, std::size_t end, std::string_view bytes) {
    add(bytes, text.touches_foreign(begin, end));
  }

  std::size_t size() const { return bytes_.size(); }
  // Afterwards the builder is empty.
  Text take(bool is_markup = false);

 private:
  void mark(std::size_t begin, std::size_t end);

  Run* run_;
  Charge charge_;
  std::string bytes_;
  std::vector<Span> foreign_;
};

// A part of a text, in bytes.
Text part(Run& run, const Text& text, std::size_t begin, std::size_t end);
Text own_text(Run& run, std::string_view bytes);
// The first place of `wanted` at or after `from`, in linear time; npos if there is none.
std::size_t find_in(std::string_view text, std::string_view wanted, std::size_t from = 0);

}  // namespace tessera::model::chat
