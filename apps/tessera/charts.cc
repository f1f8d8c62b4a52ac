#include "charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "markup.h"

namespace tessera::app {
namespace {

// Of all plots: ink, paper and lines in both modes. Colours of Okabe and Ito, which colour-blind
// readers tell apart.
constexpr std::string_view kStyle =
    "<style>"
    ".t-paper{fill:#ffffff}.t-ink{fill:#1d2733}.t-soft{fill:#5b6875}.t-grid{stroke:#dfe4e9}"
    ".t-axis{stroke:#1d2733}.t-ours{fill:#0072b2}.t-peer{fill:#9aa8b5}"
    ".t-roof{stroke:#d55e00;fill:none}.t-roof2{stroke:#009e73;fill:none}"
    "@media (prefers-color-scheme: dark){.t-paper{fill:#14181d}.t-ink{fill:#e6eaee}"
    ".t-soft{fill:#a3afba}.t-grid{stroke:#323a43}.t-axis{stroke:#e6eaee}.t-ours{fill:#56b4e9}"
    ".t-peer{fill:#66727e}.t-roof{stroke:#e69f00}.t-roof2{stroke:#3fc39b}}"
    "</style>";

class Svg {
 public:
  Svg(double width, double height, const std::string& title) {
    out_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
        "height=\"{1}\" role=\"img\" aria-label=\"{2}\" font-family=\"system-ui, Helvetica, Arial, "
        "sans-serif\" font-size=\"13\">{3}\n<rect class=\"t-paper\" width=\"{0}\" "
        "height=\"{1}\"/>\n",
        width, height, escape_markup(title), kStyle);
    text(12, 22, "start", "t-ink", title, "font-size=\"15\" font-weight=\"600\"");
  }
  void text(double x, double y, std::string_view anchor, std::string_view kind,
            std::string_view words, std::string_view more = "") {
    out_ += fmt::format(
        "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" class=\"{}\" {}>{}</text>\n", x, y,
        anchor, kind, more, escape_markup(words));
  }
  void line(double x1, double y1, double x2, double y2, std::string_view kind, double width = 1) {
    out_ += fmt::format(
        "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" class=\"{}\" "
        "stroke-width=\"{}\"/>\n",
        x1, y1, x2, y2, kind, width);
  }
  void raw(const std::string& markup) { out_ += markup; }
  std::string end() const { return out_ + "</svg>\n"; }

 private:
  std::string out_;
};

// A logarithmic axis over whole powers of ten.
struct LogAxis {
  double low, high, from, to;  // exponents; pixels

  LogAxis(double least, double most, double first, double last)
      : low(std::floor(std::log10(least))),
        high(std::ceil(std::log10(most))),
        from(first),
        to(last) {
    if (high <= low) high = low + 1;
  }
  double at(double value) const {
    return from + (std::log10(value) - low) / (high - low) * (to - from);
  }
  double least() const { return std::pow(10, low); }
  double most() const { return std::pow(10, high); }
};

// "100 GFLOP/s" for 1e11
std::string rate_text(double flops) {
  if (flops >= 1e12) return fmt::format("{:g} TFLOP/s", flops * 1e-12);
  if (flops >= 1e9) return fmt::format("{:g} GFLOP/s", flops * 1e-9);
  return fmt::format("{:g} MFLOP/s", flops * 1e-6);
}

constexpr double kRoofWidth = 860, kRoofHeight = 460, kRoofLeft = 92, kRoofRight = 24,
                 kRoofTop = 66, kRoofFoot = 56;

void draw_roof(Svg& svg, const LogAxis& x, const LogAxis& y, double bandwidth, double rate,
               std::string_view kind) {
  const double ridge = rate / bandwidth;  // flops per byte
  const double start = std::max(x.least(), y.least() / bandwidth);
  svg.raw(
      fmt::format("<polyline points=\"{:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f}\" class=\"{}\" "
                  "stroke-width=\"2\"/>\n",
                  x.at(start), y.at(start * bandwidth), x.at(std::max(ridge, start)), y.at(rate),
                  x.at(x.most()), y.at(rate), kind));
}

void draw_grid(Svg& svg, const LogAxis& x, const LogAxis& y) {
  for (double e = x.low; e <= x.high + 0.5; e += 1) {
    const double at = x.at(std::pow(10, e));
    svg.line(at, kRoofTop, at, kRoofHeight - kRoofFoot, "t-grid");
    svg.text(at, kRoofHeight - kRoofFoot + 18, "middle", "t-soft",
             fmt::format("{:g}", std::pow(10, e)));
  }
  for (double e = y.low; e <= y.high + 0.5; e += 1) {
    const double at = y.at(std::pow(10, e));
    svg.line(kRoofLeft, at, kRoofWidth - kRoofRight, at, "t-grid");
    svg.text(kRoofLeft - 8, at + 4, "end", "t-soft", rate_text(std::pow(10, e)));
  }
  svg.text((kRoofLeft + kRoofWidth - kRoofRight) / 2, kRoofHeight - 14, "middle", "t-soft",
           "arithmetic for each byte, flops");
}

}  // namespace

