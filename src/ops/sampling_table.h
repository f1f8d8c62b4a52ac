// The one table of sampling options that are numbers. All code that checks, parses, passes on or
// prints them loops over it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "tessera/sample.h"
#include "tessera/sampling_options.h"

namespace tessera {

struct SamplingOption {
  std::string_view name;  // the field's: "top_p"; the flag is --top-p
  // The field, a number or a count.
  double SamplingOptions::*number = nullptr;
  std::int64_t SamplingOptions::*count = nullptr;
  // The field of sample(), where the draw itself has the option.
  double SampleArgs::*drawn_number = nullptr;
  std::int64_t SampleArgs::*drawn_count = nullptr;
  // The values that make sense.
  double lowest, highest;
  bool above_lowest = false;  // the lowest itself is not accepted
  std::string_view accepted;  // in a sentence: "it must be ..."
  std::string_view help;

  bool accepts(double value) const;
  bool is_drawn() const { return drawn_number || drawn_count; }
  double value(const SamplingOptions& options) const;
  double value(const SampleArgs& args) const;  // of an option that sample() has
};

std::span<const SamplingOption> sampling_table();

// Copies the options that sample() takes.
void copy_draw_options(const SamplingOptions& from, SampleArgs& to);

}  // namespace tessera
