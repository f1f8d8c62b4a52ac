// What a sequence needs for its next step, found before anything of the sequence changes. The
// counts of the pool have changed already, so that the sequences of a step see each other's plans:
// what leaves can be taken by another, and of two that share a page only the first copies it.
#pragma once

#include <cstdint>

#include "tessera/page_pool.h"

namespace tessera {

struct CacheSequence::Plan {
  std::int64_t leaving = 0;     // pages of the line, from its beginning, that leave it
  std::int64_t line_begin = 0;  // after that
  std::int64_t new_sinks = 0, new_line = 0;
  bool recycles = false;  // the last page that leaves is the first new one of the line
  // The page that the next token goes into, if the sequence holds it already: its place among the
  // sinks' pages, or in the line after that; -1: there is none.
  std::int64_t sink_written = -1, line_written = -1;
  std::int32_t copied = -1;  // the page that is shared and will be written to
  bool forgets = false;      // the page that will be written to is not shared, but can be found

  // What it takes from the pool, and what it gives back before.
  std::int64_t pages() const {
    return new_sinks + new_line - (recycles ? 1 : 0) + (copied >= 0 ? 1 : 0);
  }
  std::int64_t released() const { return leaving - (recycles ? 1 : 0); }
};

}  // namespace tessera
