#include "help_format.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string_view>
#include <vector>

#include "option_checks.h"

namespace tessera::app {
namespace {

using Lines = std::vector<std::string>;

constexpr int kLeast = 40, kMost = 100, kUsual = 80;
constexpr int kNames = 26;       // columns of names and their indent, where text stands beside them
constexpr int kSideBySide = 64;  // narrower help puts the text below the names
constexpr int kBelow = 6;        // indent of text below a name
constexpr std::size_t kWord = 22;  // choices up to this long stand in place of a value's name

// ---- text into lines ----------------------------------------------------------------------------

// Words of a command line as a shell splits it: quoted ones stay whole. Quotes are kept.
Lines shell_words(std::string_view text) {
  Lines words;
  std::string word;
  char quote = 0;
  for (const char c : text) {
    if (c == ' ' && quote == 0) {
      if (!word.empty()) words.push_back(std::move(word));
      word.clear();
      continue;
    }
    if (quote == 0 ? c == '"' || c == '\'' : c == quote) quote = quote == 0 ? c : 0;
    word += c;
  }
  if (!word.empty()) words.push_back(std::move(word));
  return words;
}

Lines plain_words(const std::string& text) {
  std::istringstream in(text);
  Lines words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

// As many words to a line as fit. `first` and `rest`: indents. `goes_on`: the end of every line but
// the last, " \" for a command.
std::string fill(const Lines& words, int width, int first, int rest,
                 std::string_view goes_on = "") {
  std::string text(static_cast<std::size_t>(first), ' ');
  std::size_t column = text.size();
  bool begins = true;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::size_t tail = i + 1 < words.size() ? goes_on.size() : 0;
    const std::size_t wanted = column + (begins ? 0 : 1) + words[i].size() + tail;
    if (!begins && wanted > static_cast<std::size_t>(width)) {
      text.append(goes_on).append("\n").append(static_cast<std::size_t>(rest), ' ');
      column = static_cast<std::size_t>(rest);
      begins = true;
    }
    if (!begins) text += ' ';
    column += words[i].size() + (begins ? 0 : 1);
    text += words[i];
    begins = false;
  }
  return text + "\n";
}

std::string paragraph(const std::string& text, int width, int indent = 0) {
  return fill(plain_words(text), width, indent, indent);
}

// "  names    text", the text beside the names or below them.
std::string entry(const std::string& names, const Lines& text, int width) {
  const bool beside = width >= kSideBySide && names.size() + 4 <= kNames;
  const int indent = width >= kSideBySide ? kNames : kBelow;
  std::string lines = fill(plain_words(names), width, 2, 4);
  if (text.empty()) return lines;
  const std::string body = fill(text, width, indent, indent);
  if (!beside) return lines + body;
  lines.pop_back();
  return lines + body.substr(lines.size());
}

// ---- options ------------------------------------------------------------------------------------

// The choices that one_of() accepts; none where the option takes any text.
Lines choices(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::size_t open = type.find('{'), close = type.rfind('}');
  if (open == std::string::npos || close == std::string::npos) return {};
  return CLI::detail::split(type.substr(open + 1, close - open - 1), ',');
}

// "N", "DIR", "cpu|cuda"; empty for a flag.
std::string value_word(const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return {};
  const std::string type = option.get_type_name();
  std::string word = type.substr(0, type.find(':'));
  const std::string joined = fmt::format("{}", fmt::join(choices(option), "|"));
  if (word == "INT" || word == "UINT") word = "N";
  if (word == "FLOAT") word = "X";
  if (word == "TEXT" && !joined.empty()) word = joined.size() <= kWord ? joined : "WORD";
  return option.get_expected_min() == 0 ? "[" + word + "]" : word;
}

std::string names_text(const CLI::Option& option) {
  Lines names;
  if (option.get_positional()) names.push_back(option.get_name(true));
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  const bool only_positional = option.get_snames().empty() && option.get_lnames().empty();
  const std::string word = only_positional ? "" : value_word(option);
  return fmt::format("{}{}{}", fmt::join(names, ", "), word.empty() ? "" : " ", word);
}

// What help says about an option. A default and its value stay on one line.
Lines option_words(const CLI::Option& option) {
  std::string text = option.get_description();
  const Lines words = choices(option);
  const bool shown = value_word(option) == fmt::format("{}", fmt::join(words, "|"));
  if (!words.empty() && !shown) text += ": " + list_text(words);
  if (option.get_required()) text += " (required)";
  Lines result = plain_words(text);
  if (const std::string value = option.get_default_str(); !value.empty()) {
    result.push_back("(default: " + value + ")");
  }
  return result;
}

using OptionList = std::vector<const CLI::Option*>;

// Those of the command, and of its nameless groups.
OptionList all_options(const CLI::App& command) {
  OptionList options;
  for (const CLI::App* group : command.get_subcommands({})) {
    if (!group->get_name().empty()) continue;
    for (const CLI::Option* option : group->get_options()) options.push_back(option);
  }
  for (const CLI::Option* option : command.get_options()) options.push_back(option);
  return options;
}

std::string options_section(const CLI::App& command, int width) {
  const OptionList options = all_options(command);
  Lines headings;
  for (const CLI::Option* option : options) {
    const std::string& heading = option->get_group();
    const bool is_new = std::find(headings.begin(), headings.end(), heading) == headings.end();
    if (is_new && !heading.empty()) headings.push_back(heading);
  }
  std::string text;
  for (const std::string& heading : headings) {
    text += "\n" + heading + ":\n";
    for (const CLI::Option* option : options) {
      if (option->get_group() != heading) continue;
      text += entry(names_text(*option), option_words(*option), width);
    }
  }
  return text;
}

// ---- the parts of a page ------------------------------------------------------------------------

std::string usage(const CLI::App& command, int width) {
  const bool is_program = command.get_parent() == nullptr;
  std::string text = is_program ? "tessera COMMAND" : "tessera " + command.get_name();
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_positional()) {
      const std::string name = option->get_name(true);
      text += option->get_required() ? " " + name : " [" + name + "]";
    } else if (option->get_required()) {
      text += " " + names_text(*option);
    }
  }
  return fill(plain_words("Usage: " + text + " [options]"), width, 0, 7);
}

