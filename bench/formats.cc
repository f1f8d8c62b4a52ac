// The error of each number format in a layer's output: ||x W'^T - x W^T|| / ||x W^T||, where W' is
// W packed and decoded, and x is normal. It is measured for a 4096 x 4096 layer of normal weights
// and for the linear layers of a checkpoint. Writes a table (docs/results/formats_table.md).
#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "core/fail.h"
#include "core/philox.h"
#include "model/checkpoint/checkpoint.h"
#include "quant/format_table.h"
#include "tessera/buffer.h"
#include "tessera/context.h"
#include "tessera/linear.h"
#include "tessera/quant.h"

namespace {

using namespace tessera;

constexpr std::int64_t kRows = 64;    // of x
constexpr std::int64_t kSide = 4096;  // of the layer of normal weights

struct Packing {
  std::string name;
  QuantizeOptions options;

  // The error of Humming's encoder on normal weights, measured elsewhere.
  const char* humming() const {
    if (name == "nvfp4") return "0.098";
    if (name == "mxfp4") return "0.118";
    return name == "int4, groups of 128" ? "0.106" : "-";
  }
};

std::string text(const quant::FormatEntry& format, const QuantizeOptions& options) {
  std::string result(name(format.info.format));
  if (options.zero_point) result += " with zero points";
  if (format.has_fixed_blocks()) return result;
  if (options.group == 0) return result + ", by rows";
  return result + ", groups of " + std::to_string(options.group);
}

// Every format in its default group, and int4 in others too.
std::vector<Packing> every_packing() {
  std::vector<Packing> packings;
  for (const quant::FormatEntry& format : quant::packed_formats()) {
    const auto add = [&](std::int64_t group, bool zero_point) {
      const QuantizeOptions options{
          .format = format.info.format, .group = group, .zero_point = zero_point};
      packings.push_back({text(format, options), options});
    };
    const bool int4 = format.info.format == Format::int4;
    if (int4) add(32, false);
    add(format.info.default_group, false);
    if (int4) add(128, true);
  }
  return packings;
}
const std::vector<Packing> kPackings = every_packing();

// An f32 matrix on the host.
struct Matrix {
  Buffer buffer;
  Tensor view;

  Matrix(std::int64_t rows, std::int64_t cols)
      : buffer(DType::f32, {rows, cols}), view(buffer.tensor(DType::f32, {rows, cols})) {}
};

Matrix normal(std::int64_t rows, std::int64_t cols, std::uint64_t seed) {
  constexpr double kTurn = 6.283185307179586;
  Matrix made(rows, cols);
  auto* const to = made.view.ptr<float>();
  for (std::int64_t i = 0; i < rows * cols; ++i) {
    const PhiloxWords words = philox(seed, {static_cast<std::uint32_t>(i), 0, 0, 1});
    const double radius = std::sqrt(-2.0 * std::log((words[0] + 1.0) / 4294967297.0));
    to[i] = static_cast<float>(radius * std::cos(kTurn * words[1] / 4294967296.0));
  }
  return made;
}

// Sums of squares over all layers that were added.
struct Error {
  double difference = 0, size = 0;
  double relative() const { return std::sqrt(difference / size); }
};

class Table {
 public:
  // Adds a layer's error to a column, for every packing.
  void add(std::size_t column, const Tensor& weight, ScaleSearch search) {
    const std::int64_t out = weight.shape[0], in = weight.shape[1];
    Matrix dense(out, in), decoded(out, in), exact(kRows, out), found(kRows, out);
    dequantize(ctx_, Weight::dense(weight), dense.view);
    const Matrix x = normal(kRows, in, 2);
    linear(ctx_, {.x = x.view, .weight = Weight::dense(dense.view), .out = exact.view});
    for (std::size_t p = 0; p < std::size(kPackings); ++p) {
      QuantizeOptions options = kPackings[p].options;
      options.search = search;
      dequantize(ctx_, quantize(ctx_, dense.view, options).weight, decoded.view);
      linear(ctx_, {.x = x.view, .weight = Weight::dense(decoded.view), .out = found.view});
      Error& error = errors_.at(column).at(p);
      for (std::int64_t i = 0; i < kRows * out; ++i) {
        const double value = exact.view.ptr<float>()[i];
        const double off = found.view.ptr<float>()[i] - value;
        error.difference += off * off;
        error.size += value * value;
      }
    }
  }
  // `layers`: what the column was measured on, for the text below the table.
  std::size_t column(const std::string& title, const std::string& layers) {
    titles_.push_back(title);
    layers_ += (layers_.empty() ? "" : "; ") + title + ": " + layers;
    errors_.emplace_back(std::size(kPackings));
    return titles_.size() - 1;
  }

