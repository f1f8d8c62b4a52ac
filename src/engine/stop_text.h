// Finds stop strings in text that arrives in pieces. Text that may begin a stop string is held back
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

  // Takes the next piece and returns the text that is certain to come before any stop string. Once
  // a stop string has been found, it returns nothing more.
  std::string push(std::string_view text);
  // Ends the text. What was held back is not a stop string, so it is returned.
  std::string finish();
  bool stopped() const { return stopped_; }

 private:
  std::size_t held_length() const;

  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace tessera
