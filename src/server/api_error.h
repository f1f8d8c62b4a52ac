// A refusal in the words and the shape of the OpenAI API.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "tessera/error.h"

namespace tessera::server {

struct ApiError : std::runtime_error {
  ApiError(int status_, const std::string& message, std::string param_ = {}, std::string code_ = {})
      : std::runtime_error(message),
        status(status_),
        param(std::move(param_)),
        code(std::move(code_)) {}

  int status;
  std::string param;            // the field to blame; empty: none
  std::string code;             // "model_not_found"; empty: none
  int retry_after_seconds = 0;  // 0: not said
};

// The field's name is a part of the sentence.
template <typename... Args>
[[noreturn]] void refuse(const std::string& field, fmt::format_string<Args...> format,
                         Args&&... args) {
  throw ApiError(400, fmt::format(format, std::forward<Args>(args)...), field);
}

// The same for fields of which each is right, and which contradict each other or what this model
// can do.
template <typename... Args>
[[noreturn]] void refuse_together(const std::string& field, fmt::format_string<Args...> format,
                                  Args&&... args) {
  throw ApiError(422, fmt::format(format, std::forward<Args>(args)...), field);
}

// An error of the library as a client should see it: 400 for what the request asked, 429 and 503
// for a bad time, 500 for the rest.
ApiError api_error(ErrorCode code, const std::string& message);
// The same sentence wherever a request meets the end of the server, or asks for another model.
ApiError shutting_down();
ApiError no_such_model(std::string_view asked, std::string_view served);
// To be called in a catch block, of anything that was thrown.
ApiError caught_error();

// {"error": {"message", "type", "param", "code"}}
nlohmann::json error_json(const ApiError& error);

}  // namespace tessera::server
