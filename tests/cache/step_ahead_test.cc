// Decode steps that follow from the one before: what advance_step() makes of a step's tensors is
// what the host writes for the next step, wherever no page comes from the pool or goes back to it.
#include "cache/step_ahead.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "support/batch_runner.h"
#include "support/devices.h"
#include "tessera/cache_batch.h"
#include "tessera/error.h"

namespace tessera::test {
namespace {

class StepAheadTest : public DeviceTest {
 protected:
  int steps_of_a_case() const { return is_emulated(GetParam()) ? 60 : 300; }
};
INSTANTIATE_TEST_SUITE_P(Devices, StepAheadTest, testing::ValuesIn(test_devices()), device_name);

// Streams in a pool of their own, whose steps a device runs.
class Streams {
 public:
  Streams(Context& ctx, std::int64_t page_size, bool prefix_cache)
      : ctx_(ctx),
        pool_(ctx, tiny_pool(4000 / page_size + 200, page_size, prefix_cache)),
        batch_(ctx, pool_,
               {.max_tokens = 64,
                .max_sequences = 16,
                .max_pages_of_a_sequence = 1000 / page_size + 8,
                .pads = true}) {
    sequences_.reserve(16);
  }

  std::vector<CacheSequence>& sequences() { return sequences_; }
  std::int64_t uploads() const { return batch_.uploads(); }
  void add(const CachePolicy& policy) { sequences_.emplace_back(pool_, policy, 900, 40); }
  void read(CacheSequence& sequence, std::int64_t tokens) {
    while (tokens > 0) {
      const std::int64_t now = sequence.step_size(std::min<std::int64_t>(tokens, 40));
      std::vector<std::int32_t> ids;
      for (std::int64_t i = 0; i < now; ++i) ids.push_back(static_cast<std::int32_t>(i % 5));
      const CacheBatch::Part part{&sequence, ids, 0};
      batch_.step(ctx_, {&part, 1});
      batch_.commit();
      tokens -= now;
    }
  }

  // One drawn token of every sequence. Returns whether the host had to write the step.
  bool step() {
    const std::int64_t before = batch_.uploads();
    const std::vector<char> made = on_device();
    parts_.clear();
    ids_.clear();
    for (std::size_t i = 0; i < sequences_.size(); ++i) {
      ids_.push_back(-1 - static_cast<std::int32_t>(i));
    }
    for (std::size_t i = 0; i < sequences_.size(); ++i) {
      parts_.push_back({&sequences_[i], {&ids_[i], 1}, 1});
    }
    step_ = &batch_.step(ctx_, parts_);
    const bool uploaded = batch_.uploads() > before;
    if (step_->ahead == nullptr) {
      ADD_FAILURE() << "a step of drawn tokens cannot be advanced";
      return uploaded;
    }
    const std::int64_t bytes = step_->ahead->args().block.bytes();
    if (!uploaded) {  // on the CPU the host has written over it by now
      EXPECT_EQ(std::ssize(made), bytes);
      EXPECT_EQ(std::memcmp(made.data(), step_->host_block, made.size()), 0);
    }
    const std::vector<char> device = on_device();
    EXPECT_EQ(std::memcmp(device.data(), step_->host_block, device.size()), 0);
    return uploaded;
  }
  void advance() {
    advance_step(ctx_, step_->ahead->args());
    step_->ahead->advanced();
    for (CacheSequence& sequence : sequences_) sequence.set_id(sequence.seen() - 1, 3);
    batch_.commit();
  }

 private:
  std::vector<char> on_device() {
    if (step_ == nullptr || step_->ahead == nullptr) return {};
    const Tensor block = step_->ahead->args().block;
    std::vector<char> bytes(static_cast<std::size_t>(block.bytes()));
    copy_bytes(ctx_, bytes.data(), Device{}, block.data, block.device, block.bytes());
    return bytes;
  }

