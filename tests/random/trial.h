// One random call: what it may use, and what is said about its result.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "random/draws.h"
#include "random/watchdog.h"
#include "reference/array.h"
#include "tessera/context.h"

namespace tessera::test {

class Trial {
 public:
  Trial(std::string op, Draws& drawn, Context& context, Context& other_context,
        std::int64_t most_work, Watchdog& watchdog)
      : draws(drawn),
        ctx(context),
        others(other_context),
        work(most_work),
        op_(std::move(op)),
        watchdog_(watchdog) {}

  bool on_cpu() const { return ctx.device().is_cpu(); }
  // Tells the watchdog which kernel runs next. What is expected from here on is expected of it.
  void begin(const std::string& kernel);
  void expect(const testing::AssertionResult& result, const std::string& what);
  void expect(bool holds, const std::string& what) {
    expect(holds ? testing::AssertionSuccess() : testing::AssertionFailure(), what);
  }
  // |actual - expected| <= bound for every element; says which breaks it most.
  void expect_within(const reference::Array& actual, const reference::Array& expected,
                     const reference::Array& bound, const std::string& what);

  const std::vector<std::string>& problems() const { return problems_; }
  std::string line() const { return op_ + (draws.line().empty() ? "" : " ") + draws.line(); }

  Draws& draws;
  Context& ctx;
  Context& others;          // of the same device, with another number of threads
  const std::int64_t work;  // how many products of two numbers a call may need

 private:
  std::string op_, kernel_;
  Watchdog& watchdog_;
  std::vector<std::string> problems_;
};

}  // namespace tessera::test
