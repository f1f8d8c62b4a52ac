#include "model/tokenizer/post_processor.h"

namespace tessera::model {

std::vector<std::int32_t> PostProcessor::operator()(std::vector<std::int32_t> ids) const {
  if (frame.size() == 1 && frame.front() == kNoToken) return ids;
  std::vector<std::int32_t> framed;
  framed.reserve(ids.size() + frame.size());
  for (const std::int32_t id : frame) {
    if (id == kNoToken) {
      framed.insert(framed.end(), ids.begin(), ids.end());
    } else {
      framed.push_back(id);
    }
  }
  return framed;
}

}  // namespace tessera::model
