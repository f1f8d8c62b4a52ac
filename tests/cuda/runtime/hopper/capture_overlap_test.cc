// Kernels that overlap when they are launched one by one (programmatic dependent launch) overlap in
// a captured graph.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "core/captured_graph.h"
#include "cuda/runtime/capture.h"
#include "cuda/runtime/op_chain.h"
#include "cuda/tile/hopper/hopper_test.h"
#include "reference/test_tensor.h"
#include "support/compare.h"
#include "support/decode_case.h"
#include "tessera/norm.h"

namespace tessera::test {
namespace {

class CudaCaptureOverlapTest : public HopperTest {};
INSTANTIATE_TEST_SUITE_P(Devices, CudaCaptureOverlapTest, testing::Values(Device::cuda()),
                         device_name);

std::vector<cudaGraphEdgeData> edges_of(cudaGraph_t graph) {
#if CUDART_VERSION >= 13000
  constexpr auto get_edges = cudaGraphGetEdges;
#else
  constexpr auto get_edges = cudaGraphGetEdges_v2;
#endif
  std::size_t count = 0;
  EXPECT_EQ(get_edges(graph, nullptr, nullptr, nullptr, &count), cudaSuccess);
  std::vector<cudaGraphNode_t> from(count), to(count);
  std::vector<cudaGraphEdgeData> edges(count);
  EXPECT_EQ(get_edges(graph, from.data(), to.data(), edges.data(), &count), cudaSuccess);
  return edges;
}

TEST_P(CudaCaptureOverlapTest, DependentLaunchesStayInTheGraph) {
  ctx().trace().enable(false);
  const OpChain chain(ctx(), {.rows = 1, .heads = 8, .keys = 1000}, 21);
  const CapturedGraph graph = capture(ctx(), [&] { chain.run(ctx()); });
  const std::vector<cudaGraphEdgeData> edges =
      edges_of(static_cast<const cuda::Graph&>(*graph.backend()).recorded());
  EXPECT_GE(edges.size(), 4u);  // five ops, one after the other
  const auto overlapping =
      std::count_if(edges.begin(), edges.end(), [](const cudaGraphEdgeData& edge) {
        return edge.type == cudaGraphDependencyTypeProgrammatic;
      });
  // The norm's successor, attention's and attention itself; softmax waits for all of its input.
  EXPECT_GE(overlapping, 3);
}

// All blocks of the kernel of all layers start at once, in a graph too. What comes behind it may
// still overlap with its end.
TEST_P(CudaCaptureOverlapTest, ACooperativeLaunchStaysOneInTheGraph) {
  ctx().trace().enable(false);
  DecodeCall call(ctx(), {.format = Format::nvfp4});
  const TestTensor weight(ctx(), random_normal({256}, 1), DType::f16);
  const TestTensor out = TestTensor::poisoned(ctx(), {1, 256}, DType::f16);
  const auto run = [&] {
    EXPECT_TRUE(decode_layers(ctx(), call.args));
    rms_norm(ctx(), {.x = call.args.x, .weight = weight, .out = out});
  };
  run();
  const Array expected = out.read();
  const CapturedGraph graph = capture(ctx(), run);
  cudaGraph_t recorded = static_cast<const cuda::Graph&>(*graph.backend()).recorded();
  std::size_t count = 0;
  ASSERT_EQ(cudaGraphGetNodes(recorded, nullptr, &count), cudaSuccess);
  std::vector<cudaGraphNode_t> nodes(count);
  ASSERT_EQ(cudaGraphGetNodes(recorded, nodes.data(), &count), cudaSuccess);
  const auto cooperative = std::count_if(nodes.begin(), nodes.end(), [](cudaGraphNode_t node) {
    cudaGraphNodeType type{};
    cudaLaunchAttributeValue value{};
    return cudaGraphNodeGetType(node, &type) == cudaSuccess && type == cudaGraphNodeTypeKernel &&
           cudaGraphKernelNodeGetAttribute(node, cudaLaunchAttributeCooperative, &value) ==
               cudaSuccess &&
           value.cooperative != 0;
  });
  EXPECT_EQ(cooperative, 1);
  for (int i = 0; i < 3; ++i) {
    call.restore_x();
    graph.launch(ctx());
    EXPECT_TRUE(identical(out.read(), expected));
  }
}

}  // namespace
}  // namespace tessera::test
