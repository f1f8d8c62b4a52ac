#include "model/checkpoint/json.h"

#include <gtest/gtest.h>

#include <string>

#include "support/files.h"
#include "support/refusal.h"
#include "support/sanitizers.h"

namespace tessera::model {
namespace {

using test::refuses;

TEST(ParseJson, BuildsTheTree) {
  const Json json =
      parse_json(R"({"a": [1, -2, 3.5, true, null, "x\u00e9"], "b": {"c": {}}})", "f");
  EXPECT_EQ(json.dump(), R"({"a":[1,-2,3.5,true,null,"xé"],"b":{"c":{}}})");
  EXPECT_EQ(parse_json(" 7 ", "f"), 7);
}

TEST(ParseJson, NamesTheFileTheByteAndTheReason) {
  const auto parse = [](std::string text) { return [text] { parse_json(text, "c.json"); }; };
  EXPECT_TRUE(refuses(parse("{\"a\": }"),
                      "c.json: not valid JSON at byte 7: unexpected '}'; expected '[', '{', or a "
                      "literal",
                      ErrorCode::file));
  EXPECT_TRUE(refuses(parse("{\"a\": NaN}"), "c.json: not valid JSON at byte 7: invalid literal",
                      ErrorCode::file));
  EXPECT_TRUE(refuses(parse("[\"\xff\"]"),
                      "c.json: not valid JSON at byte 3: invalid string: ill-formed UTF-8 byte",
                      ErrorCode::file));
  EXPECT_TRUE(refuses(parse("[1e999]"), "c.json: not valid JSON at byte 6: a number is too large",
                      ErrorCode::file));
  EXPECT_TRUE(refuses(parse(""),
                      "c.json: not valid JSON at byte 1: unexpected end of input; expected '[', "
                      "'{', or a literal",
                      ErrorCode::file));
  EXPECT_TRUE(refuses(parse("{} x"),
                      "c.json: not valid JSON at byte 4: invalid literal; expected "
                      "end of input",
                      ErrorCode::file));
}

// The text that was last read may hold the very words of the message, and bytes that no terminal
// should get.
TEST(ParseJson, DoesNotRepeatTheTextItLastRead) {
  const std::string hostile = "\"'; expected \x7f - ; last read: '\n";
  const std::string reason =
      "invalid string: control character U+000A (LF) must be escaped to \\u000A or \\n";
  const auto message = [](const std::string& text) -> std::string {
    try {
      parse_json(text, "c.json");
    } catch (const Error& error) {
      return error.what();
    }
    return "read without complaint";
  };
  EXPECT_EQ(message("[" + hostile), "c.json: not valid JSON at byte 33: " + reason);
  EXPECT_EQ(message("{} " + hostile),
            "c.json: not valid JSON at byte 35: " + reason + "; expected end of input");
}

TEST(ParseJson, RefusesAKeyThatAppearsTwice) {
  EXPECT_TRUE(
      refuses([] { parse_json(R"({"x": {"a\n": 1, "a\n": 1}})", "c.json"); },
              "c.json: the key \"a\\x0a\" appears twice in one object; each may appear once",
              ErrorCode::file));
  parse_json(R"([{"a": 1}, {"a": {"a": 1}}])", "c.json");  // allowed in different objects
}

TEST(ParseJson, RefusesDeepNesting) {
  const auto nested = [](std::size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_TRUE(parse_json(nested(64), "c.json").is_array());
  const std::string text = "c.json: JSON nested deeper than 64 levels; no model needs that";
  EXPECT_TRUE(refuses([&] { parse_json(nested(65), "c.json"); }, text, ErrorCode::file));
  EXPECT_TRUE(
      refuses([&] { parse_json(std::string(5'000'000, '['), "c.json"); }, text, ErrorCode::file));
}

TEST(ParseJson, RefusesAFloodOfValues) {
  if (test::kSanitized) GTEST_SKIP() << "16 s for a comparison of two numbers";
  std::string text = "[0";
  for (int i = 0; i < 10'000'000; ++i) text += ",0";
  EXPECT_TRUE(refuses([&] { parse_json(text + "]", "c.json"); },
                      "c.json: more than 10000000 JSON values; no model has so many",
                      ErrorCode::file));
}

TEST(ReadJsonFile, RefusesWhatIsNoReadableFile) {
  const test::TemporaryFolder folder;
  const std::string path = (folder.path() / "c.json").string();
  const auto read = [&] { read_json_file(path, 10); };
  EXPECT_TRUE(refuses(read, "there is no file " + path, ErrorCode::file));
  test::write_text(path, "");
  EXPECT_TRUE(refuses(read, path + " is empty", ErrorCode::file));
  test::write_text(path, "{        }");
  EXPECT_NO_THROW(read());
  test::write_text(path, "{         }");
  EXPECT_TRUE(refuses(read, path + " has 11 bytes; such a file has at most 10", ErrorCode::file));
  EXPECT_TRUE(refuses([&] { read_json_file(folder.path(), 10); },
                      folder.path().string() + " is a folder; a file is needed here",
                      ErrorCode::file));
  EXPECT_TRUE(refuses([&] { read_json_file("/dev/null", 10); },
                      "/dev/null is a pipe or a device; a regular file is needed here",
                      ErrorCode::file));
}

class JsonViewTest : public testing::Test {
 protected:
  const Json json_ = parse_json(R"({
    "size": 64, "whole": 64.0, "half": 0.5, "text": "64", "yes": true, "none": null, "list": ["a", "b"],
    "mixed": ["a", 2], "object": {"inner": "x"}, "huge": 4611686018427387904, "max": 18446744073709551615})",
                                "c.json");
  const JsonView view_{json_, "c.json"};
};

TEST_F(JsonViewTest, GivesWhatIsThere) {
  EXPECT_EQ(view_.integer("size", 1, 64), 64);
  EXPECT_EQ(view_.integer("whole", 1, 64), 64);
  EXPECT_EQ(view_.optional_number("half"), 0.5);
  EXPECT_EQ(view_.optional_number("size"), 64.0);
  EXPECT_EQ(view_.string("text"), "64");
  EXPECT_EQ(view_.optional_boolean("yes"), true);
  EXPECT_EQ(view_.strings("list"), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(view_.optional_object("object")->string("inner"), "x");
}

TEST_F(JsonViewTest, TakesNullAsMissing) {
  for (const char* key : {"none", "absent"}) {
    EXPECT_FALSE(view_.has(key));
    EXPECT_EQ(view_.find(key), nullptr);
    EXPECT_FALSE(view_.optional_integer(key, 0, 1));
    EXPECT_FALSE(view_.optional_number(key));
    EXPECT_FALSE(view_.optional_boolean(key));
    EXPECT_FALSE(view_.optional_string(key));
    EXPECT_FALSE(view_.optional_object(key));
    EXPECT_TRUE(view_.strings(key).empty());
  }
  EXPECT_TRUE(refuses([&] { view_.integer("none", 1, 9); },
                      "c.json: none is missing, it must be a whole number from 1 to 9",
                      ErrorCode::file));
  EXPECT_TRUE(refuses([&] { view_.string("absent"); },
                      "c.json: absent is missing, it must be a string", ErrorCode::file));
}

TEST_F(JsonViewTest, SaysWhatIsWrong) {
  const auto integer = [&](const char* key) { return [&, key] { view_.integer(key, 1, 9); }; };
  const std::string range = ", it must be a whole number from 1 to 9";
  EXPECT_TRUE(refuses(integer("text"), "c.json: text is \"64\"" + range, ErrorCode::file));
  EXPECT_TRUE(refuses(integer("size"), "c.json: size is 64" + range, ErrorCode::file));
  EXPECT_TRUE(refuses(integer("half"), "c.json: half is 0.5" + range, ErrorCode::file));
  EXPECT_TRUE(refuses(integer("yes"), "c.json: yes is true" + range, ErrorCode::file));
  EXPECT_TRUE(
      refuses(integer("huge"), "c.json: huge is 4611686018427387904" + range, ErrorCode::file));
  EXPECT_TRUE(
      refuses(integer("max"), "c.json: max is 18446744073709551615" + range, ErrorCode::file));
  EXPECT_TRUE(refuses([&] { view_.optional_number("list"); },
                      "c.json: list is an array of 2, it must be a number", ErrorCode::file));
  EXPECT_TRUE(refuses([&] { view_.optional_boolean("size"); },
                      "c.json: size is 64, it must be true or false", ErrorCode::file));
  EXPECT_TRUE(refuses([&] { view_.optional_string("object"); },
                      "c.json: object is an object, it must be a string", ErrorCode::file));
  EXPECT_TRUE(refuses([&] { view_.strings("mixed"); }, "c.json: mixed[1] is 2, it must be a string",
                      ErrorCode::file));
  EXPECT_TRUE(refuses([&] { view_.optional_object("object")->string("outer"); },
                      "c.json, object: outer is missing, it must be a string", ErrorCode::file));
  EXPECT_TRUE(refuses([&] { JsonView(json_["list"], "c.json"); },
                      "c.json is an array of 2, it must be an object", ErrorCode::file));
}

}  // namespace
}  // namespace tessera::model
