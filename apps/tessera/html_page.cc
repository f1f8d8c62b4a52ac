#include "html_page.h"

#include <fmt/format.h>

#include <string_view>

#include "markup.h"

namespace tessera::app {
namespace {

constexpr std::string_view kPageStyle =
    "<style>\n"
    ":root{color-scheme:light dark;--paper:#ffffff;--ink:#1d2733;--soft:#5b6875;--line:#dfe4e9}\n"
    "@media (prefers-color-scheme: dark){:root{--paper:#14181d;--ink:#e6eaee;--soft:#a3afba;"
    "--line:#323a43}}\n"
    "body{background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,Helvetica,Arial,"
    "sans-serif;max-width:1100px;margin:2rem auto;padding:0 1rem}\n"
    "h1{font-size:1.5rem;margin-bottom:.2rem}h2{font-size:1.15rem;margin-top:2rem}"
    "p{color:var(--soft)}\n"
    ".scroll{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums;"
    "font-size:13px}\n"
    "th,td{padding:.25rem .6rem;border-bottom:1px solid var(--line);text-align:left}"
    "td.number{text-align:right;white-space:nowrap}\n"
    "svg{max-width:100%;height:auto;display:block;margin:1rem 0}\n"
    "</style>\n";

// Inside of a script element, "</" would end it.
std::string for_script(const nlohmann::json& report) {
  const std::string text = report.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    result += text[i];
    if (text[i] == '<' && i + 1 < text.size() && text[i + 1] == '/') result += '\\';
  }
  return result;
}

}  // namespace

HtmlPage::HtmlPage(const std::string& title, const std::string& lead) {
  out_ = fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<link rel=\"icon\" href=\"data:,\">\n<title>{0}</title>\n{1}</head>\n<body>\n"
      "<h1>{0}</h1>\n",
      escape_markup(title), kPageStyle);
  paragraph(lead);
}

void HtmlPage::heading(const std::string& text) {
  out_ += fmt::format("<h2>{}</h2>\n", escape_markup(text));
}

void HtmlPage::paragraph(const std::string& text) {
  out_ += fmt::format("<p>{}</p>\n", escape_markup(text));
}

void HtmlPage::list(const std::vector<std::string>& items) {
  out_ += "<ul>\n";
  for (const std::string& item : items) out_ += fmt::format("<li>{}</li>\n", escape_markup(item));
  out_ += "</ul>\n";
}

void HtmlPage::table(const HtmlTable& table) {
  out_ += fmt::format("<div class=\"scroll\"><table id=\"{}\">\n<thead><tr>", table.id);
  for (const std::string& word : table.head) {
    out_ += fmt::format("<th>{}</th>", escape_markup(word));
  }
  out_ += "</tr></thead>\n<tbody>\n";
  for (const std::vector<HtmlCell>& row : table.rows) {
    out_ += "<tr>";
    for (const HtmlCell& cell : row) {
      const std::string key =
          cell.key.empty() ? "" : fmt::format(" data-key=\"{}\"", escape_markup(cell.key));
      if (cell.value.is_null()) {
        out_ += fmt::format("<td{}>{}</td>", key, escape_markup(cell.text));
      } else {
        out_ += fmt::format("<td class=\"number\"{} data-value=\"{}\">{}</td>", key,
                            cell.value.dump(), escape_markup(cell.text));
      }
    }
    out_ += "</tr>\n";
  }
  out_ += "</tbody></table></div>\n";
}

void HtmlPage::svg(const std::string& markup) { out_ += markup; }

std::string HtmlPage::end(const nlohmann::json& report) {
  return out_ + "<script type=\"application/json\" id=\"report\">\n" + for_script(report) +
         "\n</script>\n</body>\n</html>\n";
}

}  // namespace tessera::app
