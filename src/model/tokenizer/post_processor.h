// The special tokens that a model wants around a text: <s>, [CLS] ... [SEP].
#pragma once

#include <cstdint>
#include <vector>

#include "model/tokenizer/vocabulary.h"

namespace tessera::model {

struct PostProcessor {
  std::vector<std::int32_t> frame{kNoToken};  // kNoToken stands for the text's own ids

  std::vector<std::int32_t> operator()(std::vector<std::int32_t> ids) const;
};

}  // namespace tessera::model