  Context& ctx_;
  PagePool pool_;
  CacheBatch batch_;
  std::vector<CacheSequence> sequences_;
  std::vector<CacheBatch::Part> parts_;
  std::vector<std::int32_t> ids_;
  const CacheStep* step_ = nullptr;
};

CachePolicy any_policy(std::mt19937& random) {
  const auto up_to = [&](std::uint32_t most) { return static_cast<std::int64_t>(random() % most); };
  switch (random() % 3) {
    case 0:
      return CachePolicy::full();
    case 1:
      return CachePolicy::last(1 + up_to(70));
    default:
      return CachePolicy::sinks(up_to(10), 1 + up_to(70));
  }
}

// The host writes the first step, and any in which a sequence has more or fewer pages than before:
// no more and no fewer than these.
TEST_P(StepAheadTest, RandomStreamsOfEveryPolicy) {
  std::mt19937 random(1);
  std::int64_t made = 0;
  for (const std::int64_t page_size : {1, 2, 3, 8, 16, 64}) {
    for (const std::size_t count : {1u, 2u, 3u, 5u, 8u, 13u, 16u}) {
      SCOPED_TRACE(std::to_string(count) + " streams, pages of " + std::to_string(page_size));
      Streams streams(ctx(), page_size, /*prefix_cache=*/false);
      for (std::size_t i = 0; i < count; ++i) {
        streams.add(any_policy(random));
        streams.read(streams.sequences().back(), static_cast<std::int64_t>(random() % 150));
      }
      std::vector<std::int64_t> pages(count, -1);
      for (int i = 0; i < steps_of_a_case(); ++i) {
        const bool uploaded = streams.step();
        bool expected = false;
        for (std::size_t s = 0; s < count; ++s) {
          const std::int64_t now = streams.sequences()[s].pages();
          expected = expected || now != pages[s];
          pages[s] = now;
        }
        ASSERT_EQ(uploaded, expected) << "step " << i;
        ASSERT_FALSE(HasFailure()) << "step " << i;
        made += uploaded ? 0 : 1;
        streams.advance();
      }
    }
  }
  EXPECT_GT(made, 0);
}

// Pages that others hold, or that can be found, are not written to: they come from the pool.
TEST_P(StepAheadTest, SharedPagesAndStreamsThatComeAndGo) {
  std::mt19937 random(2);
  for (const std::int64_t page_size : {1, 3, 8}) {
    SCOPED_TRACE("pages of " + std::to_string(page_size));
    Streams streams(ctx(), page_size, /*prefix_cache=*/true);
    std::vector<CacheSequence>& all = streams.sequences();
    for (int i = 0; i < 2 * steps_of_a_case(); ++i) {
      const std::uint32_t what = random() % 20;
      if (all.empty() || (what == 0 && all.size() < 16)) {
        streams.add(any_policy(random));
        streams.read(all.back(), static_cast<std::int64_t>(random() % 100));
      } else if (what == 1 && all.size() < 16) {
        all.push_back(all[random() % all.size()].fork());
      } else if (what == 2 && all.size() > 1) {
        all.erase(all.begin() + static_cast<std::ptrdiff_t>(random() % all.size()));
      } else if (what == 3) {  // the token was drawn in vain
        CacheSequence& sequence = all[random() % all.size()];
        if (sequence.seen() > 0 && i > 0) {
          try {
            sequence.truncate(sequence.seen() - 1);
          } catch (const Error&) {  // it was in no step lately
          }
        }
      }
      std::erase_if(all, [](const CacheSequence& sequence) { return !sequence.has_room(); });
      if (all.empty()) continue;
      streams.step();
      ASSERT_FALSE(HasFailure()) << "step " << i;
      if (what != 4) streams.advance();  // or the pass has failed
    }
  }
}

// A stream that has outgrown its cache needs nothing of the host any more.
TEST_P(StepAheadTest, AnEndlessStreamIsNeverUploaded) {
  const int steps = is_emulated(GetParam()) ? 300 : 5000;
  for (const CachePolicy& policy : {CachePolicy::last(1), CachePolicy::last(61),
                                    CachePolicy::sinks(4, 60), CachePolicy::sinks(0, 33)}) {
    for (const std::int64_t page_size : {1, 4, 16, 64}) {
      SCOPED_TRACE(to_string(policy) + ", pages of " + std::to_string(page_size));
      Streams streams(ctx(), page_size, /*prefix_cache=*/false);
      streams.add(policy);
      for (int i = 0; i < 200; ++i) {  // the longest needs two pages of 64 and one of sinks
        streams.step();
        streams.advance();
      }
      const std::int64_t uploads = streams.uploads();
      for (int i = 0; i < steps; ++i) {
        streams.step();
        streams.advance();
        ASSERT_FALSE(HasFailure()) << "step " << i;
      }
      EXPECT_EQ(streams.uploads(), uploads);
    }
  }
}

// A pass that did not end with advance_step(), or whose step nobody ran, leaves nothing to go by.
TEST_P(StepAheadTest, AStepThatWasNotAdvancedIsUploaded) {
  Streams streams(ctx(), 64, /*prefix_cache=*/false);
  streams.add(CachePolicy::full());
  EXPECT_TRUE(streams.step());
  EXPECT_TRUE(streams.step());
  streams.advance();
  EXPECT_FALSE(streams.step());
  EXPECT_TRUE(streams.step());
}

}  // namespace
}  // namespace tessera::test
