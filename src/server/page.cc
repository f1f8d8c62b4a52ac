#include "server/page.h"

#include <fmt/format.h>

#include <string_view>

#include "server/random_hex.h"

namespace tessera::server {

extern const std::string_view kPageHtml;  // page/index.html, put into the program by the build

namespace {

constexpr std::string_view kPlaceholder = "__NONCE__";

std::string with_nonce(std::string_view html, std::string_view nonce) {
  std::string filled;
  filled.reserve(html.size());
  while (true) {
    const std::size_t at = html.find(kPlaceholder);
    filled += html.substr(0, at);
    if (at == std::string_view::npos) return filled;
    filled += nonce;
    html.remove_prefix(at + kPlaceholder.size());
  }
}

}  // namespace

Page make_page() {
  const std::string nonce = random_hex(4);
  return {with_nonce(kPageHtml, nonce),
          fmt::format("default-src 'none'; script-src 'nonce-{0}'; style-src 'nonce-{0}'; "
                      "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
                      "frame-ancestors 'none'",
                      nonce)};
}

}  // namespace tessera::server
