// bench_gpu: single ops on a GPU, one JSON object per line. Times are those of graph replays over
// memory that no cache holds (timer.h). The floor beside each time is the cost of its bytes or its
// arithmetic, at rates measured in the same run.
#include <cstdio>

#include "commands.h"

int main(int argc, char** argv) {
  CLI::App app("Measures single ops on a GPU: time, floor and error, one JSON object per line");
  app.require_subcommand(1);
  tessera::bench::add_fused_linear(app);
  tessera::bench::add_linear(app);
  tessera::bench::add_attention(app);
  tessera::bench::add_backward(app);
  tessera::bench::add_decode(app);
  tessera::bench::add_norm(app);
  tessera::bench::add_quantize(app);
  tessera::bench::add_rotary_append(app);
  tessera::bench::add_sample(app);
  tessera::bench::add_select(app);
  app.footer(
      "Examples:\n"
      "  bench_gpu linear --shapes 4096x14336 --rows 1,16 --formats nvfp4,int4\n"
      "  bench_gpu attention --seq 4096 --dims 128 --masks causal");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_gpu: %s\n", error.what());
    return 1;
  }
  return 0;
}
