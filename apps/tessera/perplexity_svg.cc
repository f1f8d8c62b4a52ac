// The plot of --by-position: one panel of nlls and, with several settings, one of differences.
//
//   title
//   legend, a line for each setting
//   +------------------------------+
//   |  nll                         |
//   +------------------------------+
//   |  difference to the first     |   bands: plus and minus one standard error
//   +------------------------------+
//    0        position
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "markup.h"
#include "perplexity_positions.h"

namespace tessera::app {
namespace {

constexpr double kWidth = 860, kLeft = 72, kRight = 24, kPanel = 240, kGap = 34, kFoot = 52;
constexpr double kHead = 56, kLegendLine = 19, kLegendGap = 12;

// Okabe and Ito's colours, which colour-blind readers tell apart.
constexpr std::array<std::string_view, 7> kColours = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                      "#e69f00", "#56b4e9", "#000000"};
std::string_view colour_of(std::size_t series) { return kColours[series % kColours.size()]; }

// "12,000"
std::string with_commas(std::int64_t number) {
  if (number < 1000) return fmt::format("{}", number);
  return fmt::format("{},{:03}", with_commas(number / 1000), number % 1000);
}

// 1, 2 or 5 times a power of ten, so that the range has at most `most` steps.
double step_for(double range, int most) {
  const double power = std::pow(10.0, std::floor(std::log10(range / most)));
  for (const double step : {1.0, 2.0, 5.0}) {
    if (step * power * most >= range) return step * power;
  }
  return 10 * power;
}

// From values to pixels along one axis.
struct Axis {
  double low, high, from, to, step;

  Axis(double lowest, double highest, double first, double last, int most_steps)
      : from(first), to(last) {
    if (!(highest > lowest)) highest = lowest + 1;
    step = step_for(highest - lowest, most_steps);
    low = std::floor(lowest / step) * step;
    high = std::ceil(highest / step) * step;
  }
  double at(double value) const { return from + (value - low) / (high - low) * (to - from); }
  int steps() const { return static_cast<int>(std::lround((high - low) / step)); }
  double tick(int i) const { return low + i * step; }
};

using Buckets = std::vector<PositionBucket>;
const Buckets& nlls(const PositionSeries& series) { return series.nll; }
const Buckets& differences(const PositionSeries& series) { return series.difference; }

class Drawing {
 public:
  explicit Drawing(const PositionPlot& plot)
      : plot_(plot),
        x_(0, last_position(plot), kLeft, kWidth - kRight, 10),
        top_(kHead + kLegendLine * static_cast<double>(plot.series.size()) + kLegendGap) {
    x_.high = last_position(plot);  // the plot ends where the text does
  }

  std::string text() {
    const bool both = plot_.series.size() > 1;
    const double height = top_ + kPanel + (both ? kPanel + kGap : 0) + kFoot;
    out_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
        "height=\"{1}\" font-family=\"Helvetica, Arial, sans-serif\" font-size=\"13\">\n"
        "<rect width=\"{0}\" height=\"{1}\" fill=\"#ffffff\"/>\n",
        kWidth, height);
    label(kLeft, 24, "start", plot_.title, "font-size=\"16\" font-weight=\"bold\"");
    label(kLeft, 42, "start", plot_.subtitle, "fill=\"#555555\"");
    legend();
    panel(top_, nlls, false, "nll, nats per token");
    if (both) {
      panel(top_ + kPanel + kGap, differences, true, "difference to the first, nats");
    }
    label((kLeft + kWidth - kRight) / 2, height - 12, "middle", "position in the text, tokens");
    return out_ + "</svg>\n";
  }

 private:
  static double last_position(const PositionPlot& plot) {
    double last = 1;
    for (const PositionSeries& series : plot.series) {
      if (!series.nll.empty()) last = std::max(last, static_cast<double>(series.nll.back().end));
    }
    return last;
  }

