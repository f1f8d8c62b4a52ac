// The rules of a policy (core/stream_rules.h), checked, and the pages that a sequence needs under
// them.
#pragma once

#include <cstdint>

#include "core/stream_rules.h"
#include "tessera/page_pool.h"

namespace tessera {

class StreamLayout : public StreamRules {
 public:
  // Checks the sizes. `max_tokens` is for a full sequence.
  StreamLayout(const CachePolicy& policy, std::int64_t max_tokens, std::int64_t max_step,
               std::int64_t page_size);

  std::int64_t max_pages() const { return sink_pages() + line_pages_; }  // held at any time
  // The tokens of page i, where the sinks' pages and then the line's are counted.
  std::int64_t page_begin(std::int64_t i) const;
  std::int64_t page_end(std::int64_t i) const;

 private:
  std::int64_t line_pages_ = 0;
};

}  // namespace tessera
