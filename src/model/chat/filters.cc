#include "model/chat/filters.h"

namespace tessera::model::chat {

FilterFunction find_filter(std::string_view name) {
  if (const FilterFunction filter = text_filter(name)) return filter;
  if (const FilterFunction filter = list_filter(name)) return filter;
  return number_filter(name);
}

Value apply_filter(Run& run, std::string_view name, const Value& value,
                   const CallArguments& arguments) {
  const FilterFunction filter = find_filter(name);
  if (filter == nullptr) run.refuse("there is no filter '{}'", name);
  run.step();
  return filter(run, value, arguments);
}

}  // namespace tessera::model::chat