  void write(std::FILE* to) const {
    std::fprintf(
        to,
        "# What a number format costs in a layer's output\n\n"
        "The error is ||x W'^T - x W^T|| / ||x W^T||, where W' is W packed and decoded, and x is "
        "normal "
        "(64 tokens).\nScales are chosen by least squares (the default), except in the second "
        "column of "
        "errors. Made by\n`bench_formats --model ../shared/models/stories15M --out "
        "docs/results/formats_table.md` on any machine: the\nencoders give the same bits "
        "everywhere. "
        "Real weights are those of stories15M (f16, 288 wide, so far from\n4096 x 4096); the "
        "errors of "
        "a column's layers are taken together. Humming's figures are those of its own\nencoder on "
        "normal weights, measured elsewhere.\n\n");
    std::fprintf(to, "| format | bits per weight |");
    for (const std::string& title : titles_) std::fprintf(to, " %s |", title.c_str());
    std::fprintf(to, " Humming |\n|---|---|");
    for (std::size_t c = 0; c < titles_.size(); ++c) std::fprintf(to, "---|");
    std::fprintf(to, "---|\n");
    for (std::size_t p = 0; p < std::size(kPackings); ++p) {
      const double bytes = static_cast<double>(packed_bytes(kPackings[p].options, kSide, kSide));
      std::fprintf(to, "| %s | %.3f |", kPackings[p].name.c_str(),
                   8 * bytes / double{kSide * kSide});
      for (const auto& column : errors_) std::fprintf(to, " %.4f |", column[p].relative());
      std::fprintf(to, " %s |\n", kPackings[p].humming());
    }
    std::fprintf(to, "\n%s.\n", layers_.c_str());
  }

 private:
  Context ctx_{{.threads = 0}};
  std::vector<std::string> titles_;
  std::string layers_;
  std::vector<std::vector<Error>> errors_;  // of each column, by packing
};

// Adds the matrices of a checkpoint whose names contain one of these words.
void add_layers(Table& table, const model::Checkpoint& checkpoint, const std::string& title,
                const std::vector<std::string>& words) {
  std::vector<Tensor> layers;
  for (const model::StoredTensor& stored : checkpoint.tensors()) {
    bool named = false;
    for (const std::string& word : words) named |= stored.name.find(word) != std::string::npos;
    if (named && stored.shape.size() == 2) layers.push_back(stored.tensor());
  }
  if (layers.empty()) return;
  const std::size_t column = table.column(title, std::to_string(layers.size()) + " of " +
                                                     std::to_string(layers[0].shape[0]) + " x " +
                                                     std::to_string(layers[0].shape[1]));
  for (const Tensor& layer : layers) table.add(column, layer, ScaleSearch::least_squares);
}

void run(const std::string& model, std::FILE* to) {
  Table table;
  const Matrix weight = normal(kSide, kSide, 1);
  table.add(table.column("normal", "4096 x 4096"), weight.view, ScaleSearch::least_squares);
  table.add(table.column("scales from the largest", "the same"), weight.view,
            ScaleSearch::from_max);
  if (!model.empty()) {
    const auto checkpoint = model::Checkpoint::open(model);
    add_layers(table, *checkpoint, "MLP in", {"mlp.gate_proj", "mlp.up_proj"});
    add_layers(table, *checkpoint, "MLP out", {"mlp.down_proj"});
    add_layers(table, *checkpoint, "attention", {"q_proj", "k_proj", "v_proj", "o_proj"});
    add_layers(table, *checkpoint, "head", {"embed_tokens", "lm_head"});
  }
  table.write(to);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("A table of the relative output error of a layer in each number format");
  std::string model, out;
  app.add_option("--model", model, "A checkpoint whose layers are measured too");
  app.add_option("--out", out, "The file for the table (default: the terminal)");
  try {
    app.parse(argc, argv);
    std::FILE* to = out.empty() ? stdout : std::fopen(out.c_str(), "w");
    if (to == nullptr) fail(ErrorCode::invalid_argument, "{} cannot be written", out);
    run(model, to);
    if (to != stdout) std::fclose(to);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_formats: %s\n", error.what());
    return 1;
  }
  return 0;
}