  void label(double x, double y, std::string_view anchor, std::string_view text,
             std::string_view style = "fill=\"#222222\"") {
    out_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" {}>{}</text>\n", x, y,
                        anchor, style, escape_markup(text));
  }
  void line(double x1, double y1, double x2, double y2, std::string_view style) {
    out_ += fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" {}/>\n", x1,
                        y1, x2, y2, style);
  }

  void legend() {
    for (std::size_t i = 0; i < plot_.series.size(); ++i) {
      const double y = kHead + kLegendLine * (static_cast<double>(i) + 0.4);
      line(kLeft, y, kLeft + 26, y, fmt::format("stroke=\"{}\" stroke-width=\"3\"", colour_of(i)));
      label(kLeft + 34, y + 4, "start", plot_.series[i].label);
    }
  }

  // Of all series: room for bands where they are drawn, and for zero where that is the measure.
  template <typename Of>
  Axis y_axis(double top, Of of, bool bands) const {
    double low = bands ? 0 : 1e300, high = bands ? 0 : -1e300;
    for (const PositionSeries& series : plot_.series) {
      for (const PositionBucket& bucket : of(series)) {
        const double error = bands ? bucket.error : 0;
        low = std::min(low, bucket.mean - error);
        high = std::max(high, bucket.mean + error);
      }
    }
    if (low > high) low = high = 0;
    return {low, high, top + kPanel, top, 6};
  }

  void grid(double top, const Axis& y) {
    for (int i = 0; i <= y.steps(); ++i) {
      const double value = y.tick(i), at = y.at(value);
      line(kLeft, at, kWidth - kRight, at, "stroke=\"#dddddd\"");
      const int digits = std::max(0, -static_cast<int>(std::floor(std::log10(y.step) + 1e-9)));
      label(kLeft - 8, at + 4, "end", fmt::format("{:.{}f}", value + 0.0, digits));
    }
    for (int i = 0; x_.tick(i) <= x_.high * (1 + 1e-9); ++i) {
      const double at = x_.at(x_.tick(i));
      line(at, top + kPanel, at, top + kPanel + 5, "stroke=\"#222222\"");
      label(at, top + kPanel + 19, "middle", with_commas(std::llround(x_.tick(i))));
    }
    out_ += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"none\" "
        "stroke=\"#222222\"/>\n",
        kLeft, top, kWidth - kLeft - kRight, kPanel);
  }

  double middle(const PositionBucket& bucket) const {
    return x_.at(static_cast<double>(bucket.begin + bucket.end) / 2);
  }

  template <typename Of>
  void panel(double top, Of of, bool bands, const std::string& title) {
    const Axis y = y_axis(top, of, bands);
    grid(top, y);
    if (bands) line(kLeft, y.at(0), kWidth - kRight, y.at(0), "stroke=\"#222222\"");
    for (std::size_t i = 0; i < plot_.series.size(); ++i) {
      const Buckets& buckets = of(plot_.series[i]);
      if (bands) band(buckets, y, colour_of(i));
      std::string points;
      for (const PositionBucket& bucket : buckets) {
        points += fmt::format("{:.1f},{:.1f} ", middle(bucket), y.at(bucket.mean));
      }
      out_ += fmt::format(
          "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.8\" "
          "stroke-linejoin=\"round\"/>\n",
          points, colour_of(i));
    }
    const double middle_y = top + kPanel / 2;
    out_ += fmt::format(
        "<text x=\"18\" y=\"{0:.1f}\" text-anchor=\"middle\" transform=\"rotate(-90 18 {0:.1f})\" "
        "fill=\"#222222\">{1}</text>\n",
        middle_y, escape_markup(title));
  }

  void band(const Buckets& buckets, const Axis& y, std::string_view colour) {
    std::string points;
    for (const PositionBucket& bucket : buckets) {
      points += fmt::format("{:.1f},{:.1f} ", middle(bucket), y.at(bucket.mean + bucket.error));
    }
    for (auto bucket = buckets.rbegin(); bucket != buckets.rend(); ++bucket) {
      points += fmt::format("{:.1f},{:.1f} ", middle(*bucket), y.at(bucket->mean - bucket->error));
    }
    out_ +=
        fmt::format("<polygon points=\"{}\" fill=\"{}\" fill-opacity=\"0.15\"/>\n", points, colour);
  }

  const PositionPlot& plot_;
  Axis x_;
  double top_;
  std::string out_;
};

}  // namespace

std::string to_svg(const PositionPlot& plot) { return Drawing(plot).text(); }

}  // namespace tessera::app
