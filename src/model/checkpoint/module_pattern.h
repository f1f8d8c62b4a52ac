// The ways in which a quantization_config names modules.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace tessera::model {

class ModulePattern {
 public:
  // compressed-tensors: a name, or "re:" and a regular expression that must match from the name's
  // beginning (the end of the name may be anything, as with Python's re.match). An expression that
  // does not compile is refused with the reason; `where` names the config in that sentence.
  static ModulePattern target(const std::string& text, const std::string& where);
  // ModelOpt: a name in which * stands for anything.
  static ModulePattern wildcard(const std::string& text);

  bool matches(std::string_view name) const;
  bool is_expression() const { return expression_ != nullptr; }
  const std::string& text() const { return text_; }

 private:
  struct Expression;

  std::string text_;
  bool wildcard_ = false;
  std::shared_ptr<const Expression> expression_;  // shared: patterns are values
};

}  // namespace tessera::model
