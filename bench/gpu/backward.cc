// attention_backward() over whole sequences, against the arithmetic rate: 16k tokens in all, as
// many heads as a model of some width has.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "attention_inputs.h"
#include "commands.h"
#include "core/fail.h"
#include "cuda/attention/backward/choose.h"
#include "options.h"
#include "timer.h"

namespace tessera::bench {
namespace {

struct BackwardOptions {
  std::vector<std::int64_t> lengths{1024, 2048, 4096, 8192, 16384};
  std::vector<std::int64_t> dims{64, 128};
  std::vector<std::string> masks{"full", "causal"};
  std::vector<std::string> dtypes{"bf16"};
  std::int64_t tokens = 16384, width = 2048, kv_group = 1, window = 1024;
  std::string kernel{};
  bool deterministic = false;
};

Mask parse_mask(const std::string& text, std::int64_t window) {
  if (text == "full") return Mask::full();
  if (text == "causal") return Mask::causal();
  if (text == "window") return Mask::window(window - 1, 0);
  fail(ErrorCode::invalid_argument, "there is no mask {}; full, causal and window are accepted",
       text);
}

// A forward call with its log-sum-exp, and tensors for the gradients.
struct BackwardTensors {
  AttentionTensors forward, gradients;  // gradients.out is d_out
  Matrix lse;

  BackwardTensors(const Noise& noise, const AttentionShape& s, std::uint32_t seed)
      : forward(make_tensors(noise, s, 2 * seed)),
        gradients(make_tensors(noise, s, 2 * seed + 1)),
        lse(noise.matrix(DType::f32, s.batch * s.heads, s.queries, 0)) {}

  AttentionBackwardArgs args(const AttentionShape& s, const Mask& mask) const {
    AttentionArgs call = args_of(forward, s, mask);
    call.lse = lse.view.view({s.batch, s.heads, s.queries});
    const AttentionArgs g = args_of(gradients, s, mask);
    return {.forward = call, .d_out = g.out, .d_q = g.q, .d_k = g.k, .d_v = g.v};
  }
};

// The largest error of d_q, d_k and d_v of the last head of the last sequence, against the same
// call in f32. For heads that share no keys.
double gradient_error(Context& ctx, const AttentionBackwardArgs& args) {
  const auto last_head = [&](const Tensor& x) {
    return in_f32(ctx, x.select(0, x.shape[0] - 1).select(1, x.shape[2] - 1));
  };
  const auto as_heads = [](const Matrix& x) {
    return x.view.view({1, x.view.shape[0], 1, x.view.shape[1]});
  };
  const AttentionArgs& f = args.forward;
  const Matrix q = last_head(f.q), k = last_head(f.k), v = last_head(f.v), out = last_head(f.out);
  const Matrix d_out = last_head(args.d_out);
  const Matrix found[] = {last_head(args.d_q), last_head(args.d_k), last_head(args.d_v)};
  const Matrix expected[] = {last_head(args.d_q), last_head(args.d_k), last_head(args.d_v)};
  const Tensor lse = f.lse.slice(0, 0, 1).slice(1, 0, 1);  // written again
  const AttentionArgs forward{.q = as_heads(q),
                              .k = as_heads(k),
                              .v = as_heads(v),
                              .out = as_heads(out),
                              .lse = lse,
                              .mask = f.mask};
  attention(ctx, forward);
  attention_backward(ctx, {.forward = forward,
                           .d_out = as_heads(d_out),
                           .d_q = as_heads(expected[0]),
                           .d_k = as_heads(expected[1]),
                           .d_v = as_heads(expected[2])});
  double worst = 0;
  for (int i = 0; i < 3; ++i) {
    worst = std::max(worst, relative_error(ctx, found[i].view, expected[i].view));
  }
  return worst;
}

void run_cell(Context& ctx, const Noise& noise, const Ceilings& ceilings,
              const BackwardOptions& options, const AttentionShape& shape,
              const std::string& mask_name) {
  constexpr int kSets = 2;
  const Mask mask = parse_mask(mask_name, options.window);
  std::vector<BackwardTensors> sets;
  std::vector<AttentionBackwardArgs> args;
  for (std::uint32_t i = 0; i < kSets; ++i) {
    sets.emplace_back(noise, shape, i);
    args.push_back(sets.back().args(shape, mask));
    args.back().deterministic = options.deterministic;
    attention(ctx, args.back().forward);
  }
  const auto call = [&](int i) {
    const AttentionBackwardArgs& a = args[static_cast<std::size_t>(i)];
    if (options.kernel.empty()) return attention_backward(ctx, a);
    cuda::attention_backward_by(ctx, options.kernel, a);
  };
  const TracedCall traced = trace_call(ctx, [&] { attention_backward(ctx, args[0]); });
  const Time time = time_calls(ctx, kSets, call);
  Row row = row_of("attention_backward", shape, mask_name);
  row["flops"] = traced.flops;
  row["floor"] = rounded(ceilings.floor_us(traced.bytes, traced.flops), 3);
  row["kernel"] = options.kernel.empty() ? traced.kernel : options.kernel;
  add_time(row, time);
  row["tflop_per_s"] = rounded(static_cast<double>(traced.flops) / time.us * 1e-6, 1);
  if (shape.heads == shape.kv_heads && shape.keys <= 4096) {
    row["rel"] = rounded(gradient_error(ctx, args[0]), 6);
  }
  print(row);
}

void run_backward(const BackwardOptions& options) {
  Context ctx({.device = Device::cuda()});
  const Noise noise(ctx, 1.f);
  const Ceilings ceilings = measure_ceilings(ctx);
  print(ceilings);
  for (const std::string& dtype : options.dtypes) {
    for (const std::int64_t dim : options.dims) {
      for (const std::string& mask : options.masks) {
        for (const std::int64_t length : options.lengths) {
          const std::int64_t kv_heads =
              std::max<std::int64_t>(1, options.width / dim / options.kv_group);
          run_cell(ctx, noise, ceilings, options,
                   {.batch = std::max<std::int64_t>(1, options.tokens / length),
                    .queries = length,
                    .keys = length,
                    .heads = kv_heads * options.kv_group,
                    .kv_heads = kv_heads,
                    .dim = dim,
                    .dtype = parse_dtype(dtype)},
                   mask);
        }
      }
    }
  }
}

}  // namespace

void add_backward(CLI::App& app) {
  const auto options = std::make_shared<BackwardOptions>();
  CLI::App* command = app.add_subcommand("backward", "attention_backward() over whole sequences");
  command->add_option("--seq", options->lengths, "Tokens of a sequence")->delimiter(',');
  command->add_option("--dims", options->dims, "Dims of a head")->delimiter(',');
  command->add_option("--masks", options->masks, "full, causal, window")->delimiter(',');
  command->add_option("--dtypes", options->dtypes, "f32, f16, bf16")->delimiter(',');
  command->add_option("--tokens", options->tokens, "Tokens of all sequences together");
  command->add_option("--width", options->width, "Width of all heads together");
  command->add_option("--group", options->kv_group, "Heads that share keys and values");
  command->add_option("--window", options->window, "Keys a query sees under the mask window");
  command->add_option("--kernel", options->kernel, "cuda.mma, ...; without it, the op chooses");
  command->add_flag("--deterministic", options->deterministic, "The same bits every time");
  command->callback([options] { run_backward(*options); });
}

}  // namespace tessera::bench
