// A page that stands alone: no script, no network, readable in light and dark. Every number in a
// table has its full value, as in the JSON, in the attribute data-value.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tessera::app {

struct HtmlCell {
  std::string text;
  nlohmann::json value = nullptr;  // null: words
  std::string key{};               // of the JSON: "max_gain"
};

struct HtmlTable {
  std::string id;  // "decode"
  std::vector<std::string> head;
  std::vector<std::vector<HtmlCell>> rows;
};

class HtmlPage {
 public:
  HtmlPage(const std::string& title, const std::string& lead);

  void heading(const std::string& text);
  void paragraph(const std::string& text);
  void list(const std::vector<std::string>& items);
  void table(const HtmlTable& table);
  void svg(const std::string& markup);
  // Ends the page, with the report's JSON inside for other programs.
  std::string end(const nlohmann::json& report);

 private:
  std::string out_;
};

}  // namespace tessera::app
