// The functions of the CUDA runtime, by their C names. Those of graphs are in fake_graphs.cc.
#include <cstring>
#include <utility>

#include "cuda_host/fake_machine.h"

using namespace tessera::test::fake;  // NOLINT(google-build-using-namespace): C functions from here

extern "C" {

// ---- errors

cudaError_t cudaPeekAtLastError() {
  const std::lock_guard lock(mutex());
  return machine().last;
}

cudaError_t cudaGetLastError() {
  const std::lock_guard lock(mutex());
  return std::exchange(machine().last, machine().lost);
}

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorIllegalAddress:
      return "cudaErrorIllegalAddress";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorInsufficientDriver:
      return "cudaErrorInsufficientDriver";
    default:
      return "cudaErrorOfTheTest";
  }
}

const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess ? "no error" : "the words of the driver";
}

// ---- devices

cudaError_t cudaDriverGetVersion(int* version) {
  const std::lock_guard lock(mutex());
  *version = machine().driver;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  const std::lock_guard lock(mutex());
  *count = static_cast<int>(machine().gpus.size());
  const cudaError_t error = injected("cudaGetDeviceCount");
  return report(error != cudaSuccess ? error : no_gpu());
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return enter("cudaGetDeviceProperties", [&] {
    if (device < 0 || device >= std::ssize(machine().gpus)) return cudaErrorInvalidDevice;
    const Gpu& gpu = machine().gpus[static_cast<std::size_t>(device)];
    *properties = {};
    gpu.name.copy(properties->name, sizeof(properties->name) - 1);
    properties->major = gpu.major;
    properties->minor = gpu.minor;
    properties->totalGlobalMem = static_cast<std::size_t>(gpu.memory);
    properties->multiProcessorCount = gpu.multiprocessors;
    properties->sharedMemPerBlockOptin = gpu.shared_bytes;
    return cudaSuccess;
  });
}

// Both only store a number, so a lost GPU does not stop them.
cudaError_t cudaGetDevice(int* device) {
  const std::lock_guard lock(mutex());
  *device = machine().current;
  const cudaError_t error = injected("cudaGetDevice");
  return report(error != cudaSuccess ? error : no_gpu());
}

cudaError_t cudaSetDevice(int device) {
  const std::lock_guard lock(mutex());
  if (const cudaError_t error = no_gpu(); error != cudaSuccess) return report(error);
  if (device < 0 || device >= std::ssize(machine().gpus)) return report(cudaErrorInvalidDevice);
  machine().current = device;
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  return enter("cudaDeviceSynchronize", [] {
    ++machine().counters.waits;
    drain_all();
    return cudaSuccess;
  });
}

// ---- memory

cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  return enter("cudaMalloc", [&] {
    if (!may_allocate()) return cudaErrorStreamCaptureUnsupported;
    const int device = machine().current;
    const std::int64_t free = machine().current_gpu().memory - used_bytes(device);
    if (bytes > static_cast<std::size_t>(free)) return cudaErrorMemoryAllocation;
    ++machine().counters.allocations;
    return allocate(data, bytes, device);
  });
}

cudaError_t cudaFree(void* data) {
  return enter("cudaFree", [&] { return release(data, /*host=*/false); });
}

cudaError_t cudaMallocHost(void** data, std::size_t bytes) {
  return enter("cudaMallocHost", [&] {
    ++machine().counters.host_allocations;
    return allocate(data, bytes, -1);
  });
}

cudaError_t cudaHostAlloc(void** data, std::size_t bytes, unsigned) {
  return cudaMallocHost(data, bytes);
}

cudaError_t cudaFreeHost(void* data) {
  return enter("cudaFreeHost", [&] { return release(data, /*host=*/true); });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* data) {
  return enter("cudaPointerGetAttributes", [&] {
    *attributes = {};
    attributes->type = on_device(data, 1) ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered;
    return cudaSuccess;
  });
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  return enter("cudaMemGetInfo", [&] {
    *total = static_cast<std::size_t>(machine().current_gpu().memory);
    *free = *total - static_cast<std::size_t>(used_bytes(machine().current));
    return cudaSuccess;
  });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return enter("cudaMemcpyAsync", [&] {
    CUstream_st* on = find(stream);
    return on ? copy(to, from, bytes, kind, *on) : cudaErrorInvalidResourceHandle;
  });
}

cudaError_t cudaMemsetAsync(void* data, int value, std::size_t bytes, cudaStream_t stream) {
  return enter("cudaMemsetAsync", [&] {
    CUstream_st* on = find(stream);
    if (!on) return cudaErrorInvalidResourceHandle;
    if (!on_device(data, bytes)) return cudaErrorInvalidValue;
    push(*on, [=] { std::memset(data, value, bytes); });
    return cudaSuccess;
  });
}

// ---- kernels (only tests/emulated runs them)

