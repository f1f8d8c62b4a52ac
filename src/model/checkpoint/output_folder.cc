#include "model/checkpoint/output_folder.h"

#include <algorithm>
#include <array>
#include <span>
#include <system_error>
#include <utility>

#include "core/fail.h"
#include "model/checkpoint/atomic_file.h"

namespace tessera::model {
namespace {

namespace fs = std::filesystem;

// Weights in any format, the index of their shards, and the file that describes how they are
// packed.
bool is_model_file(const fs::path& file) {
  constexpr std::array<std::string_view, 9> kWeights = {
      ".safetensors", ".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack", ".onnx", ".ot"};
  const std::string name = file.filename().string(), extension = file.extension().string();
  return name == "config.json" || name == "hf_quant_config.json" || name.ends_with(".index.json") ||
         std::find(kWeights.begin(), kWeights.end(), extension) != kWeights.end();
}

// What else a model is read from. Those of another model would be taken for the new one's.
bool is_part_of_a_model(const std::string& name) {
  constexpr std::array<std::string_view, 6> kParts = {
      "hf_quant_config.json",  "generation_config.json",  "tokenizer.json",
      "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"};
  return std::find(kParts.begin(), kParts.end(), name) != kParts.end();
}

bool is_hidden(const fs::path& file) { return file.filename().string().starts_with("."); }

[[noreturn]] void fail_on(const char* what, const fs::path& path, const std::error_code& error) {
  fail(ErrorCode::file, "cannot {} {}: {}", what, path.string(), error.message());
}

}  // namespace

OutputFolder::OutputFolder(fs::path path, fs::path from, bool force, std::int64_t bytes)
    : path_(std::move(path)), from_(std::move(from)) {
  check_place(force);
  try {
    stage_.emplace(path_);
    std::error_code error;
    const fs::space_info space = fs::space(path_, error);
    if (!error && std::cmp_less(space.available, bytes)) {
      fail(ErrorCode::file, "{} has {} bytes free, and the new checkpoint takes {}", path_.string(),
           space.available, bytes);
    }
  } catch (...) {
    stage_.reset();
    remove_created();
    throw;
  }
}

OutputFolder::~OutputFolder() {
  stage_.reset();
  if (!committed_) remove_created();
}

void OutputFolder::check_place(bool force) {
  if (path_.empty()) {
    fail(ErrorCode::invalid_argument, "the folder to write to has no name; give one");
  }
  std::error_code error;
  const fs::file_status status = fs::status(path_, error);
  if (status.type() == fs::file_type::not_found) return create();
  if (!fs::status_known(status)) fail_on("read", path_, error);
  if (!fs::is_directory(status)) {
    fail(ErrorCode::file, "{} is not a folder; a model is written to a folder", path_.string());
  }
  if (fs::equivalent(path_, from_, error)) {
    fail(ErrorCode::invalid_argument, "{} would be written over itself; choose another folder",
         from_.string());
  }
  clean_up_staging(path_);
  const bool empty = fs::is_empty(path_, error);
  if (error) fail_on("read", path_, error);
  if (!empty && !force) {
    fail(ErrorCode::file, "{} exists and is not empty; choose another folder, or give --force",
         path_.string());
  }
}

void OutputFolder::create() {
  std::error_code error;
  for (fs::path folder = fs::absolute(path_, error);
       fs::symlink_status(folder, error).type() == fs::file_type::not_found;
       folder = folder.parent_path()) {
    if (!folder.filename().empty()) created_.push_back(folder);  // empty: after a trailing slash
  }
  fs::create_directories(path_, error);
  if (!error) return;
  remove_created();
  fail_on("make the folder", path_, error);
}

void OutputFolder::remove_created() const {
  std::error_code ignored;
  for (const fs::path& folder : created_) fs::remove(folder, ignored);  // removes only empty ones
}

void OutputFolder::write(const std::string& name, std::string_view text) {
  AtomicFile file(new_files() / name, static_cast<std::int64_t>(text.size()));
  file.write(std::as_bytes(std::span(text.data(), text.size())));
  file.commit();
}

std::vector<std::string> OutputFolder::old_model() const {
  std::vector<std::string> names;
  std::error_code error, ignored;  // of links that lead nowhere
  for (const fs::directory_entry& entry : fs::directory_iterator(path_, error)) {
    const std::string name = entry.path().filename().string();
    const bool is_old =
        (name.starts_with("model") && is_model_file(entry.path())) || is_part_of_a_model(name);
    const bool is_replaced = fs::exists(fs::status(new_files() / name, ignored));
    if (is_old && !is_replaced && entry.is_regular_file(ignored)) names.push_back(name);
  }
  if (error) fail_on("read", path_, error);
  return names;
}

void OutputFolder::copy_others() {
  std::error_code error, ignored;  // of links that lead nowhere
  for (const fs::directory_entry& entry : fs::directory_iterator(from_, error)) {
    if (!entry.is_regular_file(ignored) || is_model_file(entry.path()) || is_hidden(entry.path())) {
      continue;
    }
    const fs::path copy = new_files() / entry.path().filename();
    fs::copy_file(entry.path(), copy, error);
    if (error) fail_on("write", path_ / copy.filename(), error);
    // A copy of a read-only file can be replaced later.
    fs::permissions(copy, fs::perms::owner_write, fs::perm_options::add, error);
    sync_file(copy);
  }
  if (error) fail_on("read", from_, error);
}

void OutputFolder::commit() {
  stage_->swap_in(old_model());
  for (const fs::path& folder : created_) sync_folder(folder.parent_path());
  committed_ = true;
}

}  // namespace tessera::model
