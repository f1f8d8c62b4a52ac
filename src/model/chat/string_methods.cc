#include <algorithm>
#include <array>

#include "model/chat/arguments.h"
#include "model/chat/methods.h"
#include "model/chat/text_case.h"
#include "model/chat/text_parts.h"
#include "model/chat/write_value.h"
#include "model/tokenizer/unicode.h"

namespace tessera::model::chat {
namespace {

const Text& text_of(const Value& object) { return *object.as<Text>(); }

template <Side kSide>
Value strip_method(Run& run, const Value& object, const CallArguments& arguments) {
  const auto [characters] = placed<1>(run, arguments, "strip", {"chars"});
  if (characters == nullptr || characters->is<None>()) {
    return stripped(run, text_of(object), nullptr, kSide);
  }
  const Text set = text_argument(run, characters, "strip");
  return stripped(run, text_of(object), &set, kSide);
}

template <bool kFromRight>
Value split_method(Run& run, const Value& object, const CallArguments& arguments) {
  const auto [separator, most] = placed<2>(run, arguments, "split", {"sep", "maxsplit"});
  const std::int64_t cuts = integer_argument(run, most, -1, "split");
  if (separator == nullptr || separator->is<None>()) {
    return make_list(run, split_at_spaces(run, text_of(object), cuts, kFromRight));
  }
  return make_list(run, split_at(run, text_of(object), text_argument(run, separator, "split"), cuts,
                                 kFromRight));
}

Value splitlines_method(Run& run, const Value& object, const CallArguments& arguments) {
  const auto [keep] = placed<1>(run, arguments, "splitlines", {"keepends"});
  return make_list(run, split_lines(run, text_of(object), truth_argument(keep, false)));
}

// The part that find, count and startswith look at, in bytes.
struct Window {
  std::size_t begin, end;
  bool is_empty_range;  // begins after the end
};
Window window_of(Run& run, const Text& text, const Value* begin, const Value* end,
                 std::string_view method) {
  const auto bound = [&](const Value* value) -> std::optional<std::int64_t> {
    if (value == nullptr || value->is<None>()) return std::nullopt;
    return integer_argument(run, value, 0, method);
  };
  const auto low = bound(begin), high = bound(end);
  if (!low && !high) return {0, text.size(), false};
  const std::vector<std::size_t> starts = character_starts(run, text);
  const auto length = static_cast<std::int64_t>(starts.size() - 1);
  const auto place = [&](std::int64_t at) {
    return std::max<std::int64_t>(at < 0 ? std::max(at, -length) + length : at, 0);
  };
  const std::int64_t from = low ? place(*low) : 0;
  const std::int64_t to = std::min(high ? place(*high) : length, length);
  if (from > to) return {0, 0, true};
  return {starts[static_cast<std::size_t>(from)], starts[static_cast<std::size_t>(to)], false};
}

template <bool kAtEnd>
Value affix_method(Run& run, const Value& object, const CallArguments& arguments) {
  constexpr std::string_view kName = kAtEnd ? "endswith" : "startswith";
  const auto [affix, begin, end] = placed<3>(run, arguments, kName, {"prefix", "start", "end"});
  const Text& text = text_of(object);
  const Window window = window_of(run, text, begin, end, kName);
  const std::string_view bytes = text.view().substr(window.begin, window.end - window.begin);
  const auto has = [&](const Value& one) {
    const Text wanted = text_argument(run, &one, kName);
    run.work_on(wanted.size());
    if (window.is_empty_range) return false;
    return kAtEnd ? bytes.ends_with(wanted.view()) : bytes.starts_with(wanted.view());
  };
  if (affix != nullptr && affix->is<List>() && (*affix->as<List>())->kind == ListKind::tuple) {
    const std::vector<Value>& all = (*affix->as<List>())->items;
    return std::any_of(all.begin(), all.end(), has);
  }
  if (affix == nullptr) run.refuse("{} needs a string", kName);
  return has(*affix);
}

// In characters; -1 if there is none.
std::int64_t find_character(Run& run, const Text& text, const CallArguments& arguments,
                            std::string_view name, bool from_right) {
  const auto [wanted, begin, end] = placed<3>(run, arguments, name, {"sub", "start", "end"});
  const Text sub = text_argument(run, wanted, name);
  const Window window = window_of(run, text, begin, end, name);
  const std::string_view bytes = text.view().substr(0, window.end);
  run.work_on(bytes.size());
  std::size_t found = std::string_view::npos;
  if (!window.is_empty_range && from_right) {
    found = bytes.rfind(sub.view());
    // rfind may take the product of the two lengths.
    run.step(sub.size() > 16 ? bytes.size() / 16 * (sub.size() / 16) : 0);
    if (found < window.begin) found = std::string_view::npos;
  } else if (!window.is_empty_range) {
    found = find_in(bytes, sub.view(), window.begin);
  }
  if (found == std::string_view::npos) return -1;
  const std::string_view before = bytes.substr(0, found);
  return std::count_if(before.begin(), before.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

template <bool kFromRight>
Value find_method(Run& run, const Value& object, const CallArguments& arguments) {
  return find_character(run, text_of(object), arguments, "find", kFromRight);
}

Value index_method(Run& run, const Value& object, const CallArguments& arguments) {
  const std::int64_t found = find_character(run, text_of(object), arguments, "index", false);
  if (found < 0) run.refuse("index does not find the string");
  return found;
}

Value count_method(Run& run, const Value& object, const CallArguments& arguments) {
  const auto [wanted] = placed<1>(run, arguments, "count", {"sub"});
  const Text sub = text_argument(run, wanted, "count");
  const Text& text = text_of(object);
  if (sub.empty()) return static_cast<std::int64_t>(text.characters() + 1);
  run.work_on(text.size());
  std::int64_t count = 0;
  for (std::size_t at = 0;; at += sub.size(), ++count) {
    at = find_in(text.view(), sub.view(), at);
    if (at == std::string_view::npos) return count;
  }
}

Value replace_method(Run& run, const Value& object, const CallArguments& arguments) {
  const auto [old, by, most] = placed<3>(run, arguments, "replace", {"old", "new", "count"});
  return replaced(run, text_of(object), text_argument(run, old, "replace"),
                  text_argument(run, by, "replace"), integer_argument(run, most, -1, "replace"));
}

Value join_method(Run& run, const Value& object, const CallArguments& arguments) {
  const auto [items] = placed<1>(run, arguments, "join", {"iterable"});
  if (items == nullptr) run.refuse("join needs strings");
  std::vector<Text> parts;
  for (const Value& item : items_of(run, *items))
    parts.push_back(text_argument(run, &item, "join"));
  return joined_with(run, text_of(object), parts);
}

template <Text (*kConvert)(Run&, const Text&)>
Value case_method(Run& run, const Value& object, const CallArguments& arguments) {
  placed<0>(run, arguments, "a change of case", {});
  return kConvert(run, text_of(object));
}

template <bool (*kIs)(char32_t)>
Value all_are_method(Run& run, const Value& object, const CallArguments& arguments) {
  placed<0>(run, arguments, "a question about characters", {});
  const std::string_view bytes = text_of(object).view();
  run.step(1 + bytes.size() / 16);
  for (std::size_t at = 0; at < bytes.size();) {
    if (!kIs(next_code_point(bytes, at))) return false;
  }
  return !bytes.empty();
}

bool is_letter_or_digit(char32_t c) { return is_letter(c) || model::is_number(c); }

// One letter at least, and all letters with a case have this one.
template <bool kUpper>
Value has_case_method(Run& run, const Value& object, const CallArguments& arguments) {
  placed<0>(run, arguments, "a question about characters", {});
  const std::string_view bytes = text_of(object).view();
  run.step(1 + bytes.size() / 16);
  bool any = false;
  for (std::size_t at = 0; at < bytes.size();) {
    const char32_t c = next_code_point(bytes, at);
    if (kUpper ? is_lower(c) : is_upper(c)) return false;
    any = any || (kUpper ? is_upper(c) : is_lower(c));
  }
  return any;
}

template <bool kAtEnd>
Value remove_affix_method(Run& run, const Value& object, const CallArguments& arguments) {
  const auto [affix] =
      placed<1>(run, arguments, kAtEnd ? "removesuffix" : "removeprefix", {"affix"});
  const Text& text = text_of(object);
  const Text wanted = text_argument(run, affix, "removeprefix");
  if (kAtEnd && text.view().ends_with(wanted.view())) {
    return part(run, text, 0, text.size() - wanted.size());
  }
  if (!kAtEnd && text.view().starts_with(wanted.view())) {
    return part(run, text, wanted.size(), text.size());
  }
  return text;
}

template <bool kFromRight>
Value partition_method(Run& run, const Value& object, const CallArguments& arguments) {
  const auto [separator] = placed<1>(run, arguments, "partition", {"sep"});
  const Text wanted = text_argument(run, separator, "partition");
  std::vector<Value> parts = split_at(run, text_of(object), wanted, 1, kFromRight);
  if (parts.size() == 2) return make_tuple(run, {parts[0], wanted, parts[1]});
  return kFromRight ? make_tuple(run, {Text(), Text(), parts[0]})
                    : make_tuple(run, {parts[0], Text(), Text()});
}

// The field in braces: nothing, a place or a name.
const Value& format_field(const Run& run, std::string_view field, const CallArguments& arguments,
                          std::size_t& next) {
  const bool is_place =
      !field.empty() && field.size() < 4 &&
      std::all_of(field.begin(), field.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (field.empty() || is_place) {
    const std::size_t index = field.empty() ? next++ : std::stoul(std::string(field));
    if (index >= arguments.positional.size()) run.refuse("format has too few values");
    return arguments.positional[index];
  }
  for (const auto& [name, value] : arguments.named) {
    if (name == field) return value;
  }
  run.refuse("format supports {{}}, {{0}} and {{name}}; it has no value for '{}'", field);
}

Value format_method(Run& run, const Value& object, const CallArguments& arguments) {
  const Text& text = text_of(object);
  const std::string_view bytes = text.view();
  TextBuilder out(run);
  std::size_t next = 0;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t brace = std::min(bytes.find_first_of("{}", at), bytes.size());
    out.add(text, at, brace);
    if (brace == bytes.size()) break;
    if (brace + 1 < bytes.size() && bytes[brace + 1] == bytes[brace]) {
      out.add(text, brace, brace + 1);
      at = brace + 2;
      continue;
    }
    const std::size_t end = bytes.find('}', brace);
    if (bytes[brace] == '}' || end == std::string_view::npos)
      run.refuse("a format has a single brace; write it twice");
    out.add(
        to_text(run, format_field(run, bytes.substr(brace + 1, end - brace - 1), arguments, next)));
    at = end + 1;
  }
  return out.take();
}

struct NamedMethod {
  std::string_view name;
  Method method;
};
constexpr std::array<NamedMethod, 31> kStringMethods = {{
    {"strip", strip_method<Side::both>},
    {"lstrip", strip_method<Side::left>},
    {"rstrip", strip_method<Side::right>},
    {"split", split_method<false>},
    {"rsplit", split_method<true>},
    {"splitlines", splitlines_method},
    {"startswith", affix_method<false>},
    {"endswith", affix_method<true>},
    {"find", find_method<false>},
    {"rfind", find_method<true>},
    {"index", index_method},
    {"count", count_method},
    {"replace", replace_method},
    {"join", join_method},
    {"format", format_method},
    {"upper", case_method<upper>},
    {"lower", case_method<lower>},
    {"title", case_method<title>},
    {"capitalize", case_method<capitalized>},
    {"isspace", all_are_method<is_space>},
    {"isdigit", all_are_method<is_digit>},
    {"isdecimal", all_are_method<is_digit>},
    {"isnumeric", all_are_method<model::is_number>},
    {"isalpha", all_are_method<is_letter>},
    {"isalnum", all_are_method<is_letter_or_digit>},
    {"isupper", has_case_method<true>},
    {"islower", has_case_method<false>},
    {"removeprefix", remove_affix_method<false>},
    {"removesuffix", remove_affix_method<true>},
    {"partition", partition_method<false>},
    {"rpartition", partition_method<true>},
}};

}  // namespace

Method string_method(std::string_view name) {
  for (const NamedMethod& each : kStringMethods) {
    if (each.name == name) return each.method;
  }
  return nullptr;
}

}  // namespace tessera::model::chat
