// Files that are not what they should be, as a user meets them: pipes, loops of links, files
// without end, names that drive a terminal.
#include "support/files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "support/changed_checkpoint.h"
#include "support/model_folder.h"
#include "support/program.h"

namespace tessera::test {
namespace {

namespace fs = std::filesystem;

class Files : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return (files_.path() / name).string(); }
  // Expects a status and a part of what is printed on standard error.
  static void expect(const std::string& arguments, int status, const std::string& text) {
    const ProgramRun outcome = run_program(TESSERA_PROGRAM, arguments);
    EXPECT_EQ(outcome.status, status) << arguments << "\n" << outcome.err;
    EXPECT_NE(outcome.err.find(text), std::string::npos) << arguments << "\n" << outcome.err;
  }

  TemporaryFolder files_;
  const ModelFolder model_{"neox-serial-untied", TinyVocabulary::printable};
  const std::string quantize_ = "quantize --threads 1 --format fp8" + model_.option();
};

TEST_F(Files, PromptsAreRegularFilesOfALimitedSize) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  write_text(path("long"), "");
  fs::resize_file(path("long"), (std::uintmax_t{1} << 30) + 1);  // takes no room on disk
  fs::create_symlink(path("loop"), path("loop"));
  const std::string generate = "generate --max-tokens 1 --prompt-file ";
  const std::string kind = " is a pipe or a device; a regular file is needed here";
  expect(generate + path("pipe"), 1, path("pipe") + kind);
  expect(generate + "/dev/zero", 1, "/dev/zero" + kind);
  expect(generate + files_.path().string(), 1, " is a folder; a file is needed here");
  expect(generate + path("long"), 1, " has 1073741825 bytes; such a file has at most 1073741824");
  expect(generate + path("loop"), 1, ": Too many levels of symbolic links");
  expect("perplexity " + path("pipe"), 1, path("pipe") + kind);
  expect(quantize_ + " --plan auto --budget 60% --calibration " + path("pipe") + " --out " +
             path("out"),
         1, path("pipe") + kind);
}

TEST_F(Files, StandardInputMayBeAPipe) {
  const ProgramRun outcome =
      run_program(TESSERA_PROGRAM,
                  "generate --max-tokens 1 --json --prompt-file -" + model_.option(), "some words");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
}

TEST_F(Files, AChatTemplateIsARegularFile) {
  ASSERT_EQ(mkfifo((model_.path() / "chat_template.jinja").c_str(), 0600), 0);
  expect("chat" + model_.option(), 1,
         "chat_template.jinja is a pipe or a device; a regular file is needed here");
}

TEST_F(Files, AChatTemplateMayHaveANameThatIsNoText) {
  write_text(model_.path() / "tokenizer_config.json",
             R"({"chat_template": [{"name": 5, "template": "x"}, {"template": 7},
                 {"name": "default", "template": "<|im_start|>"}]})");
  const ProgramRun outcome = run_program(TESSERA_PROGRAM, "info --json" + model_.option());
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(nlohmann::json::parse(outcome.out)["chat_template"], "tokenizer_config.json");
}

TEST_F(Files, LoopsOfLinksAreNamed) {
  const std::string many = ": Too many levels of symbolic links";
  for (const char* name : {"generation_config.json", "tokenizer.json", "tokenizer_config.json"}) {
    const ModelFolder model("neox-serial-untied", TinyVocabulary::printable);
    fs::remove(model.path() / name);
    fs::create_symlink(model.path() / name, model.path() / name);
    expect("generate --prompt x --max-tokens 1" + model.option(), 1, name + many);
  }
  fs::create_symlink(path("loop"), path("loop"));
  expect("tokenize --text x --tokenizer " + path("loop"), 1, "cannot open " + path("loop") + many);
  expect(quantize_ + " --out " + path("loop"), 1, "cannot read " + path("loop") + many);
  EXPECT_TRUE(fs::is_symlink(path("loop")));
  expect("perplexity --text x --by-position " + path("loop/nll.csv"), 2, "there is no folder ");
}

TEST_F(Files, AnOutputThatCannotBeNamedIsRefusedAtOnce) {
  expect(quantize_ + " --out ''", 2, "--out '': must not be empty");
  const std::string bad = path("a\xff");
  expect(quantize_ + " --json --out '" + bad + "'", 2,
         "a\\xff\": must be UTF-8 with --json; choose another folder, or leave out --json");
  EXPECT_FALSE(fs::exists(bad));
  EXPECT_EQ(run_program(TESSERA_PROGRAM, quantize_ + " --out '" + bad + "'").status, 0);
}

// A name of a tensor could clear the screen.
TEST_F(Files, NamesFromFilesDoNotReachTheTerminal) {
  const fs::path weights = model_.path() / "model.safetensors";
  EditableFile file = read_editable(weights);
  file.add("\x1b[2Jevil\xc2\x9b.weight", "F32", {16, 16}, 4);
  file.write(weights);
  const auto print = [&](const std::string& arguments) {
    const ProgramRun outcome = run_program(TESSERA_PROGRAM, arguments);
    const std::string all = outcome.out + outcome.err;
    EXPECT_EQ(all.find('\x1b'), std::string::npos) << arguments;
    EXPECT_EQ(all.find("\xc2\x9b"), std::string::npos) << arguments;
    return all;
  };
  const std::string loaded = print("generate --prompt x --max-tokens 1" + model_.option());
  EXPECT_NE(loaded.find(R"(not used: "\x1b[2Jevil\xc2\x9b.weight")"), std::string::npos) << loaded;
  print("info" + model_.option());
  print(quantize_ + " --keep-dense none --out " + path("a"));
  print(quantize_ + " --plan auto --budget 60% --calibration-tokens 8 --out " + path("b"));
}

TEST_F(Files, NumbersThatLeaveTheirRangeAreRefusedByName) {
  const std::string generate = "generate --prompt x --max-tokens 1 ";
  expect(generate + "--repetition-penalty 1e-300", 2,
         "--repetition-penalty 1e-300: must be from 0.001 to 1000");
  expect(generate + "--presence-penalty=-1e300", 2, "must be from -1000000 to 1000000");
  for (const char* seed : {"18446744073709551616", "99999999999999999999", "-1", "1e3"}) {
    expect(generate + "--seed=" + seed, 2,
           std::string("--seed ") + seed + ": must be a whole number from 0 to ");
  }
}

TEST_F(Files, WeightsCanBeCopied) {
  const std::string generate =
      "generate --prompt 'some words' --max-tokens 8 --json" + model_.option();
  const auto text = [&](const std::string& option) {
    const ProgramRun outcome = run_program(TESSERA_PROGRAM, generate + option);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out)["text"];
  };
  EXPECT_EQ(text(" --no-mmap"), text(""));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they need endless addresses
TEST_F(Files, MemoryThatDoesNotSufficeIsASentence) {
  write_text(path("long"), "");
  fs::resize_file(path("long"), std::uintmax_t{1} << 30);
  // Less than the prompt has, and enough for CUDA's libraries.
  const std::string limited =
      "-c 'ulimit -v 1000000; \"$0\" generate --max-tokens 1 --prompt-file " + path("long") + "' " +
      TESSERA_PROGRAM;
  const ProgramRun outcome = run_program("/bin/sh", limited);
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.err.find("this command: the host does not have enough memory; free some"),
            std::string::npos)
      << outcome.err;
}
#endif

}  // namespace
}  // namespace tessera::test
