// One sum for all host memory of the process.
#include "core/memory_ledger.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/size_text.h"
#include "tessera/buffer.h"
#include "tessera/context.h"
#include "tessera/error.h"

namespace tessera::test {
namespace {

constexpr std::int64_t kMiB = 1 << 20, kGiB = 1 << 30;

TEST(MemoryLedger, TheSumCountsNotTheSingleRequest) {
  MemoryLedger ledger(10 * kGiB);
  ledger.take(6 * kGiB);
  try {
    ledger.take(6 * kGiB);
    FAIL() << "12 GiB fit into 10";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
    EXPECT_STREQ(error.what(),
                 "6.00 GiB of memory were requested and 4.00 GiB are free: this process may hold "
                 "10.00 GiB and holds 6.00 GiB");
  }
  EXPECT_EQ(ledger.held(), 6 * kGiB);  // a refusal takes nothing
  ledger.take(4 * kGiB);
  EXPECT_EQ(ledger.free(), 0);
  EXPECT_THROW(ledger.take(1), Error);
  ledger.give_back(6 * kGiB);
  EXPECT_NO_THROW(ledger.take(6 * kGiB));
  EXPECT_THROW(ledger.take(INT64_MAX), Error);
}

TEST(MemoryLedger, MappedFilesCountAndAreNotRefused) {
  MemoryLedger ledger(kGiB);
  ledger.add(2 * kGiB);
  EXPECT_EQ(ledger.free(), -kGiB);
  EXPECT_THROW(ledger.take(1), Error);
  ledger.give_back(2 * kGiB);
  EXPECT_NO_THROW(ledger.take(1));
}

TEST(MemoryLedger, ManyThreadsNeverHoldMoreThanTheLimit) {
  MemoryLedger ledger(100);
  std::atomic<int> taken = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        try {
          ledger.take(1);
          ++taken;
        } catch (const Error&) {
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(taken, 100);
  EXPECT_EQ(ledger.held(), 100);
}

TEST(MemoryLedger, TheLimitIsTheSmallerOneLessAReserve) {
  EXPECT_EQ(ledger_limit(16 * kGiB, 0), 15 * kGiB);  // no container
  EXPECT_EQ(ledger_limit(16 * kGiB, 8 * kGiB), 8 * kGiB - kGiB / 2);
  EXPECT_EQ(ledger_limit(16 * kGiB, 64 * kGiB), 15 * kGiB);
  EXPECT_EQ(ledger_limit(1024 * kGiB, 0), 1023 * kGiB);  // at most 1 GiB
  EXPECT_EQ(ledger_limit(512 * kMiB, 0), 448 * kMiB);    // at least 64 MiB
  EXPECT_EQ(ledger_limit(10 * kMiB, 0), 0);
}

TEST(MemoryLedger, BuffersAreCountedWhileTheyLive) {
  const std::int64_t before = process_ledger().held();
  {
    Buffer a(3000), empty;
    EXPECT_EQ(process_ledger().held(), before + 3000);
    Buffer b = std::move(a);
    EXPECT_EQ(process_ledger().held(), before + 3000);
    a = Buffer(500);
    EXPECT_EQ(process_ledger().held(), before + 3500);
    b = Buffer();
    EXPECT_EQ(process_ledger().held(), before + 500);
    MappedBytes mapped;
    mapped.add(70);
    MappedBytes moved = std::move(mapped);
    EXPECT_EQ(process_ledger().held(), before + 570);
    EXPECT_EQ(moved.bytes(), 70);
  }
  EXPECT_EQ(process_ledger().held(), before);
}

// Each of them would fit alone. Nothing is allocated for the one that does not.
TEST(MemoryLedger, BuffersThatFitAloneAndNotTogetherAreRefused) {
  MappedBytes others;  // takes all but 3 MiB, without memory behind it
  others.add(process_ledger().free() - 3 * kMiB);
  const Buffer first(2 * kMiB);
  EXPECT_THROW(Buffer second(2 * kMiB), Error);
  EXPECT_NO_THROW(Buffer third(kMiB));
  EXPECT_EQ(process_memory().free, kMiB);
}

TEST(MemoryLedger, AContextReportsItUnlessToldOtherwise) {
  const Buffer held(kMiB);
  const Context ctx({.threads = 1});
  EXPECT_EQ(ctx.memory().total, process_ledger().limit());
  EXPECT_EQ(ctx.memory().free, process_ledger().free());
  EXPECT_LE(ctx.memory().total, device_memory(Device::cpu()).total);
  const Context told(
      {.threads = 1, .memory = [](Device) { return DeviceMemory{.free = 1, .total = 2}; }});
  EXPECT_EQ(told.memory().total, 2);
}

}  // namespace
}  // namespace tessera::test
