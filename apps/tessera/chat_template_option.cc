#include "chat_template_option.h"

#include <vector>

#include "option_checks.h"
#include "tessera/chat.h"

namespace tessera::app {

void add_chat_template_option(CLI::App& command, std::string& name) {
  std::vector<std::string> names;
  names.reserve(chat_templates().size());
  for (const ChatTemplate& chat : chat_templates()) names.push_back(chat.name);
  command
      .add_option("--chat-template,--template", name,
                  "Chat template to use instead of the one in the model's folder")
      ->type_name("NAME")
      ->check(one_of(names));
}

}  // namespace tessera::app
