// Messages between the processes that compute one model together. A process is a rank. Every rank
// makes the same calls in the same order, with tensors of the same shape and dtype; a call returns
// when this rank has its result. On a GPU it is enqueued on the Context's stream instead.
//
//   one_rank()                    a process alone: nothing is sent
//   parallel::MpiWorld            processes on CPUs (src/parallel/mpi)
//   parallel::make_nccl           one process for each GPU (src/parallel/nccl.h)
//
// Threads: one at a time for each communicator.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "tessera/context.h"
#include "tessera/tensor.h"

namespace tessera {

class Communicator {
 public:
  // A message on its way. Call wait() before you use the tensors again; the destructor waits too.
  class Pending {
   public:
    virtual ~Pending() = default;
    virtual void wait() = 0;
  };

  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  virtual std::string_view name() const = 0;  // "one rank", "MPI", "NCCL"

  // All tensors are contiguous. Sums take f32, f16 or bf16, and are computed in f32 and rounded
  // once.
  //
  // The sum over the ranks, in place. On the CPU it is taken in the order of the ranks: an
  // element's bits do not depend on the number of elements.
  virtual void all_reduce(Context& ctx, const Tensor& data) = 0;
  // whole[r] = the part of rank r. whole: [size, part's shape...]
  virtual void all_gather(Context& ctx, const Tensor& part, const Tensor& whole) = 0;
  // part = the sum over the ranks of whole[rank()]. whole: [size, part's shape...]
  virtual void reduce_scatter(Context& ctx, const Tensor& whole, const Tensor& part) = 0;
  // The tensor of rank `root`, to all.
  virtual void broadcast(Context& ctx, const Tensor& data, int root) = 0;
  virtual void send(Context& ctx, const Tensor& data, int to) = 0;
  virtual void receive(Context& ctx, const Tensor& data, int from) = 0;
  // Sends to one rank and receives from another, while the caller computes something else. On a GPU
  // the message has a stream of its own, and wait() makes the Context's stream wait for it.
  virtual std::unique_ptr<Pending> start_exchange(Context& ctx, const Tensor& sent, int to,
                                                  const Tensor& received, int from) = 0;
  // Returns once every rank has called it.
  virtual void barrier(Context& ctx) = 0;

 protected:
  Communicator(int rank, int size) : rank_(rank), size_(size) {}

  int rank_, size_;
};

// A process that computes alone.
std::unique_ptr<Communicator> one_rank();

}  // namespace tessera
