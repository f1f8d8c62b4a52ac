// Ops that may run beside others of the same Context. On a GPU they go to a second stream:
//
//   Branch mlp(ctx);     // after everything that the Context has to do so far
//   ... norm, up, down   // on the second stream
//   mlp.end();
//   ... qkv, attention   // on the Context's own stream, beside the branch
//   mlp.join();          // what follows comes after both
//
// On the CPU, and while scratch memory is only counted, the ops run one after the other as they are
// written. What they compute is the same either way.
//
// The ops of a branch have scratch memory and counters of their own. So a Context has one branch at
// a time, and its tensors must not be written by the ops beside it. A captured graph records both
// streams.
//
// Threads: that of the Context.
#pragma once

#include <optional>

#include "core/workspace.h"
#include "tessera/context.h"

namespace tessera {

class Branch {
 public:
  // `wanted`: false makes no branch, for a caller that knows that one does not pay.
  explicit Branch(Context& ctx, bool wanted = true);
  // Ends and joins a branch that an exception has left behind.
  ~Branch();
  Branch(const Branch&) = delete;
  Branch& operator=(const Branch&) = delete;

  void end();
  void join();

 private:
  enum class State { none, open, ended };
  Context& ctx_;
  State state_ = State::none;
  void* own_stream_ = nullptr;  // of the Context
  std::optional<Workspace::Elsewhere> scratch_;
};

}  // namespace tessera
