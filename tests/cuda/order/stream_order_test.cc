// The order of a stream: an op reads what the op ahead of it has written, also where its kernel
// starts before that one has ended (src/cuda/tile/grid_dependency.cuh).
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "cuda/attention/choose.h"
#include "cuda/linear/choose.h"
#include "cuda/linear/product.h"
#include "cuda/order/late_write.h"
#include "cuda/runtime/hopper_kernels.h"
#include "cuda/runtime/state.h"
#include "reference/test_tensor.h"
#include "support/append_case.h"
#include "support/attention_case.h"
#include "support/compare.h"
#include "support/decode_case.h"
#include "support/devices.h"
#include "support/gated_case.h"
#include "support/linear_case.h"
#include "support/sanitizers.h"
#include "tessera/attention.h"
#include "tessera/buffer.h"
#include "tessera/linear.h"
#include "tessera/norm.h"
#include "tessera/quant.h"

namespace tessera::test {
namespace {

using Bytes = std::vector<unsigned char>;

class CudaOrderTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (!IsSkipped()) ctx().trace().enable(false);  // timing an op means waiting for it
  }

  // Runs the op behind a kernel that writes one of its inputs late: in the stream, and in a
  // captured graph if it can be captured. It must write what it writes by itself.
  void check(const std::function<void()>& op, const Tensor& input, const Tensor& out,
             bool captures = true) {
    ASSERT_TRUE(input.is_contiguous() && out.is_contiguous() && input.bytes() % 4 == 0);
    const bool in_place = input.data == out.data;
    const Bytes values = bytes_of(input);
    const Buffer saved(input.bytes(), ctx().device());
    copy_bytes(ctx(), saved.data(), ctx().device(), input.data, ctx().device(), input.bytes());
    // The first run brings the kernels to the GPU and may take more scratch, the second then makes
    // one block of all scratch. Loading and freeing wait for the GPU: nobody would be early.
    for (int i = 0; i < 2; ++i) {
      copy_bytes(ctx(), input.data, ctx().device(), saved.data(), ctx().device(), input.bytes());
      op();
    }
    const Bytes expected = bytes_of(out);
    const auto run_late = [&] {
      write_late(ctx(), saved.data(), input.data, input.bytes());
      op();
    };
    const auto check_run = [&](const char* where, const std::function<void()>& run) {
      poison(input);
      poison(out);
      ctx().synchronize();
      run();
      EXPECT_EQ(bytes_of(out), expected) << where;
      if (!in_place) {
        EXPECT_EQ(bytes_of(input), values) << where;
      }
    };
    check_run("in the stream", run_late);
    if (!captures) return;
    const auto stream = static_cast<cudaStream_t>(ctx().stream());
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    run_late();
    ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
    check_run("in a graph", [&] { EXPECT_EQ(cudaGraphLaunch(executable, stream), cudaSuccess); });
    EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  }

