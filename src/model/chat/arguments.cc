#include "model/chat/arguments.h"

#include <algorithm>

namespace tessera::model::chat {

void place_arguments(const Run& run, const CallArguments& arguments, std::string_view function,
                     std::span<const std::string_view> parameters, std::span<const Value*> placed) {
  if (arguments.positional.size() > parameters.size()) {
    run.refuse("{} takes at most {} arguments, not {}", function, parameters.size(),
               arguments.positional.size());
  }
  for (std::size_t i = 0; i < arguments.positional.size(); ++i)
    placed[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto parameter = std::find(parameters.begin(), parameters.end(), name);
    if (parameter == parameters.end()) run.refuse("{} has no parameter '{}'", function, name);
    const Value*& place = placed[static_cast<std::size_t>(parameter - parameters.begin())];
    if (place != nullptr) run.refuse("{} is given '{}' twice", function, name);
    place = &value;
  }
}

Text text_argument(const Run& run, const Value* value, std::string_view function) {
  const Text* text = value == nullptr ? nullptr : value->as<Text>();
  if (text == nullptr) {
    run.refuse("{} needs a string, not {}", function,
               value == nullptr ? "nothing" : type_name(*value));
  }
  return *text;
}

std::int64_t integer_argument(const Run& run, const Value* value, std::int64_t otherwise,
                              std::string_view function) {
  if (value == nullptr) return otherwise;
  if (!is_integer(*value)) {
    run.refuse("{} needs a whole number, not {}", function, type_name(*value));
  }
  return integer_of(*value);
}

}  // namespace tessera::model::chat