std::string roofline_svg(const std::string& title, const std::vector<RooflinePoint>& points,
                         const profile::Ceilings& ceilings) {
  double x_low = 0.1, x_high = 100, y_low = ceilings.f32_rate / 1e3,
         y_high = std::max(ceilings.matrix_rate, ceilings.f32_rate);
  for (const RooflinePoint& point : points) {
    if (point.flops_per_second <= 0) continue;
    x_low = std::min(x_low, point.flops_per_byte), x_high = std::max(x_high, point.flops_per_byte);
    y_low = std::min(y_low, point.flops_per_second);
    y_high = std::max(y_high, point.flops_per_second);
  }
  const LogAxis x(x_low, x_high, kRoofLeft, kRoofWidth - kRoofRight);
  const LogAxis y(y_low, y_high, kRoofHeight - kRoofFoot, kRoofTop);
  Svg svg(kRoofWidth, kRoofHeight, title);
  svg.text(12, 42, "start", "t-soft",
           fmt::format("reads {:.1f} GB/s; f32 {} (orange); fastest products {} (green)",
                       ceilings.read_bandwidth * 1e-9,
                       rate_text(std::round(ceilings.f32_rate * 1e-9) * 1e9),
                       rate_text(std::round(ceilings.matrix_rate * 1e-9) * 1e9)));
  draw_grid(svg, x, y);
  draw_roof(svg, x, y, ceilings.read_bandwidth, ceilings.matrix_rate, "t-roof2");
  draw_roof(svg, x, y, ceilings.read_bandwidth, ceilings.f32_rate, "t-roof");
  // Labels that would lie on each other move down, in the order of points.
  constexpr std::size_t kMostLabels = 8;  // more points are numbered
  const bool numbered = points.size() > kMostLabels;
  const double label_width = numbered ? 20 : 170;
  std::vector<std::pair<double, double>> placed;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const RooflinePoint& point = points[i];
    if (point.flops_per_second <= 0) continue;
    const double at_x = x.at(point.flops_per_byte), at_y = y.at(point.flops_per_second);
    double label_y = at_y + 4;
    for (const auto& [other_x, other_y] : placed) {
      if (std::abs(other_x - at_x) < label_width && std::abs(other_y - label_y) < 13)
        label_y = other_y + 14;
    }
    placed.emplace_back(at_x, label_y);
    const bool right = numbered || at_x < kRoofWidth - 200;
    svg.raw(fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"5\" class=\"t-ours\"/>\n", at_x,
                        at_y));
    svg.text(at_x + (right ? 9 : -9), label_y, right ? "start" : "end", "t-ink",
             numbered ? fmt::format("{}", i + 1) : point.label, "font-size=\"11\"");
  }
  return svg.end();
}

std::string bars_svg(const std::string& title, const std::string& note,
                     const std::vector<ChartBar>& bars) {
  constexpr double kLabel = 250, kBar = 420, kValue = 190, kRow = 28, kHead = 56;
  double largest = 0;
  for (const ChartBar& bar : bars) largest = std::max(largest, bar.value);
  if (largest <= 0) largest = 1;
  Svg svg(kLabel + kBar + kValue, kHead + kRow * static_cast<double>(bars.size()) + 14, title);
  svg.text(12, 41, "start", "t-soft", note);
  double top = kHead;
  for (const ChartBar& bar : bars) {
    const double length = std::max(2.0, kBar * bar.value / largest);
    svg.text(kLabel - 10, top + 15, "end", "t-ink", bar.label);
    svg.raw(fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"19\" rx=\"3\" class=\"{}\"/>\n",
        kLabel, top, length, bar.accented ? "t-ours" : "t-peer"));
    svg.text(kLabel + length + 7, top + 15, "start", "t-ink", bar.text);
    top += kRow;
  }
  return svg.end();
}

}  // namespace tessera::app