 private:
  Bytes bytes_of(const Tensor& tensor) {
    Bytes bytes(static_cast<std::size_t>(tensor.bytes()));
    copy_bytes(ctx(), bytes.data(), Device::cpu(), tensor.data, tensor.device, tensor.bytes());
    return bytes;
  }
  // NaN in every dtype.
  void poison(const Tensor& tensor) {
    const Bytes bytes(static_cast<std::size_t>(tensor.bytes()), 0xff);
    copy_bytes(ctx(), tensor.data, tensor.device, bytes.data(), Device::cpu(), tensor.bytes());
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, CudaOrderTest, testing::Values(Device::cuda()), device_name);

const WeightCase kDenseF16{.dtype = DType::f16};
const WeightCase kTiledNvfp4{.packed = {{.format = Format::nvfp4}}, .prepared = true};

// A kernel that is forced refuses what it cannot run.
bool runs(const std::function<void()>& op) {
  try {
    op();
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Every kernel, each with every input that it can be given.
TEST_P(CudaOrderTest, Linear) {
  const bool hopper = cuda::has_hopper_kernels(cuda::state_of(ctx()).limits());
  const struct {
    std::int64_t rows, in, out;
    const char* kernel;
  } sizes[] = {{4, 128, 48, ""}, {1, 4096, 16, "cuda.stream"}};  // which has one for one token
  std::set<std::string> checked;
  for (const cuda::LinearKernel& kernel : cuda::linear_kernels()) {
    for (const WeightCase& weight : {kDenseF16, kTiledNvfp4}) {
      for (const auto& size : sizes) {
        if (size.kernel[0] != 0 && std::string(size.kernel) != kernel.name) continue;
        LinearCall call(ctx(), {.rows = {size.rows},
                                .in = size.in,
                                .out = size.out,
                                .weight = weight,
                                .x_dtype = DType::f16,
                                .out_dtype = DType::f16,
                                .activation = Activation::relu,
                                .bias = DType::f16,
                                .residual = true});
        SCOPED_TRACE(std::string(kernel.name) + ": " + call.c.text());
        cuda::force_linear_kernel(ctx(), kernel.name);
        const auto op = [&] { linear(ctx(), call.args); };
        if (!runs(op)) continue;
        checked.insert(kernel.name);
        for (const Tensor* input : {&call.args.x, &call.args.bias, &call.args.residual}) {
          check(op, *input, call.args.out);
        }
        if (!weight.packed) check(op, call.args.weight.data, call.args.out);
        EXPECT_TRUE(call.correct());
      }
    }
  }
  EXPECT_EQ(checked.size(), cuda::linear_kernels().size() - (hopper ? 0 : 3));
}

TEST_P(CudaOrderTest, GatedLinear) {
  const TestTensor gate_bias(ctx(), random_normal({48}, 8), DType::f16);
  const TestTensor up_bias(ctx(), random_normal({48}, 9), DType::f16);
  std::set<std::string> checked;
  for (const char* kernel : {"cuda.stream", "cuda.mma"}) {
    for (const WeightCase& weight : {kDenseF16, kTiledNvfp4}) {
      GatedCall call(
          ctx(),
          {.rows = 3, .in = 128, .out = 48, .gate = weight, .up = weight, .dtype = DType::f16});
      call.args.gate_bias = gate_bias;
      call.args.up_bias = up_bias;
      const cuda::Product product = cuda::product_of(call.args);
      if (!cuda::linear_kernel(kernel).takes({ctx(), product, 3})) continue;
      SCOPED_TRACE(kernel);
      checked.insert(kernel);
      cuda::force_linear_kernel(ctx(), kernel);
      const auto op = [&] { gated_linear(ctx(), call.args); };
      for (const Tensor* input : {&call.args.x, &call.args.gate_bias, &call.args.up_bias}) {
        check(op, *input, call.args.out);
      }
      if (weight.packed) continue;
      check(op, call.args.gate.data, call.args.out);
      check(op, call.args.up.data, call.args.out);
    }
  }
  EXPECT_EQ(checked.size(), 2U);
}

// Tiles that prepare() has just made, of a weight that has just been written.
TEST_P(CudaOrderTest, PreparedWeights) {
  for (const char* kernel :
       {"cuda.stream", "cuda.strips", "cuda.panels", "cuda.wide", "cuda.mma"}) {
    LinearCall call(ctx(), {.rows = {12},
                            .in = 128,
                            .out = 48,
                            .weight = {.packed = {{.format = Format::nvfp4}}},
                            .x_dtype = DType::f16,
                            .out_dtype = DType::f16});
    const Weight published = call.args.weight;
    // Freeing the last call's would wait for the GPU.
    std::vector<PackedWeight> prepared;
    prepared.push_back(prepare(ctx(), published));
    call.args.weight = prepared.back().weight;
    const cuda::Product product = cuda::product_of(call.args);
    if (!cuda::linear_kernel(kernel).takes({ctx(), product, 12})) continue;
    SCOPED_TRACE(kernel);
    cuda::force_linear_kernel(ctx(), kernel);
    const auto op = [&] {
      prepared.push_back(prepare(ctx(), published));
      call.args.weight = prepared.back().weight;
      linear(ctx(), call.args);
    };
    check(op, published.data, call.args.out, false);
    check(op, published.scales, call.args.out, false);
    EXPECT_TRUE(call.correct());
  }
}

// What a settled call reads early has been there for long: the kernel ahead writes q, k and v.
TEST_P(CudaOrderTest, AppendAttention) {
  for (const bool settled : {true, false}) {
    AppendCall call(ctx(), {.lengths = {37, 300, 1}});
    call.args.settled = settled;
    const auto op = [&] { append_attention(ctx(), call.args); };
    check(op, call.qkv, call.out);
    if (settled) continue;
    for (const TestTensor* input :
         {&call.k_pages, &call.v_pages, &call.table, &call.lengths, &call.positions, &call.slots}) {
      check(op, *input, call.out);
    }
  }
}

// All layers in one kernel, which replaces x.
TEST_P(CudaOrderTest, DecodeLayers) {
  Thinned thinned(3);
  for (const std::optional<Format> format : {std::optional<Format>(), {Format::nvfp4}}) {
    DecodeCall call(ctx(), {.layers = 1, .format = format, .keys = 40});
    const Tensor& x = call.args.x;
    check([&] { EXPECT_TRUE(decode_layers(ctx(), call.args)); }, x, x);
    call.restore_x();
    const Buffer first(x.bytes(), ctx().device());
    copy_bytes(ctx(), first.data(), ctx().device(), x.data, ctx().device(), x.bytes());
    for (const Tensor& input : call.small_inputs()) {
      if (!thinned.takes_next()) continue;
      const auto op = [&] {
        copy_bytes(ctx(), x.data, ctx().device(), first.data(), ctx().device(), x.bytes());
        EXPECT_TRUE(decode_layers(ctx(), call.args));
      };
      check(op, input, x);
    }
  }
}

// The token's id is what the kernel before has drawn.
TEST_P(CudaOrderTest, DecodeLayersFromAnId) {
  DecodeCall call(ctx(), {.layers = 1, .format = Format::nvfp4, .keys = 40, .ends = true});
  const auto op = [&] { EXPECT_TRUE(decode_layers(ctx(), call.args)); };
  const std::vector<Tensor> inputs = call.small_inputs();
  for (const Tensor& input : std::span(inputs).last(2)) check(op, input, call.args.x);
}

TEST_P(CudaOrderTest, Norm) {
  const TestTensor x(ctx(), random_normal({3, 512}, 1), DType::f16);
  const TestTensor weight(ctx(), random_normal({512}, 2), DType::f16);
  const TestTensor out = TestTensor::poisoned(ctx(), {3, 512}, DType::f16);
  const auto op = [&] { rms_norm(ctx(), {.x = x, .weight = weight, .out = out}); };
  check(op, x, out);
  check(op, weight, out);
}

// Of few queries, whose kernel overlaps, and of many.
TEST_P(CudaOrderTest, Attention) {
  for (std::int64_t n_q : {1, 20}) {
    const AttentionTensors tensors(ctx(), {.n_q = n_q,
                                           .n_k = 50,
                                           .heads = 1,
                                           .kv_heads = 1,
                                           .mask = Mask::causal(),
                                           .dtype = DType::f16});
    for_each_attention_kernel(ctx(), tensors.args, [&] {
      const auto op = [&] { attention(ctx(), tensors.args); };
      for (const TestTensor* input : {&tensors.q, &tensors.k, &tensors.v}) {
        check(op, *input, tensors.out);
      }
    });
  }
}

// The lists of a pattern go to the GPU while it works: attention() does not wait for it. The
// pattern may go away at once.
TEST_P(CudaOrderTest, PatternsAreNotWaitedFor) {
  const auto pattern = [] { return BlockMask::local(16, 4096, 4096, 1); };  // over 64 KiB of lists
  AttentionTensors tensors(ctx(), {.n_q = 40,
                                   .n_k = 40,
                                   .heads = 1,
                                   .kv_heads = 1,
                                   .dim = 16,
                                   .mask = Mask::blocks(pattern()),
                                   .dtype = DType::f16});
  const Tensor& v = tensors.v;
  const Buffer saved(v.bytes(), ctx().device());
  copy_bytes(ctx(), saved.data(), ctx().device(), v.data, ctx().device(), v.bytes());
  attention(ctx(), tensors.args);
  const Array expected = tensors.out.read();
  for (int i = 0; i < 20; ++i) write_late(ctx(), saved.data(), v.data, v.bytes());
  tensors.args.mask = Mask::blocks(pattern());
  attention(ctx(), tensors.args);
  tensors.args.mask = Mask::full();
  EXPECT_EQ(cudaStreamQuery(static_cast<cudaStream_t>(ctx().stream())), cudaErrorNotReady);
  EXPECT_TRUE(identical(tensors.out.read(), expected));
}

}  // namespace
}  // namespace tessera::test
