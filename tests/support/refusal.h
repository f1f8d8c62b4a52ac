// Checks that an op refuses a call, and with which message.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "tessera/error.h"

namespace tessera::test {

// A row of a table of refusals: a change that spoils good arguments, and the message of the op.
template <typename Args>
struct Refusal {
  std::function<void(Args&)> spoil;
  std::string text;
  ErrorCode code = ErrorCode::invalid_argument;
};

// Whether fn() throws an Error of this code with exactly this text.
template <typename F>
testing::AssertionResult refuses(F&& fn, const std::string& text,
                                 ErrorCode code = ErrorCode::invalid_argument) {
  try {
    fn();
  } catch (const Error& error) {
    if (error.what() == text && error.code() == code) return testing::AssertionSuccess();
    return testing::AssertionFailure() << "refused with code " << static_cast<int>(error.code())
                                       << " and the text\n  " << error.what() << "\nexpected code "
                                       << static_cast<int>(code) << " and the text\n  " << text;
  }
  return testing::AssertionFailure() << "was not refused; expected the text\n  " << text;
}

}  // namespace tessera::test
