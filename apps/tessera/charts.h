// Plots as SVG, for the pages of --html and for docs/results. They need nothing from outside, and
// follow the reader's choice of light or dark.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "profile/ceilings.h"

namespace tessera::app {

// A piece of work on the roofline: how much it computes for a byte, and how fast it did.
struct RooflinePoint {
  std::string label;
  double flops_per_byte = 0;
  double flops_per_second = 0;
};
// Both axes in powers of ten. The roof is the lower of bandwidth times intensity and rate; the
// rates of f32 and of the fastest products are both drawn. Work without flops has no place here.
// More points than a few are numbered from 1 instead of labelled.
std::string roofline_svg(const std::string& title, const std::vector<RooflinePoint>& points,
                         const profile::Ceilings& ceilings);

struct ChartBar {
  std::string label;
  double value = 0;
  std::string text;      // behind the bar
  bool accented = true;  // ours; peers are muted
};
std::string bars_svg(const std::string& title, const std::string& note,
                     const std::vector<ChartBar>& bars);

}  // namespace tessera::app
