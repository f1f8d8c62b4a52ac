// The kernel against the rules on the host (core/step_row.h), byte for byte, over a block whose
// outputs are poisoned. That the rules are right: tests/cache/step_ahead_test.cc.
#include "ops/advance_step.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "core/download.h"
#include "core/step_row.h"
#include "support/devices.h"
#include "support/refusal.h"
#include "tessera/buffer.h"

namespace tessera::test {
namespace {

class AdvanceStepTest : public DeviceTest {
 protected:
  Buffer on_device(const void* data, std::int64_t bytes) {
    Buffer buffer(bytes, GetParam());
    copy_bytes(ctx(), buffer.data(), GetParam(), data, Device::cpu(), bytes);
    return buffer;
  }
  template <typename T>
  std::vector<T> on_host(const Buffer& buffer) {
    std::vector<T> items(static_cast<std::size_t>(buffer.bytes()) / sizeof(T));
    copy_bytes(ctx(), items.data(), Device::cpu(), buffer.data(), GetParam(), buffer.bytes());
    return items;
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, AdvanceStepTest, testing::ValuesIn(test_devices()), device_name);

// Rows, positions, slots, lengths, holes, tables: as the cache lays a step out.
struct Block {
  std::int64_t count;
  std::vector<std::int64_t> memory;  // 8 bytes each

