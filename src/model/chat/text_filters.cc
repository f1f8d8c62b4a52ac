#include <array>

#include "model/chat/access.h"
#include "model/chat/arguments.h"
#include "model/chat/filters.h"
#include "model/chat/operators.h"
#include "model/chat/text_case.h"
#include "model/chat/text_parts.h"
#include "model/chat/write_value.h"

namespace tessera::model::chat {
namespace {

template <Text (*kConvert)(Run&, const Text&)>
Value case_filter(Run& run, const Value& value, const CallArguments& arguments) {
  placed<0>(run, arguments, "a change of case", {});
  return kConvert(run, to_text(run, value));
}

Value string_filter(Run& run, const Value& value, const CallArguments& arguments) {
  placed<0>(run, arguments, "string", {});
  return to_text(run, value);
}

Value safe_filter(Run& run, const Value& value, const CallArguments& arguments) {
  placed<0>(run, arguments, "safe", {});
  TextBuilder builder(run);
  builder.add(to_text(run, value));
  return builder.take(true);
}

Value trim_filter(Run& run, const Value& value, const CallArguments& arguments) {
  const auto [characters] = placed<1>(run, arguments, "trim", {"chars"});
  const Text text = to_text(run, value);
  if (characters == nullptr || characters->is<None>()) {
    return stripped(run, text, nullptr, Side::both);
  }
  const Text set = text_argument(run, characters, "trim");
  return stripped(run, text, &set, Side::both);
}

Value replace_filter(Run& run, const Value& value, const CallArguments& arguments) {
  const auto [old, by, most] = placed<3>(run, arguments, "replace", {"old", "new", "count"});
  if (old == nullptr || by == nullptr) run.refuse("replace needs two strings");
  const bool all = most == nullptr || most->is<None>();
  return replaced(run, to_text(run, value), to_text(run, *old), to_text(run, *by),
                  all ? -1 : integer_argument(run, most, -1, "replace"));
}

Value join_filter(Run& run, const Value& value, const CallArguments& arguments) {
  const auto [between, attribute] = placed<2>(run, arguments, "join", {"d", "attribute"});
  std::vector<Text> parts;
  for (const Value& item : items_of(run, value)) {
    const bool whole = attribute == nullptr || attribute->is<None>();
    parts.push_back(to_text(run, whole ? item : at_path(run, item, *attribute)));
  }
  return joined_with(run, between == nullptr ? Text() : to_text(run, *between), parts);
}

Value format_filter(Run& run, const Value& value, const CallArguments& arguments) {
  if (!arguments.named.empty()) run.refuse("format with names is not supported");
  return format_percent(run, to_text(run, value), arguments.positional);
}

// A number of spaces, or the text itself.
Text indentation(Run& run, const Value* width, std::int64_t otherwise, std::string_view filter) {
  if (width != nullptr && width->is<Text>()) return *width->as<Text>();
  const std::int64_t spaces = integer_argument(run, width, otherwise, filter);
  return *binary_value(run, BinaryOp::multiply, Text::literal(" "), spaces).as<Text>();
}

Value indent_filter(Run& run, const Value& value, const CallArguments& arguments) {
  const auto [width, first, blank] =
      placed<3>(run, arguments, "indent", {"width", "first", "blank"});
  const Text indent = indentation(run, width, 4, "indent");
  const Text text = text_argument(run, &value, "indent");
  std::vector<Value> lines = split_lines(run, text, false);
  // A newline at the end makes one more line, which is empty.
  if (text.empty() || text.view().ends_with('\n')) lines.emplace_back(Text());
  TextBuilder out(run);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const Text& line = *lines[i].as<Text>();
    if (i > 0) out.own("\n");
    const bool indented =
        i == 0 ? truth_argument(first, false) : truth_argument(blank, false) || !line.empty();
    if (indented) out.add(indent);
    out.add(line);
  }
  return out.take();
}

// As transformers defines it: json.dumps() without escapes for HTML.
Value tojson_filter(Run& run, const Value& value, const CallArguments& arguments) {
  const auto [ascii, indent, separators, sort] =
      placed<4>(run, arguments, "tojson", {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style{.ensure_ascii = truth_argument(ascii, false),
                  .sort_keys = truth_argument(sort, false)};
  if (indent != nullptr && !indent->is<None>()) {
    style.indented = true;
    style.indent = indentation(run, indent, 0, "tojson");
    style.between_items = Text::literal(",");
  }
  if (separators != nullptr && !separators->is<None>()) {
    const std::vector<Value> two = items_of(run, *separators);
    if (two.size() != 2) run.refuse("tojson needs two separators");
    style.between_items = text_argument(run, &two[0], "tojson");
    style.after_key = text_argument(run, &two[1], "tojson");
  }
  return to_json(run, value, style);
}

struct NamedTextFilter {
  std::string_view name;
  FilterFunction filter;
};
constexpr std::array<NamedTextFilter, 12> kTextFilters = {{
    {"upper", case_filter<upper>},
    {"lower", case_filter<lower>},
    {"capitalize", case_filter<capitalized>},
    {"title", case_filter<title_filtered>},
    {"string", string_filter},
    {"safe", safe_filter},
    {"trim", trim_filter},
    {"replace", replace_filter},
    {"join", join_filter},
    {"format", format_filter},
    {"indent", indent_filter},
    {"tojson", tojson_filter},
}};

}  // namespace

FilterFunction text_filter(std::string_view name) {
  for (const NamedTextFilter& each : kTextFilters) {
    if (each.name == name) return each.filter;
  }
  return nullptr;
}

}  // namespace tessera::model::chat