cudaError_t cudaLaunchKernel(const void*, dim3, dim3, void**, std::size_t, cudaStream_t stream) {
  return enter("cudaLaunchKernel",
               [&] { return find(stream) ? cudaSuccess : cudaErrorInvalidResourceHandle; });
}

// One block fits on a multiprocessor.
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void*, void**) {
  return enter("cudaLaunchKernelExC", [&] {
    if (!find(config->stream)) return cudaErrorInvalidResourceHandle;
    for (unsigned i = 0; i < config->numAttrs; ++i) {
      const cudaLaunchAttribute& attribute = config->attrs[i];
      if (attribute.id == cudaLaunchAttributeProgrammaticStreamSerialization &&
          attribute.val.programmaticStreamSerializationAllowed != 0) {
        ++machine().counters.overlaps;
      }
      if (attribute.id == cudaLaunchAttributeCooperative && attribute.val.cooperative != 0) {
        const auto most = static_cast<unsigned>(machine().current_gpu().multiprocessors);
        if (config->gridDim.x > most) return cudaErrorCooperativeLaunchTooLarge;
        ++machine().counters.all_at_once;
      }
    }
    return cudaSuccess;
  });
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  return enter("cudaFuncGetAttributes", [&] {
    *attributes = {};
    return cudaSuccess;
  });
}

cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) {
  return enter("cudaFuncSetAttribute", [] {
    ++machine().counters.attributes;
    return cudaSuccess;
  });
}

// ---- streams

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return enter("cudaStreamCreateWithFlags", [&] {
    *stream = *machine().streams.insert(new CUstream_st).first;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return enter("cudaStreamDestroy", [&] {
    if (!machine().streams.count(stream)) return cudaErrorInvalidResourceHandle;
    drain(*stream);  // CUDA lets the work finish; nobody can see when
    machine().streams.erase(stream);
    delete stream;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return enter("cudaStreamSynchronize", [&] {
    CUstream_st* on = find(stream);
    if (!on) return cudaErrorInvalidResourceHandle;
    if (!may_wait(*on)) return cudaErrorStreamCaptureUnsupported;
    ++machine().counters.waits;
    drain(*on);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned* flags) {
  return enter("cudaStreamGetFlags", [&] {
    *flags = cudaStreamNonBlocking;  // the only kind the library makes
    return find(stream) ? cudaSuccess : cudaErrorInvalidResourceHandle;
  });
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  const std::lock_guard lock(mutex());
  const CUstream_st* on = find(stream);
  // This error is not remembered for cudaGetLastError().
  if (on && !on->work.empty() && machine().lost == cudaSuccess) return cudaErrorNotReady;
  return enter("cudaStreamQuery",
               [&] { return on ? cudaSuccess : cudaErrorInvalidResourceHandle; });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return enter("cudaStreamWaitEvent", [&] {
    CUstream_st* on = find(stream);
    if (!on || !machine().events.count(event)) return cudaErrorInvalidResourceHandle;
    push(*on, [record = event->last] { reach(record); });
    return cudaSuccess;
  });
}

// ---- events

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return enter("cudaEventCreateWithFlags", [&] {
    *event = *machine().events.insert(new CUevent_st).first;
    return cudaSuccess;
  });
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return enter("cudaEventDestroy", [&] {
    if (!machine().events.erase(event)) return cudaErrorInvalidResourceHandle;
    delete event;
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return enter("cudaEventRecord", [&] {
    CUstream_st* on = find(stream);
    if (!on || !machine().events.count(event)) return cudaErrorInvalidResourceHandle;
    event->last = std::make_shared<Record>(Record{on, false, on->capturing});
    push(*on, [record = event->last] {
      record->reached = true;
      record->tick = ++machine().ticks;
    });
    return cudaSuccess;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return enter("cudaEventSynchronize", [&] {
    if (!machine().events.count(event)) return cudaErrorInvalidResourceHandle;
    if (event->last && event->last->captured) return cudaErrorCapturedEvent;
    ++machine().counters.waits;
    reach(event->last);
    return cudaSuccess;
  });
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  return enter("cudaEventElapsedTime", [&] {
    if (!machine().events.count(start) || !machine().events.count(end) || !start->last ||
        !end->last) {
      return cudaErrorInvalidResourceHandle;
    }
    if (!start->last->reached || !end->last->reached) return cudaErrorNotReady;
    *ms = 1e-3f * static_cast<float>(end->last->tick - start->last->tick);
    return cudaSuccess;
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  const std::lock_guard lock(mutex());
  const bool known = machine().events.count(event) > 0;
  const bool ahead = known && event->last && !event->last->reached;
  if (ahead && machine().lost == cudaSuccess) return cudaErrorNotReady;
  return enter("cudaEventQuery",
               [&] { return known ? cudaSuccess : cudaErrorInvalidResourceHandle; });
}

}  // extern "C"