  std::int64_t positions_at() const { return kStepRowWords * count; }
  std::int64_t slots_at() const { return positions_at() + count; }
  StepRow* rows() { return reinterpret_cast<StepRow*>(memory.data()); }
  std::int32_t* words() { return reinterpret_cast<std::int32_t*>(memory.data()); }
  StepRowTensors tensors() {
    return {.positions = memory.data() + positions_at(),
            .slots = reinterpret_cast<std::int32_t*>(memory.data() + slots_at()),
            .words = words()};
  }
};

Block random_block(std::int64_t count, std::mt19937& random) {
  const auto up_to = [&](std::int64_t most) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint32_t>(most + 1));
  };
  const std::int64_t width = 80;
  Block block{.count = count, .memory = {}};
  block.memory.assign(static_cast<std::size_t>((kStepRowWords + 1 + 2 + width / 2 + 1) * count),
                      0x7777777777777777);
  const std::int64_t lengths_at = 2 * block.slots_at() + count, holes_at = lengths_at + count,
                     tables_at = holes_at + 2 * count;
  for (std::int64_t r = 0; r < count; ++r) {
    StepRow& row = block.rows()[r] = {};
    if (up_to(5) == 0) continue;  // nobody's
    const bool sinks = up_to(1) == 0;
    // Up to 70 pages in the line: more than a warp's lanes.
    row.rules = {sinks ? up_to(5) : 0, 1 + up_to(68), 1 + up_to(6), sinks};
    row.token = up_to(300);
    const std::int64_t oldest = row.rules.oldest(row.token);
    row.line_begin = std::max<std::int64_t>(0, row.rules.line_page(oldest) - up_to(1));
    row.length_at = static_cast<std::int32_t>(lengths_at + r);
    row.hole_at = up_to(3) == 0 ? -1 : static_cast<std::int32_t>(holes_at + 2 * r);
    row.table_at = static_cast<std::int32_t>(tables_at + r * width);
    row.pages = static_cast<std::int32_t>(row.rules.place(row.token, row.line_begin) + 1);
    for (std::int64_t i = 0; i < row.pages; ++i) {
      block.words()[row.table_at + i] = static_cast<std::int32_t>(up_to(1000));
    }
  }
  return block;
}

TEST_P(AdvanceStepTest, RowsDrawsAndIdsOfSeveralSteps) {
  std::mt19937 random(1);
  std::int64_t turned = 0;
  for (const std::int64_t rows : {1, 2, 7, 33, 128}) {
    for (const std::int64_t draws : {0, 1, 5, 70}) {
      SCOPED_TRACE(std::to_string(rows) + " rows, " + std::to_string(draws) + " draws");
      Block block = random_block(rows, random);
      const auto bytes = static_cast<std::int64_t>(8 * block.memory.size());
      const Buffer device = on_device(block.memory.data(), bytes);
      std::vector<DrawOptions> options(static_cast<std::size_t>(draws));
      std::vector<std::int32_t> ids(options.size());
      for (std::size_t d = 0; d < options.size(); ++d) {
        options[d] = {.temperature = d % 3 == 0 ? 0 : 0.7, .seed = d, .draw = 1000 * d};
        ids[d] = static_cast<std::int32_t>(random() % 50000);
      }
      const auto option_bytes = static_cast<std::int64_t>(options.size() * sizeof(DrawOptions));
      const Buffer device_options = on_device(options.data(), option_bytes);
      const Buffer device_ids = on_device(ids.data(), 4 * draws);
      const std::int64_t first_turn = static_cast<std::int64_t>(random() % 2);
      const Buffer turn = on_device(&first_turn, 8);
      Download places[2] = {{ctx(), 4 * 70}, {ctx(), 4 * 70}};
      auto* data = static_cast<std::int64_t*>(device.data());
      AdvanceStepArgs args{
          .rows = Tensor(data, DType::i64, {rows, kStepRowWords}, GetParam()),
          .positions = Tensor(data + block.positions_at(), DType::i64, {rows}, GetParam()),
          .slots = Tensor(data + block.slots_at(), DType::i32, {rows}, GetParam()),
          .block = Tensor(data, DType::i32, {bytes / 4}, GetParam())};
      if (draws > 0) {
        args.draws = device_options.tensor(DType::i64, {draws, kDrawOptionsWords});
        args.ring = {.ids = device_ids.tensor(DType::i32, {draws}),
                     .turn = turn.tensor(DType::i64, {1}),
                     .places = {static_cast<std::int32_t*>(places[0].target()),
                                static_cast<std::int32_t*>(places[1].target())}};
      }
      for (int step = 0; step < 9; ++step) {
        args.settled = step % 2 == 0;  // the trace waits for every call
        for (std::int64_t r = 0; r < rows; ++r) {
          turned += block.rows()[r].token >= 0 && block.rows()[r].turns() ? 1 : 0;
        }
        advance_rows({block.rows(), static_cast<std::size_t>(rows)}, block.tensors());
        for (DrawOptions& draw : options) draw.draw = next_draw(draw.temperature, draw.draw);
        Download& place = places[(first_turn + step) % 2];
        if (draws > 0) std::memset(place.target(), 0x77, static_cast<std::size_t>(4 * draws));
        advance_step(ctx(), args);
        place.arrives(ctx());
        const void* sent = place.wait(ctx());
        ASSERT_EQ(on_host<std::int64_t>(device), block.memory) << "step " << step;
        if (draws == 0) continue;
        EXPECT_EQ(std::memcmp(on_host<char>(device_options).data(), options.data(),
                              static_cast<std::size_t>(option_bytes)),
                  0);
        EXPECT_EQ(std::memcmp(sent, ids.data(), 4 * ids.size()), 0);
        EXPECT_EQ(on_host<std::int64_t>(turn).front(), first_turn + step + 1);
      }
    }
  }
  EXPECT_GT(turned, 100);  // pages went round
}

TEST_P(AdvanceStepTest, Refusals) {
  const Buffer memory(4096, GetParam());
  auto* data = static_cast<std::int64_t*>(memory.data());
  const AdvanceStepArgs good{.rows = Tensor(data, DType::i64, {2, kStepRowWords}, GetParam()),
                             .positions = Tensor(data + 16, DType::i64, {2}, GetParam()),
                             .slots = Tensor(data + 18, DType::i32, {2}, GetParam()),
                             .block = Tensor(data, DType::i32, {38}, GetParam())};
  const auto refused = [&](auto change, const char* text) {
    AdvanceStepArgs args = good;
    change(args);
    EXPECT_TRUE(refuses([&] { advance_step(ctx(), args); }, text));
  };
  refused([](AdvanceStepArgs& args) { args.rows = {}; }, "advance_step: rows was not given");
  refused([&](AdvanceStepArgs& a) { a.slots = Tensor(data, DType::i32, {3}, GetParam()); },
          "advance_step: slots must have shape [2], got i32[3]");
  refused(
      [&](AdvanceStepArgs& a) {
        a.draws = Tensor(data, DType::i64, {2, 5}, GetParam());
      },
      "advance_step: draws must have shape [any, 6], got i64[2, 5]");
  refused(
      [&](AdvanceStepArgs& a) {
        a.ring.ids = Tensor(data, DType::i32, {2}, GetParam());
        a.ring.turn = Tensor(data, DType::i64, {1}, GetParam());
      },
      "advance_step: the ring has no places");
}

}  // namespace
}  // namespace tessera::test
