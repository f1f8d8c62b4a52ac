// Steps before the first request leave nothing behind.
#include <gtest/gtest.h>

#include <memory>

#include "support/devices.h"
#include "support/files.h"
#include "tessera/engine.h"

namespace tessera::test {
namespace {

class WarmUpTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (!IsSkipped()) ctx().trace().enable(false);
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, WarmUpTest, testing::ValuesIn(test_devices()), device_name);

GenerateResult answer(Context& ctx, const Model& model, bool warm_up, std::int64_t pages,
                      std::int64_t context = 96) {
  Engine engine(ctx, model, nullptr,
                {.context = context,
                 .max_sequences = 3,
                 .max_step_tokens = 50,
                 .pages = pages,
                 .page_size = 8,
                 .warm_up = warm_up});
  EXPECT_EQ(engine.stats().pages_used, 0);
  EXPECT_EQ(engine.stats().steps, 0);
  Request request;
  request.prompt_ids = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3};
  request.options = {.max_tokens = 6, .ignore_eos = true, .sampling = {.greedy = true}};
  GenerateResult result = engine.submit(request).wait().front();
  EXPECT_EQ(engine.stats().cached_tokens, 0);  // no page of the steps before can be found
  return result;
}

TEST_P(WarmUpTest, LeavesNothingBehind) {
  const auto model =
      load_model(ctx(), data_path("goldens") / "neox-serial-untied", {.dtype = DType::f32});
  const GenerateResult cold = answer(ctx(), *model, false, 24);
  EXPECT_EQ(answer(ctx(), *model, true, 24).ids, cold.ids);
  EXPECT_EQ(answer(ctx(), *model, true, 2).ids, cold.ids);  // no pages for most sizes
  // A step may have more tokens than a sequence.
  EXPECT_EQ(answer(ctx(), *model, true, 24, /*context=*/20).ids, cold.ids);
}

}  // namespace
}  // namespace tessera::test
