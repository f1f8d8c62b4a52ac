#include "model/tokenizer/tokenizer_growth.h"

#include <algorithm>
#include <variant>

#include "core/fail.h"

namespace tessera::model {
namespace {

constexpr double kByteLevel = 2;        // a byte's character has one or two bytes
constexpr double kPrefixSpace = 2;      // each piece gets one, and may be a single byte
constexpr double kCompatible = 11;      // U+FDFA, three bytes, is a sentence of 33
constexpr double kCanonical = 3;        // U+0390, two bytes, is three characters of two
constexpr double kReplaced = 3;         // U+FFFD for a single byte
constexpr double kLowerCase = 1.5;      // U+0130, two bytes, is two characters of three
constexpr double kMostOfCharacter = 4;  // bytes

struct Growth {
  double operator()(NormalForm form) const {
    return form == NormalForm::nfkc || form == NormalForm::nfkd ? kCompatible : kCanonical;
  }
  // Prepends once to each text that is not empty.
  double operator()(const Prepend& step) const { return 1 + static_cast<double>(step.text.size()); }
  double operator()(const Replace& step) const {
    const auto content = static_cast<double>(step.content.size());
    const auto match = static_cast<double>(step.pattern.shortest_match());
    return match == 0 ? 1 + content : std::max(1.0, content / match);
  }
  double operator()(StripWhiteSpace) const { return 1; }
  double operator()(Lowercase) const { return kLowerCase; }
  double operator()(StripAccents) const { return 1; }
  double operator()(ByteLevelCharacters) const { return kByteLevel; }

  double operator()(const SplitAtPattern&) const { return 1; }
  double operator()(const SplitAtCharacters&) const { return 1; }
  double operator()(const ByteLevel& step) const {
    return step.add_prefix_space ? kPrefixSpace * kByteLevel : kByteLevel;
  }
  double operator()(const Metaspace&) const { return 1 + kMostOfCharacter; }

  double operator()(const StripCharacters&) const { return 1; }
  double operator()(const MetaspaceToSpace&) const { return 1; }
  double operator()(const BytesFromFallback&) const { return 1; }  // six bytes become at most three
  double operator()(const BytesFromByteLevel&) const { return kReplaced; }
  double operator()(const Fuse&) const { return 1; }
  double operator()(const JoinWithSpaces&) const { return 2; }
};

}  // namespace

double growth_of(const NormalizerStep& step) { return std::visit(Growth{}, step); }
double growth_of(const PreTokenizerStep& step) { return std::visit(Growth{}, step); }
void check_growth(double growth, const std::string& what) {
  if (growth <= kMaxGrowth) return;
  fail(ErrorCode::unsupported, "{} can make a text {:.3g} times as long; at most {} are accepted",
       what, growth, kMaxGrowth);
}

double growth_of(const DecoderStep& step) { return std::visit(Growth{}, step); }

}  // namespace tessera::model