std::string commands_section(const CLI::App& command, int width) {
  std::string text;
  for (const CLI::App* sub : command.get_subcommands({})) {
    if (!sub->get_name().empty())
      text += entry(sub->get_name(), plain_words(sub->get_description()), width);
  }
  return text.empty() ? text : "\nCommands:\n" + text;
}

// "  tessera demo      a story": a command, and what it does. It goes to the line below where it
// does not fit.
std::string example(const std::string& line, int width) {
  if (line.size() <= static_cast<std::size_t>(width)) return line + "\n";
  const std::size_t begin = line.find_first_not_of(' '), gap = line.find("   ", begin);
  const int indent = static_cast<int>(begin);
  std::string text = fill(shell_words(line.substr(0, gap)), width, indent, indent + 2, " \\");
  if (gap != std::string::npos) text += paragraph(line.substr(gap), width, kBelow);
  return text;
}

// Lines that are indented are examples; others are joined to paragraphs, which end at an empty line
// or before one that ends in a colon.
std::string footer(const std::string& source, int width) {
  std::istringstream in(source);
  std::string text, joined;
  const auto end_paragraph = [&] {
    if (!joined.empty()) text += paragraph(joined, width);
    joined.clear();
  };
  for (std::string line; std::getline(in, line);) {
    const bool indented = line.starts_with("  ");
    if (indented || line.empty() || line.ends_with(':')) end_paragraph();
    if (indented) {
      text += example(line, width);
    } else if (line.empty() || line.ends_with(':')) {
      if (!text.empty() && !text.ends_with("\n\n")) text += "\n";
      if (!line.empty()) text += line + "\n";
    } else {
      joined += line + " ";
    }
  }
  end_paragraph();
  return text.empty() ? text : "\n" + text;
}

class HelpFormatter : public CLI::FormatterBase {
 public:
  std::string make_help(const CLI::App* app, std::string, CLI::AppFormatMode) const override {
    const int width = help_width();
    return paragraph(app->get_description(), width) + "\n" + usage(*app, width) +
           commands_section(*app, width) + options_section(*app, width) +
           footer(app->get_footer(), width);
  }
};

}  // namespace

int help_width() {
  int width = kUsual;
  winsize size{};
  const char* columns = std::getenv("COLUMNS");
  if (columns != nullptr && std::atoi(columns) > 0) {
    width = std::atoi(columns);
  } else if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    width = size.ws_col;
  }
  return std::clamp(width, kLeast, kMost);
}

std::shared_ptr<CLI::FormatterBase> help_formatter() { return std::make_shared<HelpFormatter>(); }

}  // namespace tessera::app
