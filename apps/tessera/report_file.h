// Files that a command writes beside what it prints: pages and plots.
#pragma once

#include <string>
#include <string_view>

namespace tessera::app {

// Refuses what cannot be written to, before the work and not after it: a folder that is not there,
// a name that belongs to a folder, a pipe or a device. `option`: "--html".
void check_report_place(std::string_view option, const std::string& path);
// And a name that has not this ending. Nothing is checked where there is no name.
void check_report_file(std::string_view option, const std::string& path, std::string_view ending);
void check_report_folder(std::string_view option, const std::string& path);
// All of it or nothing: throws where it cannot be written whole, and an older file then stays.
void write_report_file(const std::string& path, std::string_view text);
// The whole file. Throws where it cannot be read; a pipe or a device is not waited for.
std::string read_report_file(const std::string& path);

}  // namespace tessera::app
