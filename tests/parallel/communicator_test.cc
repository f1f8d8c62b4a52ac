// Each call of a Communicator, on every dtype that it takes and on sizes on both sides of its
// limits. Rank r brings values that only r has, so that a wrong rank shows.
#include "tessera/communicator.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <vector>

#include "parallel/ranks.h"
#include "support/refusal.h"
#include "tessera/buffer.h"
#include "tessera/half.h"

namespace tessera::test {
namespace {

float value_of(int rank, std::int64_t i) {
  return static_cast<float>(rank + 1) * 0.25f + static_cast<float>(i % 17);
}

class Filled {
 public:
  Filled(DType dtype, std::int64_t n, int rank) : buffer_(dtype, {n}) {
    for (std::int64_t i = 0; i < n; ++i) set(i, value_of(rank, i));
  }
  Tensor tensor() const { return buffer_.tensor(); }
  void set(std::int64_t i, float value) {
    switch (buffer_.tensor().dtype) {
      case DType::f16:
        buffer_.tensor().ptr<Half>()[i] = from_float<Half>(value);
        break;
      case DType::bf16:
        buffer_.tensor().ptr<BFloat16>()[i] = from_float<BFloat16>(value);
        break;
      default:
        buffer_.tensor().ptr<float>()[i] = value;
    }
  }
  float get(std::int64_t i) const {
    switch (buffer_.tensor().dtype) {
      case DType::f16:
        return to_float(buffer_.tensor().ptr<Half>()[i]);
      case DType::bf16:
        return to_float(buffer_.tensor().ptr<BFloat16>()[i]);
      default:
        return buffer_.tensor().ptr<float>()[i];
    }
  }

 private:
  Buffer buffer_;
};

TEST(Communicator, SumsOverAllRanks) {
  Context ctx({.threads = 1});
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const std::int64_t n : {1, 3, 768, 50001}) {
      Filled data(dtype, n, ranks().rank());
      ranks().all_reduce(ctx, data.tensor());
      for (std::int64_t i = 0; i < n; ++i) {
        float sum = 0.f;
        for (int r = 0; r < ranks().size(); ++r) sum += value_of(r, i);
        ASSERT_NEAR(data.get(i), sum, dtype == DType::bf16 ? 0.5f : 1e-2f) << n << " at " << i;
      }
    }
  }
}

// Sums that depend on their order: an element has the same bits in a short and in a long message.
TEST(Communicator, SumsHaveTheSameBitsInMessagesOfAnyLength) {
  Context ctx({.threads = 1});
  const float parts[] = {1e8f, 1.f, -1e8f, 1.f};
  const float mine = parts[ranks().rank() % 4];
  std::vector<float> results;
  for (const std::int64_t n : {1, 5, 40000}) {
    Filled data(DType::f32, n, 0);
    for (std::int64_t i = 0; i < n; ++i) data.set(i, mine);
    ranks().all_reduce(ctx, data.tensor());
    results.push_back(data.get(0));
    results.push_back(data.get(n - 1));
  }
  for (const float result : results) EXPECT_EQ(result, results.front());
}

TEST(Communicator, GathersScattersAndBroadcasts) {
  Context ctx({.threads = 1});
  const int size = ranks().size(), rank = ranks().rank();
  constexpr std::int64_t kN = 301;
  const Filled part(DType::f32, kN, rank);
  const Buffer whole(DType::f32, {size, kN});
  ranks().all_gather(ctx, part.tensor(), whole.tensor());
  for (int r = 0; r < size; ++r) {
    for (std::int64_t i = 0; i < kN; ++i) {
      ASSERT_EQ(whole.tensor().ptr<float>()[r * kN + i], value_of(r, i));
    }
  }
  // Everybody brings the same whole: the sum is `size` times the rank's part.
  const Filled sum(DType::f32, kN, 0);
  ranks().reduce_scatter(ctx, whole.tensor(), sum.tensor());
  for (std::int64_t i = 0; i < kN; ++i) {
    ASSERT_NEAR(sum.get(i), static_cast<float>(size) * value_of(rank, i), 1e-3f);
  }
  for (int root = 0; root < size; ++root) {
    const Filled data(DType::f32, kN, rank);
    ranks().broadcast(ctx, data.tensor(), root);
    for (std::int64_t i = 0; i < kN; ++i) ASSERT_EQ(data.get(i), value_of(root, i));
  }
  ranks().barrier(ctx);
}

TEST(Communicator, MessagesGoAroundTheRing) {
  Context ctx({.threads = 1});
  const int size = ranks().size(), rank = ranks().rank();
  const int next = (rank + 1) % size, before = (rank + size - 1) % size;
  const Filled sent(DType::f32, 4099, rank), received(DType::f32, 4099, 100);
  const auto pending = ranks().start_exchange(ctx, sent.tensor(), next, received.tensor(), before);
  pending->wait();
  for (std::int64_t i = 0; i < 4099; ++i) ASSERT_EQ(received.get(i), value_of(before, i));
  if (size == 1) return;
  if (rank % 2 == 0 && rank + 1 < size) ranks().send(ctx, sent.tensor(), rank + 1);
  if (rank % 2 == 1) {
    ranks().receive(ctx, received.tensor(), rank - 1);
    EXPECT_EQ(received.get(5), value_of(rank - 1, 5));
  }
}

TEST(Communicator, RefusesWhatItCannotSend) {
  Context ctx({.threads = 1});
  const Buffer data(DType::f32, {4, 6}), ids(DType::i32, {4});
  EXPECT_TRUE(refuses([&] { ranks().all_reduce(ctx, data.tensor().slice(1, 0, 3)); },
                      "all_reduce: a message must be a contiguous tensor, got f32[4, 3] with "
                      "strides [6, 1]"));
  EXPECT_TRUE(refuses([&] { ranks().all_reduce(ctx, ids.tensor()); },
                      "all_reduce: sums are of f32, f16 or bf16, got i32[4]"));
  EXPECT_TRUE(refuses(
      [&] { ranks().broadcast(ctx, ids.tensor(), 99); },
      fmt::format("broadcast: there is no rank 99; the ranks are 0 to {}", ranks().size() - 1)));
  EXPECT_TRUE(refuses(
      [&] { ranks().all_gather(ctx, data.tensor(), ids.tensor()); },
      fmt::format("all_gather: the part is f32[4, 6], so the whole must have its shape after the "
                  "number of ranks, {}; got i32[4]",
                  ranks().size())));
}

}  // namespace
}  // namespace tessera::test
