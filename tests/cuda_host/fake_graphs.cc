// The functions of the CUDA runtime for captures and graphs, by their C names.
#include "cuda_host/fake_machine.h"

using namespace tessera::test::fake;  // NOLINT(google-build-using-namespace): C functions from here

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return enter("cudaStreamBeginCapture", [&] {
    CUstream_st* on = find(stream);
    if (!on) return cudaErrorInvalidResourceHandle;
    if (on->capturing) return cudaErrorIllegalState;
    on->capturing = true;
    on->spoilt = false;
    on->mode = mode;
    on->captured.clear();
    return cudaSuccess;
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return enter("cudaStreamEndCapture", [&] {
    CUstream_st* on = find(stream);
    *graph = nullptr;
    if (!on || !on->capturing) return cudaErrorInvalidResourceHandle;
    on->capturing = false;
    if (on->spoilt) return cudaErrorStreamCaptureInvalidated;
    *graph = *machine().graphs.insert(new CUgraph_st{on->captured}).first;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return enter("cudaStreamIsCapturing", [&] {
    const CUstream_st* on = find(stream);
    if (!on) return cudaErrorInvalidResourceHandle;
    *status = !on->capturing ? cudaStreamCaptureStatusNone
              : on->spoilt   ? cudaStreamCaptureStatusInvalidated
                             : cudaStreamCaptureStatusActive;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t*, std::size_t* count) {
  return enter("cudaGraphGetNodes", [&] {
    *count = graph->work.size();
    return cudaSuccess;
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {
  return enter("cudaGraphInstantiate", [&] {
    *executable = *machine().executables.insert(new CUgraphExec_st{graph->work}).first;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  return enter("cudaGraphLaunch", [&] {
    CUstream_st* on = find(stream);
    if (!on) return cudaErrorInvalidResourceHandle;
    for (const auto& work : executable->work) push(*on, work);
    return cudaSuccess;
  });
}

// CUDA lets the launches that are under way finish.
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  return enter("cudaGraphExecDestroy", [&] {
    if (!machine().executables.erase(executable)) return cudaErrorInvalidValue;
    delete executable;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return enter("cudaGraphDestroy", [&] {
    if (!machine().graphs.erase(graph)) return cudaErrorInvalidValue;
    delete graph;
    return cudaSuccess;
  });
}

}  // extern "C"
