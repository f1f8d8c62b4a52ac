// The page at /: one file without anything from the network.
#pragma once

#include <string>

namespace tessera::server {

struct Page {
  std::string html;
  std::string policy;  // Content-Security-Policy: only this answer's own style and script run
};

Page make_page();

}  // namespace tessera::server
