#include "model/checkpoint/checkpoint.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include "core/fail.h"
#include "model/checkpoint/aligned_copy.h"
#include "model/checkpoint/quote.h"
#include "model/checkpoint/weights_file.h"

namespace tessera::model {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMaxIndexBytes = 100'000'000;  // names of all tensors, as in their headers

bool is_there(const fs::path& path) {
  std::error_code ignored;  // an unreadable folder counts as one without the file
  return fs::exists(path, ignored);
}

// Other weights in a folder that has no safetensors: a common mistake of users.
enum class OtherWeights { none, pytorch, gguf };
OtherWeights other_weights_in(const fs::path& directory) {
  auto found = OtherWeights::none;
  std::error_code error;
  for (fs::directory_iterator file(directory, error), end; !error && file != end;
       file.increment(error)) {
    const fs::path name = file->path().filename();
    const fs::path extension = name.extension();
    if (extension == ".gguf") return OtherWeights::gguf;
    if (name.string().starts_with("pytorch_model") || extension == ".pth" || extension == ".pt") {
      found = OtherWeights::pytorch;
    }
  }
  return found;
}

[[noreturn]] void fail_gguf(const fs::path& path) {
  fail(ErrorCode::file,
       "{} holds GGUF weights, which Tessera does not read; download the model's Hugging Face "
       "safetensors, and 'tessera quantize' packs them",
       path.string());
}

[[noreturn]] void fail_no_weights(const fs::path& directory) {
  switch (other_weights_in(directory)) {
    case OtherWeights::gguf:
      fail_gguf(directory);
    case OtherWeights::pytorch:
      fail(ErrorCode::file,
           "{} holds PyTorch weights, which can run code when they are read; convert them to "
           "safetensors: in Python, AutoModelForCausalLM.from_pretrained(DIR).save_pretrained(DIR)",
           directory.string());
    case OtherWeights::none:
      break;
  }
  fail(ErrorCode::file, "{} has neither model.safetensors nor model.safetensors.index.json",
       directory.string());
}

void check_directory(const fs::path& directory) {
  std::error_code ignored;
  const fs::file_status status = fs::status(directory, ignored);
  if (status.type() == fs::file_type::not_found) {
    fail(ErrorCode::file,
         "there is no folder {}; a model is a folder with config.json and model.safetensors",
         directory.string());
  }
  if (status.type() != fs::file_type::directory) {
    if (directory.extension() == ".gguf") fail_gguf(directory);
    fail(ErrorCode::file,
         "{} is not a folder; a model is a folder with config.json and model.safetensors",
         directory.string());
  }
  if (!is_there(directory / "config.json")) {
    if (other_weights_in(directory) == OtherWeights::gguf) fail_gguf(directory);
    fail(ErrorCode::file,
         "{} has no config.json that can be read; a model is a folder with config.json and "
         "model.safetensors",
         directory.string());
  }
}

// A name inside the folder: no path that could lead elsewhere.
bool is_plain_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

std::map<std::string, std::string> read_weight_map(const fs::path& index) {
  const Json json = read_json_file(index, kMaxIndexBytes);
  const auto weight_map = JsonView(json, index.string()).optional_object("weight_map");
  if (!weight_map || weight_map->json().empty()) {
    fail(ErrorCode::file,
         "{}: weight_map is missing or empty, it must say which file has which "
         "tensor",
         index.string());
  }
  std::map<std::string, std::string> file_of;
  for (const auto& [tensor, file] : weight_map->json().items()) {
    if (!file.is_string() || !is_plain_name(file.get_ref<const std::string&>())) {
      fail(ErrorCode::file, "{}: the file of {} is {}, it must be the name of a file beside it",
           index.string(), in_quotes(tensor), describe(file));
    }
    file_of.emplace(tensor, file.get<std::string>());
  }
  return file_of;
}

}  // namespace

Checkpoint::Checkpoint() = default;
Checkpoint::~Checkpoint() = default;

std::shared_ptr<const Checkpoint> Checkpoint::open(const fs::path& directory, FileAccess access) {
  check_directory(directory);
  std::shared_ptr<Checkpoint> checkpoint(new Checkpoint);
  checkpoint->directory_ = directory;
  checkpoint->access_ = access;
  checkpoint->config_ = read_json_file(directory / "config.json", kMaxConfigBytes);
  const fs::path quant_config = directory / "hf_quant_config.json";
  if (is_there(quant_config)) {
    checkpoint->hf_quant_config_ = read_json_file(quant_config, kMaxConfigBytes);
  }
  const fs::path single = directory / "model.safetensors";
  const fs::path index = directory / "model.safetensors.index.json";
  if (is_there(single)) {
    checkpoint->add_file(single);
    checkpoint->index_names();
  } else if (is_there(index)) {
    checkpoint->open_shards(index);
  } else {
    fail_no_weights(directory);
  }
  checkpoint->align_tensors();
  return checkpoint;
}

void Checkpoint::add_file(const fs::path& file) {
  files_.push_back(std::make_unique<WeightsFile>(file, access_));
  SafetensorsHeader header = parse_safetensors(files_.back()->bytes(), file.string());
  std::move(header.tensors.begin(), header.tensors.end(), std::back_inserter(tensors_));
}

void Checkpoint::open_shards(const fs::path& index) {
  const auto file_of = read_weight_map(index);
  std::set<std::string> files;
  for (const auto& [tensor, file] : file_of) files.insert(file);
  std::vector<const std::string*> holder;  // of each tensor
  for (const std::string& file : files) {
    if (!is_there(directory_ / file)) {
      fail(ErrorCode::file, "{} names {}, which is not there; fetch it again", index.string(),
           in_quotes(file));
    }
    add_file(directory_ / file);
    holder.resize(tensors_.size(), &file);
  }
  index_names();
  for (const auto& [tensor, file] : file_of) {
    const auto found = by_name_.find(tensor);
    if (found == by_name_.end() || *holder[found->second] != file) {
      fail(ErrorCode::file, "{}: tensor {} should be in {} and is not", index.string(),
           in_quotes(tensor), in_quotes(file));
    }
  }
}

void Checkpoint::index_names() {
  by_name_.reserve(tensors_.size());
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (!by_name_.emplace(tensors_[i].name, i).second) {
      fail(ErrorCode::file, "{}: tensor {} is in two files; it must be in one", directory_.string(),
           in_quotes(tensors_[i].name));
    }
  }
}

void Checkpoint::align_tensors() {
  for (StoredTensor& tensor : tensors_) {
    if (!is_aligned(tensor)) tensor.copy = std::make_shared<AlignedCopy>();
  }
}

void Checkpoint::check_unchanged() const {
  for (const auto& file : files_) file->check_unchanged();
}

bool Checkpoint::is_mapped(const StoredTensor& tensor) const {
  const std::byte* const start = tensor.data.data();
  return std::any_of(files_.begin(), files_.end(), [&](const auto& file) {
    const std::span<const std::byte> bytes = file->bytes();
    return file->is_mapped() && start >= bytes.data() && start < bytes.data() + bytes.size();
  });
}

const StoredTensor* Checkpoint::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

const StoredTensor& Checkpoint::at(std::string_view name) const {
  const StoredTensor* tensor = find(name);
  if (tensor == nullptr) {
    fail(ErrorCode::file, "{} has no tensor {}; its config.json asks for one", directory_.string(),
         in_quotes(name));
  }
  return *tensor;
}

}  // namespace tessera::model
