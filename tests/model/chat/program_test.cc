// The interpreter of chat templates: what it keeps track of, and what it refuses. That it renders
// as jinja2 does is in compare_test.py.
#include "model/chat/program.h"

#include <gtest/gtest.h>

#include <chrono>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/error.h"

namespace tessera::test {
namespace {

using model::chat::Program;
using model::chat::Rendered;

const std::vector<ChatMessage>& hello() {
  static const std::vector<ChatMessage> messages = {{"user", "hello"}};
  return messages;
}

std::string render(const std::string& source, const std::vector<ChatMessage>& messages = hello()) {
  return Program(source).render(messages, {}, {}).text;
}

// A sum of literals and strings; g++ 12 warns about + at -O3.
std::string joined(std::initializer_list<std::string_view> parts) {
  std::string all;
  for (const std::string_view part : parts) all += part;
  return all;
}

// Why the template is refused; empty where it is not.
std::string refusal_of(const std::string& source) {
  try {
    render(source);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// The text with what came from messages in brackets.
std::string marked(const std::string& source, const std::string& content) {
  const std::vector<ChatMessage> messages = {{"user", content}};
  const Rendered rendered = Program(source).render(messages, {}, {});
  const std::string_view text = rendered.text;
  std::string all;
  std::size_t done = 0;
  for (const model::Span& span : rendered.foreign) {
    all += text.substr(done, span.begin - done);
    all += '[';
    all += text.substr(span.begin, span.end - span.begin);
    all += ']';
    done = span.end;
  }
  return all += text.substr(done);
}

TEST(ChatProgram, EachByteKeepsItsHand) {
  const struct {
    const char *source, *content, *expected;
  } cases[] = {
      {"a{{ messages[0].content }}b", "xyz", "a[xyz]b"},
      {"{{ messages[0].role }}", "x", "user"},
      {"{{ ('<' ~ messages[0].content ~ '>') | trim }}", " x ", "<[ x ]>"},
      {"{{ ('  ' + messages[0].content) | trim }}", "x ", "[x]"},
      {"{{ messages[0].content.replace('y', 'Y') }}", "xyz", "[x]Y[z]"},
      {"{{ 'x-z'.replace('-', messages[0].content) }}", "y", "x[y]z"},
      {"{{ ('ab' + messages[0].content)[1:4] }}", "xyz", "b[xy]"},
      {"{{ ('ab' + messages[0].content)[::-1] }}", "xy", "[yx]ba"},
      {"{{ (messages[0].content + '|x').split('|') | join('+') }}", "a|b", "[a]+[b]+x"},
      {"{{ (messages[0].content + 'b') | upper }}", "\xC3\xA9", "[\xC3\x89]B"},
      {"{{ '{}-{x}'.format(1, x=messages[0].content) }}", "{}", "1-[{}]"},
      {"{{ 'a' | safe + messages[0].content }}", "<b", "a[&lt;b]"},
      {"{{ [messages[0].content, 'b'] }}", "a'\n", "[\"[a'\\n]\", 'b']"},
      {"{{ {'k': messages[0].content} | tojson }}", "a\"\n", "{\"k\": \"[a\\\"\\n]\"}"},
      {"{{ (messages[0].content ~ messages[0].content) | length }}", "ab", "4"},
      {"{{ 'x' if messages[0].content == 'ab' else 'y' }}", "ab", "x"},
      {"{% set t %}({{ messages[0].content }}){% endset %}{{ t }}", "a", "([a])"},
      {"{% filter upper %}a{{ messages[0].content }}{% endfilter %}", "b", "A[B]"},
      {"{{ messages[0].content.split('#')[0] ~ '#' ~ messages[0].content.split('#')[1] }}", "a#b",
       "[a]#[b]"},
      {"{% for c in messages[0].content %}{{ c }}{{ '.' if not loop.last }}{% endfor %}", "ab",
       "[a].[b]"},
  };
  for (const auto& c : cases) EXPECT_EQ(marked(c.source, c.content), c.expected) << c.source;
}

TEST(ChatProgram, RefusesWithLineAndColumn) {
  const struct {
    const char *source, *expected;
  } cases[] = {
      {"{{ a", "line 1, column 5: an expression has no end; write }}"},
      {"{% if a", "line 1, column 8: a block has no end; write %}"},
      {"x\n {# a", "line 2, column 6: a comment has no end; write #}"},
      {"{% raw %}{{", "line 1, column 10: a raw block has no end; write {% endraw %}"},
      {"{{ 'a }}", "line 1, column 4: a string has no end; close its quotes"},
      {"{{ a ? b }}", "line 1, column 6: \"?\" is not allowed here"},
      {"{{ (a] }}", "line 1, column 6: ']' closes nothing"},
      {"{{ }}", "line 1, column 4: '}}' was found where an expression is expected"},
      {"{{ a b }}", "line 1, column 6: \"b\" was found where '}}' is expected"},
      {"{% if a %}b", "line 1, column 11: the block that begins here has no endif"},
      {"{% endfor %}",
       "line 1, column 4: \"endfor\" is not a statement, or ends a block that was not begun"},
      {"{% include 'a' %}", "line 1, column 4: 'include' is not supported in chat templates"},
      {"{% for a in b recursive %}{% endfor %}",
       "line 1, column 15: 'recursive' loops are not supported"},
      {"{% break %}", "line 1, column 4: 'break' is not inside a loop"},
      {"{% for i in [1] %}{% set x %}{% break %}{% endset %}{% endfor %}",
       "line 1, column 33: 'break' is not inside a loop"},
      {"{{ f(*a) }}",
       "line 1, column 6: arguments from a list or a dict (* and **) are not supported"},
      {"{{ 99999999999999999999 }}", "line 1, column 4: the number does not fit into 64 bits"},
      {"{{ 9223372036854775807 + 1 }}", "line 1, column 24: a number does not fit into 64 bits"},
      {"{{ '\\ud800' }}", "line 1, column 4: a string has an escape that is not a character"},
      {"{{ messages.x.y }}", "line 1, column 14: a list has no member \"x\""},
      {"\n{{ '\xC3\xA9' + 1 }}", "line 2, column 8: '+' does not take str and int"},
      {"{{ nobody() }}", "line 1, column 10: 'nobody' is undefined"},
      {"{{ 1 | nope }}", "line 1, column 8: there is no filter 'nope'"},
      {"{{ 1 is nope }}", "line 1, column 6: there is no test 'nope'"},
      {"{{ [].append(1) }}", "line 1, column 6: a template may not change a list ('append')"},
      {"{{ ''.__class__ }}", "line 1, column 6: a template may not use '__class__'"},
      {"{{ ''.encode() }}", "line 1, column 6: the method 'encode' of str is not supported"},
      {"{{ [1] | map('string') }}",
       "line 1, column 10: a generator has no text; write what it returns or contains"},
      {"{{ range }}",
       "line 1, column 4: a function has no text; write what it returns or contains"},
      {"{{ raise_exception('a\n\x1b[0m') }}",
       "line 1, column 19: the template refuses this conversation: \"a\\x0a\\x1b[0m\""},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(refusal_of(c.source), joined({"chat template, ", c.expected})) << c.source;
  }
  EXPECT_EQ(refusal_of("{{ [1] | map('a\\n\\x07') | list }}"),
            "chat template, line 1, column 10: there is no filter 'a\\x0a\\x07'");
  const std::string long_name(100'000, 'n');
  EXPECT_EQ(refusal_of(joined({"{{ ", long_name, "() }}"})),
            joined({"chat template, line 1, column 100004: '", long_name.substr(0, 399), "..."}));
  EXPECT_EQ(refusal_of("a\xff"), "the chat template is not UTF-8: byte 1 is 0xFF");
  EXPECT_EQ(refusal_of(std::string(2 << 20, 'a')),
            "the chat template has 2097152 bytes, at most 1048576 are read");
}

std::string repeated(std::string_view text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

// Each of these would take for ever, all memory or the whole stack.
TEST(ChatProgram, HostileTemplatesEndSoon) {
  const std::string too_long = "too many steps for this conversation";
  const std::string too_large = "the template needs more than 64 MiB for this conversation";
  const std::string too_deep = "deep";
  const struct {
    std::string source, expected;
  } cases[] = {
      {joined({"{% set x = 'abcdefgh' %}", repeated("{% set x = x ~ x %}", 60)}), too_large},
      {"{% set ns = namespace(x='a') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}"
       "{% endfor %}",
       too_large},
      {"{{ 'a' * 9999999999 }}", too_long},
      {"{{ [1] * 9999999999 }}", too_large},
      {"{{ '' * 9999999999 }}x", ""},
      {joined({"{% set l = [1] %}", repeated("{% set l = l + l %}", 60)}), too_large},
      {"{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = [ns.l, ns.l] %}"
       "{% endfor %}{{ ns.l | string }}",
       "this conversation"},
      {"{% set ns = namespace(l=1) %}{% for i in range(999) %}{% set ns.l = [ns.l] %}{% endfor %}",
       too_deep},
      {joined({repeated("{% for i in range(99999) %}", 4), repeated("{% endfor %}", 4)}), too_long},
      {"{{ range(100001) }}", "a range has at most 100000 numbers"},
      {"{{ range(-9223372036854775807, 9223372036854775807, 9223372036854775807) | list }}", ""},
      {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", too_deep},
      {"{% macro f(n) %}{{ n }}{{ f(n + 1) }}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}", too_deep},
      {"{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
       too_long},
      {joined({"{{ ", repeated("(", 100'000), "1", repeated(")", 100'000), " }}"}), too_deep},
      {joined({"{{ ", repeated("[", 100'000), "1", repeated("]", 100'000), " }}"}), too_deep},
      {joined({"{{ ", repeated("not ", 100'000), "1 }}"}), too_deep},
      {joined({"{{ ", repeated("-", 100'000), "1 }}"}), too_deep},
      {joined({"{{ 1", repeated("+1", 100'000), " }}"}), too_deep},
      {joined({"{{ a", repeated(".a", 100'000), " }}"}), too_deep},
      {joined({"{{ a", repeated("|trim", 100'000), " }}"}), too_deep},
      {joined({"{{ a", repeated(" if a", 100'000), " }}"}), too_deep},
      {repeated("{% if 1 %}", 50'000), too_deep},
      {repeated("{% set x %}", 50'000), too_deep},
      {"{% set x = messages[0].content * 100000 %}{% for i in range(9999) %}"
       "{{ x.replace('e', 'f') | length }}{% endfor %}",
       too_long},
      {"{% for i in range(99999) %}{% macro f() %}{{ i }}{% endmacro %}{% for j in range(99) %}"
       "{% macro g() %}{% endmacro %}{% endfor %}{% endfor %}",
       "this conversation"},
      {"{% set ns = namespace() %}{% for i in range(99999) %}{% set x = namespace(a=ns) %}"
       "{% for j in range(99) %}{% set y = namespace(b=x) %}{% endfor %}{% endfor %}",
       "this conversation"},
      {joined({"{% for i in range(99999) %}",
               repeated("{{ 'abcdefghijklmnopqrstuvwxyz' * 999 }}", 9), "{% endfor %}"}),
       too_large},
  };
  for (const auto& c : cases) {
    const auto start = std::chrono::steady_clock::now();
    const std::string refusal = refusal_of(c.source);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    EXPECT_EQ(refusal.empty(), c.expected.empty()) << c.source.substr(0, 80) << ": " << refusal;
    EXPECT_NE(refusal.find(c.expected), std::string::npos)
        << c.source.substr(0, 80) << ": " << refusal;
    EXPECT_LT(took.count(), 30.0) << c.source.substr(0, 80);
  }
}

// Values may refer to themselves through a namespace: nothing leaks, which the sanitizers see.
TEST(ChatProgram, NamespacesMayHoldThemselves) {
  EXPECT_EQ(render("{% set ns = namespace(a=1) %}{% set ns.self = ns %}{% set ns.list = [ns] %}"
                   "{% macro f() %}{{ ns.self.list[0].a }}{% endmacro %}{% set ns.f = f %}"
                   "{% for i in [1] %}{% set ns.loop = loop %}{% endfor %}{{ ns.f() }}"
                   "{{ ns.loop.index }}"),
            "11");
}

TEST(ChatProgram, AMacroMayOutliveItsScope) {
  EXPECT_EQ(render("{% set ns = namespace() %}{% for i in [7, 8] %}{% if loop.first %}"
                   "{% macro f(x) %}{{ i }}{{ x }}{% endmacro %}{% set ns.f = f %}{% endif %}"
                   "{% endfor %}{{ ns.f(1) }}"),
            "71");
}

// A long conversation is no hostile one, even where the template copies all of it for each turn.
TEST(ChatProgram, TakesALongConversation) {
  std::vector<ChatMessage> messages;
  for (int i = 0; i < 2000; ++i) {
    messages.push_back({i % 2 == 0 ? "user" : "assistant", std::string(500, 'a')});
  }
  const std::size_t size = 1000 * (6 + 500) + 1000 * (11 + 500);
  EXPECT_EQ(
      render("{% for m in messages %}<{{ m.role }}>{{ m.content.strip() | trim }}{% endfor %}",
             messages)
          .size(),
      size);
  EXPECT_EQ(render("{% set ns = namespace(text='') %}{% for m in messages %}"
                   "{% set ns.text = ns.text ~ '<' ~ m.role ~ '>' ~ m.content %}{% endfor %}"
                   "{{ ns.text }}",
                   messages)
                .size(),
            size);
}

}  // namespace
}  // namespace tessera::test
