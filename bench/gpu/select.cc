// argmax() and top_k() over rows as long as vocabularies.
#include "tessera/select.h"

#include <memory>
#include <string>
#include <vector>

#include "commands.h"
#include "noise.h"
#include "options.h"
#include "row.h"
#include "timer.h"

namespace tessera::bench {
namespace {

struct SelectOptions {
  std::vector<std::string> shapes{"1x50304", "1x128256", "1x151936", "16x128256"};  // rows x width
  std::vector<std::int64_t> ks{1, 50};
  std::vector<std::string> dtypes{"f32"};
};

// k = 1 means argmax.
void run_select(Context& ctx, const Noise& noise, const Ceilings& ceilings, const Shape& shape,
                std::int64_t k, DType dtype) {
  std::vector<Matrix> rows;
  const int copies = copies_beyond_cache(shape.first * shape.second * size_of(dtype), 32);
  for (int i = 0; i < copies; ++i) {
    rows.push_back(noise.matrix(dtype, shape.first, shape.second, static_cast<std::uint32_t>(i)));
  }
  const Buffer values(DType::f32, {shape.first, k}, ctx.device());
  const Buffer indices(DType::i32, {shape.first, k}, ctx.device());
  const auto call = [&](int i) {
    const Tensor x = rows[static_cast<std::size_t>(i)].view;
    if (k == 1) return argmax(ctx, {.x = x, .indices = indices.tensor(DType::i32, {shape.first})});
    top_k(ctx, {.x = x,
                .values = values.tensor(dtype, {shape.first, k}),
                .indices = indices.tensor(DType::i32, {shape.first, k})});
  };
  const TracedCall traced = trace_call(ctx, [&] { call(0); });
  const Time time = time_calls(ctx, copies, call);
  Row row{{"op", k == 1 ? "argmax" : "top_k"},
          {"dtype", name(dtype)},
          {"rows", shape.first},
          {"width", shape.second},
          {"k", k}};
  add_time(row, time);
  row["bytes"] = traced.bytes;
  row["floor"] = rounded(ceilings.floor_us(traced.bytes), 3);
  print(row);
}

void run_select_rows(const SelectOptions& options) {
  Context ctx({.device = Device::cuda()});
  const Noise noise(ctx, 1.f);
  const Ceilings ceilings = measure_ceilings(ctx);
  print(ceilings);
  for (const std::string& shape : options.shapes) {
    for (const std::string& dtype : options.dtypes) {
      for (const std::int64_t k : options.ks) {
        run_select(ctx, noise, ceilings, parse_shape(shape), k, parse_dtype(dtype));
      }
    }
  }
}

}  // namespace

void add_select(CLI::App& app) {
  const auto options = std::make_shared<SelectOptions>();
  CLI::App* command = app.add_subcommand("select", "argmax() and top_k() over a vocabulary");
  command->add_option("--shapes", options->shapes, "Rows x width")->delimiter(',');
  command->add_option("--k", options->ks, "1 for argmax, more for top_k")->delimiter(',');
  command->add_option("--dtypes", options->dtypes, "f32, f16, bf16")->delimiter(',');
  command->callback([options] { run_select_rows(*options); });
}

}  // namespace tessera::bench
