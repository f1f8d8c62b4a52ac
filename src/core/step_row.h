// A row of a decode step: the next token of one stream, and what the step's small tensors say about
// it. The row of the next token follows from it, without the host:
//
//   token, line_begin --StreamRules--> position, slot, length, hole
//
// The page table changes only where a token begins a page. A stream that drops tokens then takes
// its own oldest page, of which all tokens have left: its line of pages turns by one. Any other new
// page comes from the pool, and therefore from the host (src/cache/cache_sequence.cc).
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "core/stream_rules.h"

namespace tessera {

// The tensors of all rows, in one block.
struct StepRowTensors {
  std::int64_t* positions = nullptr;
  std::int32_t* slots = nullptr;
  std::int32_t* words = nullptr;  // the block, to which a row's places refer
};

// The numbers of one row.
struct StepRowNumbers {
  std::int64_t position = 0, slot = -1, length = 0, hole = 0;
};

struct StepRow {
  StreamRules rules{};
  std::int64_t token = -1;      // of its stream; -1: a row for nobody
  std::int64_t line_begin = 0;  // the first page of its line in the table
  // Places in the block: of its length, of its hole (-1: the call has none) and of its pages.
  std::int32_t length_at = 0, hole_at = -1, table_at = 0;
  std::int32_t pages = 0;  // in the table

  // Whether the next token goes into the page at the front of the line, which moves to its end.
  TESSERA_HOST_DEVICE bool turns() const {
    const std::int64_t next = token + 1;
    return rules.place(next, line_begin) == pages &&
           rules.line_page(rules.oldest(next)) > line_begin;
  }
  // Where its line lies in the block.
  TESSERA_HOST_DEVICE std::int64_t line_at() const { return table_at + rules.sink_pages(); }
  TESSERA_HOST_DEVICE std::int64_t line_end() const { return std::int64_t{table_at} + pages; }

  // Moves on to the next token. `turns`: what turns() returned.
  TESSERA_HOST_DEVICE void advance(bool turns) {
    ++token;
    if (turns) ++line_begin;
  }
  // The row's numbers in the tensors, once its pages are in place.
  TESSERA_HOST_DEVICE StepRowNumbers numbers(const std::int32_t* words) const {
    const std::int64_t oldest = rules.oldest(token), place = rules.place(token, line_begin);
    StepRowNumbers result;
    result.position = rules.position(token);
    // A token whose page is missing is not stored: the host has to write its step.
    result.slot =
        place < pages ? words[table_at + place] * rules.page_size() + rules.row(token) : -1;
    result.length = rules.length(oldest, token);
    result.hole = rules.hole_size(oldest, line_begin);
    return result;
  }
  TESSERA_HOST_DEVICE void write(const StepRowNumbers& numbers, const StepRowTensors& to,
                                 std::int64_t r) const {
    to.positions[r] = numbers.position;
    to.slots[r] = static_cast<std::int32_t>(numbers.slot);
    to.words[length_at] = static_cast<std::int32_t>(numbers.length);
    if (hole_at >= 0) to.words[hole_at + 1] = static_cast<std::int32_t>(numbers.hole);
  }
};
// The size of a StepRow in the memory that a kernel reads, in numbers of 8 bytes. It has no gaps:
// rows are compared as bytes.
inline constexpr std::int64_t kStepRowWords = 8;
static_assert(sizeof(StepRow) == kStepRowWords * sizeof(std::int64_t));

// Moves every row on to its next token, on the host.
inline void advance_rows(std::span<StepRow> rows, const StepRowTensors& tensors) {
  for (std::size_t r = 0; r < rows.size(); ++r) {
    StepRow& row = rows[r];
    if (row.token < 0) continue;
    const bool turns = row.turns();
    if (turns) {
      std::int32_t *const first = tensors.words + row.line_at(), *const end =
                                                                     tensors.words + row.line_end();
      std::rotate(first, first + 1, end);
    }
    row.advance(turns);
    row.write(row.numbers(tensors.words), tensors, static_cast<std::int64_t>(r));
  }
}

// The number of the draw after this one, with the same options. A draw at temperature 0 takes no
// random number, and the count stays.
TESSERA_HOST_DEVICE inline std::uint64_t next_draw(double temperature, std::uint64_t draw) {
  return temperature == 0 ? draw : draw + 1;
}

}  // namespace tessera
