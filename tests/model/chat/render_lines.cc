// Renders templates for the comparison with jinja2: one JSON object a line in, one a line out.
//   {"source": "...", "messages": [...], "variables": {...}, "tokens": {...}, "unix_time": 0}
//   {"text": "..."} or {"error": "..."}
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "model/chat/program.h"
#include "tessera/error.h"

namespace {

using Json = nlohmann::ordered_json;

Json rendered(const Json& line) {
  std::vector<tessera::ChatMessage> messages;
  for (const Json& message : line.at("messages")) messages.push_back({"", "", message.dump()});
  tessera::model::chat::Program::Tokens tokens;
  for (const auto& [name, token] : line.at("tokens").items()) tokens.emplace_back(name, token);
  const tessera::ChatOptions options{.add_generation_prompt = line.at("add_generation_prompt"),
                                     .variables = line.at("variables").dump(),
                                     .unix_time = line.at("unix_time").get<std::int64_t>()};
  try {
    const tessera::model::chat::Program program(line.at("source").get<std::string>());
    return {{"text", program.render(messages, options, tokens).text}};
  } catch (const tessera::Error& error) {
    return {{"error", error.what()}};
  }
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << rendered(Json::parse(line)).dump(-1, ' ', false, Json::error_handler_t::replace)
              << '\n';
  }
  return 0;
}
