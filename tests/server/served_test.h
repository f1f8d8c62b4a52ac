// A model that is served, as far as requests and answers need one: a tokenizer and templates.
#pragma once

#include <gtest/gtest.h>

#include "server/served_model.h"
#include "support/files.h"

namespace tessera::server {

class ServedTest : public testing::Test {
 protected:
  ServedTest() {
    config_.vocab = tokenizer_.vocab_size();
    config_.max_positions = 512;
  }

  Tokenizer tokenizer_ =
      Tokenizer::from_file(test::data_path("tokenizers/tiny-gpt2.tokenizer.json"));
  ModelConfig config_{};
  PromptEncoder prompts_{tokenizer_, config_, test::data_path("tokenizers")};
  ChatEncoder chat_{prompts_, chat_template("chatml")};
  ServedModel served_{.name = "tiny",
                      .created = 0,
                      .engine = nullptr,
                      .context = 512,
                      .config = config_,
                      .tokenizer = tokenizer_,
                      .prompts = prompts_,
                      .chat = &chat_};
};

}  // namespace tessera::server
