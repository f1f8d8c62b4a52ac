// Finds stop strings in text that comes in pieces. What may be the beginning of one is held back
// until it is certain.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera {

class StopText {
 public:
  // Refuses an empty stop string.
  explicit StopText(std::vector<std::string> stops);

  // Takes the next piece; returns what is certain to come before any stop string. Once one has been
  // found, nothing more comes.
  std::string push(std::string_view text);
  // The text has ended: what was held back is not a stop string.
  std::string finish();
  bool stopped() const { return stopped_; }

 private:
  std::size_t held_length() const;

  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace tessera
