// Files that a command writes beside what it prints: pages and plots.
#pragma once

#include <string>
#include <string_view>

namespace tessera::app {

// Refuses a name that has not this ending, and a folder that is not there: before the work, not
// after it. `option`: "--html".
void check_report_file(std::string_view option, const std::string& path, std::string_view ending);
void check_report_folder(std::string_view option, const std::string& path);
// Throws where it cannot be written whole.
void write_report_file(const std::string& path, std::string_view text);
// The whole file. Throws where it cannot be read.
std::string read_report_file(const std::string& path);

}  // namespace tessera::app
