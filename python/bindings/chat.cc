#include "tessera/chat.h"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bind.h"
#include "call.h"

namespace tessera::python {

using namespace nb::literals;

namespace {

// Without a name, the template that the model's folder has; a folder without one is refused.
ChatTemplate find_template(const std::optional<std::string>& name,
                           const std::filesystem::path& directory) {
  if (name) return chat_template(*name);
  if (std::optional<ChatTemplate> found = folder_chat_template(directory)) return *found;
  std::string names;
  for (const ChatTemplate& known : chat_templates()) {
    names += (names.empty() ? "" : ", ") + known.name;
  }
  refuse(directory.string() + " has no chat template; name one with chat_template=: " + names);
}

// The ids of a conversation up to where the answer begins, and the token that ends the answer; -1:
// none.
std::pair<std::vector<std::int32_t>, std::int32_t> encode_chat(
    const PromptEncoder& prompt, const std::filesystem::path& directory,
    const std::vector<std::pair<std::string, std::string>>& messages,
    const std::optional<std::string>& name) {
  const ChatEncoder encoder(prompt, find_template(name, directory));
  std::vector<ChatMessage> turns;
  turns.reserve(messages.size());
  for (const auto& [role, content] : messages) turns.push_back({role, content});
  return {encoder.encode(turns), encoder.turn_end()};
}

}  // namespace

void bind_chat(nb::module_& m) {
  m.def("encode_chat", &encode_chat, "prompt"_a, "directory"_a, "messages"_a,
        "chat_template"_a = nb::none(),
        "Messages [(role, content)] as ids, and the token that ends an answer (-1: none).");
}

}  // namespace tessera::python
