#include "model/chat/chat_file.h"

#include <nlohmann/json.hpp>

#include "core/fail.h"
#include "model/checkpoint/json.h"

namespace tessera::model::chat {
namespace {

using OrderedJson = nlohmann::ordered_json;  // templates write members in the file's order

std::string text_member(const OrderedJson& object, const char* key) {
  const auto member = object.find(key);
  return member != object.end() && member->is_string() ? member->get<std::string>() : "";
}

ChatMessage read_message(const OrderedJson& item, std::size_t index, const std::string& where) {
  if (!item.is_object() || !item.contains("role") || !item["role"].is_string()) {
    fail(ErrorCode::file, "{}: message {} must be an object with a role", where, index);
  }
  return {text_member(item, "role"), text_member(item, "content"), item.dump()};
}

}  // namespace

ChatFile parse_chat_file(std::string_view json, const std::string& where) {
  parse_json(json, where);  // refuses text that is not JSON, nests too deep or has a key twice
  OrderedJson file = OrderedJson::parse(json);
  if (file.is_array()) file = OrderedJson{{"messages", std::move(file)}};
  if (!file.is_object() || !file.contains("messages") || !file["messages"].is_array()) {
    fail(ErrorCode::file, "{}: a list of messages is needed, or an object with one as \"messages\"",
         where);
  }
  ChatFile chat;
  for (const OrderedJson& item : file["messages"]) {
    chat.messages.push_back(read_message(item, chat.messages.size(), where));
  }
  file.erase("messages");
  if (const auto prompt = file.find("add_generation_prompt"); prompt != file.end()) {
    if (!prompt->is_boolean()) {
      fail(ErrorCode::file, "{}: add_generation_prompt must be true or false", where);
    }
    chat.options.add_generation_prompt = prompt->get<bool>();
    file.erase("add_generation_prompt");
  }
  if (!file.empty()) chat.options.variables = file.dump();
  return chat;
}

}  // namespace tessera::model::chat
