// From Oniguruma's regular expressions (Ruby syntax, as the `tokenizers` library compiles them) to
// PCRE2's. The two agree on most; what this translates is where they would silently differ.
#pragma once

#include <string>
#include <string_view>

namespace tessera::model {

// The same pattern for PCRE2 with UTF, UCP and MULTILINE on. Refuses by name what has no
// counterpart; `where` names the pattern in errors.
std::string pcre_from_oniguruma(std::string_view pattern, const std::string& where);

}  // namespace tessera::model
