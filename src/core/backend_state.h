// What a back end keeps in a Context between calls. Each back end derives its own type from this
// one: src/cuda/runtime/state.h, src/cpu/elementwise/rope_table.cc. It ends with the Context.
#pragma once

namespace tessera {

class BackendState {
 public:
  BackendState() = default;
  virtual ~BackendState() = default;
  BackendState(const BackendState&) = delete;
  BackendState& operator=(const BackendState&) = delete;
};

}  // namespace tessera
