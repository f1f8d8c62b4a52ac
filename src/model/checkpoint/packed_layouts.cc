#include "model/checkpoint/packed_layouts.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <initializer_list>
#include <utility>

#include "core/checked.h"
#include "core/fail.h"
#include "core/type_switch.h"
#include "model/checkpoint/quant_config.h"
#include "model/checkpoint/safetensors_dtype.h"
#include "quant/codec.h"
#include "quant/format_table.h"

namespace tessera::model {
namespace {

using Shape = std::vector<std::int64_t>;

// Codes of 4 and 8 bits are stored with 8 and 128 added. For 8 bits, flipping the highest bit gives
// two's complement.
constexpr unsigned kInt8Offset = 0x80;
constexpr std::int64_t kWordBytes = 4;

std::string joined(std::initializer_list<std::string_view> names) {
  return fmt::format("{}", fmt::join(names, " or "));
}

bool is_dense(const StoredTensor& tensor) {
  return tensor.dtype == "F32" || tensor.dtype == "F16" || tensor.dtype == "BF16";
}
bool is_code(const StoredTensor& tensor) {
  return tensor.dtype == "U8" || tensor.dtype == "I8" || tensor.dtype == "F8_E4M3";
}

// Parts of a weight that cannot be views of the file. Their memory is allocated once, at the end.
class Copies {
 public:
  using Fill = std::function<void(void*)>;

  // `part` becomes a contiguous tensor that fill() writes.
  void add(Tensor& part, DType dtype, std::int64_t rows, std::int64_t columns, Fill fill) {
    part = Tensor(nullptr, dtype, {rows, columns});
    pieces_.push_back({&part, bytes_, std::move(fill)});
    bytes_ = checked_add(bytes_, checked_align(part.bytes(), Buffer::kAlignment));
  }

  Buffer make() const {
    if (pieces_.empty()) return {};
    Buffer storage(bytes_);
    for (const Piece& piece : pieces_) {
      piece.part->data = static_cast<char*>(storage.data()) + piece.offset;
      piece.fill(piece.part->data);
    }
    return storage;
  }

 private:
  struct Piece {
    Tensor* part;
    std::int64_t offset;
    Fill fill;
  };
  std::vector<Piece> pieces_;
  std::int64_t bytes_ = 0;
};

// One weight on its way from the file.
class Reader {
 public:
  Reader(const Checkpoint& checkpoint, std::string_view module, const PackedScheme& scheme,
         std::int64_t out, std::int64_t in)
      : checkpoint_(checkpoint), module_(module), scheme_(scheme), out_(out), in_(in) {
    weight_.format = scheme.format;
    weight_.out_features = out;
    weight_.in_features = in;
    weight_.group = scheme.scale_of == ScaleOf::group ? scheme.group : 0;
    blocks_ = quant::blocks_of_row(weight_.group, in);
  }

  PackedWeight read() {
    refuse_what_changes_the_meaning();
    const quant::StoredForm& form = *scheme_.form;
    if (form.words) {
      check_group();
      read_words();
    } else {
      read_codes(form.codes, {spelled(quant::code_dtype(weight_.format))});
    }
    if (quant::entry(weight_.format).has_fixed_blocks()) {
      read_block_scales();
    } else {
      read_float_scales();
    }
    if (scheme_.zero_points) form.words ? read_word_zeros() : read_plain_zeros();
    if (!form.tensor_scale.empty()) read_tensor_scale(form);
    Buffer storage = copies_.make();
    return {weight_, std::move(storage)};
  }

 private:
  std::string tensor_name(std::string_view part) const { return module_ + "." + std::string(part); }

  void refuse_what_changes_the_meaning() const {
    for (const char* part : {"weight_g_idx", "pre_quant_scale"}) {
      if (checkpoint_.find(tensor_name(part))) {
        fail(ErrorCode::unsupported,
             "the file has {}, but Tessera does not read weights whose columns are reordered or "
             "rescaled",
             tensor_name(part));
      }
    }
  }

  void check_group() const {
    if (quant::accepts_group(weight_.format, weight_.group)) return;
    fail(ErrorCode::unsupported, "{}: {} in groups of {} is not supported; accepted: {}", module_,
         name(weight_.format), weight_.group, quant::accepted_groups(weight_.format));
  }

  const StoredTensor& part(std::string_view name, std::initializer_list<std::string_view> dtypes,
                           std::initializer_list<Shape> shapes) const {
    const StoredTensor* found = checkpoint_.find(tensor_name(name));
    if (!found) {
      fail(ErrorCode::file, "{} has no tensor {}; {} weights have one, of {}[{}]",
           checkpoint_.directory().string(), tensor_name(name), scheme_.name, joined(dtypes),
           fmt::join(*shapes.begin(), ", "));
    }
    const bool dtype_fits = std::find(dtypes.begin(), dtypes.end(), found->dtype) != dtypes.end();
    if (!dtype_fits || std::find(shapes.begin(), shapes.end(), found->shape) == shapes.end()) {
      fail(ErrorCode::file, "the file has {}, but the {} weight [{}, {}] of the model needs {}[{}]",
           to_string(*found), scheme_.name, out_, in_, joined(dtypes),
           fmt::join(*shapes.begin(), ", "));
    }
    return *found;
  }

  float scalar(std::string_view name) const {
    return *part(name, {"F32"}, {{1}, {}, {1, 1}}).tensor().ptr<const float>();
  }
  void read_tensor_scale(const quant::StoredForm& form) {
    const float stored = scalar(form.tensor_scale);
    weight_.tensor_scale = form.divides ? 1.f / stored : stored;
    if (std::isfinite(weight_.tensor_scale) && weight_.tensor_scale > 0.f) return;
    fail(ErrorCode::file, "{} is {}; the scale of a tensor must be positive and finite",
         tensor_name(form.tensor_scale), stored);
  }

  // Codes that lie in the file as they do in a Weight.
  void read_codes(std::string_view name, std::initializer_list<std::string_view> dtypes) {
    const std::int64_t row_bytes = quant::row_bytes(weight_.format, in_);
    weight_.data = part(name, dtypes, {{out_, row_bytes}}).tensor();
  }

  void read_block_scales() {
    const DType dtype = info(weight_.format).scale_dtype;
    const std::initializer_list<Shape> shape = {{out_, blocks_}};
    // Scales that are mere exponents are bytes to us, but have a dtype of their own in files.
    const StoredTensor& stored = dtype == DType::u8 ? part("weight_scale", {"U8", "F8_E8M0"}, shape)
                                                    : part("weight_scale", {spelled(dtype)}, shape);
    weight_.scales = stored.tensor();
  }

  const StoredTensor& scale_shaped(std::string_view name,
                                   std::initializer_list<std::string_view> dtypes) const {
    switch (scheme_.scale_of) {
      case ScaleOf::tensor:
        return part(name, dtypes, {{1}, {}, {1, 1}});
      case ScaleOf::row:
        return part(name, dtypes, {{out_, 1}, {out_}});
      case ScaleOf::group:
        break;
    }
    return part(name, dtypes, {{out_, blocks_}});
  }

  // Scales of any float type; one for the whole tensor becomes one for each row.
  void read_float_scales() {
    const Tensor stored = scale_shaped("weight_scale", {"F32", "F16", "BF16"}).tensor();
    const bool dtype_fits = stored.dtype == DType::f32 || quant::takes_float_scales(weight_.format);
    if (dtype_fits && scheme_.scale_of != ScaleOf::tensor) {
      weight_.scales = stored.view({out_, blocks_});
      return;
    }
    const std::int64_t step = scheme_.scale_of == ScaleOf::tensor ? 0 : 1;
    copies_.add(weight_.scales, DType::f32, out_, blocks_, [=, n = out_ * blocks_](void* to) {
      with_float_type(stored.dtype, [&](auto type) {
        const auto* from = stored.ptr<const decltype(type)>();
        for (std::int64_t i = 0; i < n; ++i) static_cast<float*>(to)[i] = to_float(from[i * step]);
      });
    });
  }

  void read_plain_zeros() {
    const Tensor stored = scale_shaped("weight_zero_point", {"I8"}).tensor();
    if (scheme_.scale_of != ScaleOf::tensor) {
      weight_.zeros = stored.view({out_, blocks_});
      return;
    }
    copies_.add(weight_.zeros, DType::i8, out_, 1, [=, n = out_](void* to) {
      std::fill_n(static_cast<std::int8_t*>(to), n, *stored.ptr<const std::int8_t>());
    });
  }

  // int32 words, little-endian, the first code in the lowest bits. Four-bit codes have the same
  // bytes in a Weight, unless rows are padded to whole words; eight-bit codes have 128 added.
  void read_words() {
    const int bits = info(weight_.format).bits;
    const std::int64_t words = ceil_div(checked_mul(in_, bits), 8 * kWordBytes);
    const std::int64_t row_bytes = quant::row_bytes(weight_.format, in_);
    const StoredTensor& stored = part("weight_packed", {"I32"}, {{out_, words}});
    check_weight_shape();
    const Tensor bytes(stored.tensor().data, DType::u8, {out_, words * kWordBytes});
    const Tensor codes = bytes.slice(1, 0, row_bytes);
    if (bits == 4 && codes.is_contiguous()) {
      weight_.data = codes;
      return;
    }
    const unsigned turned = bits == 8 ? kInt8Offset : 0;
    copies_.add(weight_.data, quant::code_dtype(weight_.format), out_, row_bytes, [=](void* to) {
      auto* row_to = static_cast<std::uint8_t*>(to);
      for (std::int64_t row = 0; row < codes.shape[0]; ++row, row_to += codes.shape[1]) {
        const auto* from = codes.ptr<const std::uint8_t>() + row * codes.strides[0];
        std::transform(from, from + codes.shape[1], row_to, [turned](unsigned code) {
          return static_cast<std::uint8_t>(code ^ turned);
        });
      }
    });
  }

  void check_weight_shape() const {
    if (!checkpoint_.find(tensor_name("weight_shape"))) return;  // not needed
    const Tensor shape = part("weight_shape", {"I64"}, {{2}}).tensor();
    const auto* size = shape.ptr<const std::int64_t>();
    if (size[0] == out_ && size[1] == in_) return;
    fail(ErrorCode::file, "{} says [{}, {}], but the weight of the model is [{}, {}]",
         tensor_name("weight_shape"), size[0], size[1], out_, in_);
  }

  // Zero points are packed along the rows: word [w, block] has those of rows w * n .. w * n + n
  // - 1.
  void read_word_zeros() {
    const int bits = info(weight_.format).bits;
    const std::int64_t per_word = 8 * kWordBytes / bits;
    const StoredTensor& stored =
        part("weight_zero_point", {"I32"}, {{ceil_div(out_, per_word), blocks_}});
    const unsigned turned = bits == 8 ? kInt8Offset : 0;
    const unsigned mask = (1u << bits) - 1;
    copies_.add(
        weight_.zeros, quant::code_dtype(weight_.format), out_, blocks_,
        [=, words = stored.tensor(), rows = out_, blocks = blocks_](void* to) {
          auto* zeros = static_cast<std::uint8_t*>(to);
          for (std::int64_t row = 0; row < rows; ++row) {
            const auto* of_rows = words.ptr<const std::uint32_t>() + row / per_word * blocks;
            const auto shift = static_cast<unsigned>(row % per_word * bits);
            for (std::int64_t block = 0; block < blocks; ++block) {
              *zeros++ = static_cast<std::uint8_t>((of_rows[block] >> shift & mask) ^ turned);
            }
          }
        });
  }

  const Checkpoint& checkpoint_;
  std::string module_;
  const PackedScheme& scheme_;
  std::int64_t out_, in_, blocks_ = 0;
  Weight weight_;
  Copies copies_;
};

// Dense weights with scales beside them: a checkpoint that was saved before it was compressed.
std::int64_t count_dense_with_scales(const Checkpoint& checkpoint) {
  constexpr std::string_view kScale = ".weight_scale";
  return std::count_if(
      checkpoint.tensors().begin(), checkpoint.tensors().end(), [&](const StoredTensor& tensor) {
        if (!tensor.name.ends_with(kScale)) return false;
        const std::string module = tensor.name.substr(0, tensor.name.size() - kScale.size());
        const StoredTensor* weight = checkpoint.find(module + ".weight");
        return weight && is_dense(*weight) && !checkpoint.find(module + ".weight_packed");
      });
}

}  // namespace

struct PackedLayouts::Scheme {
  QuantConfig config;
};

PackedLayouts::PackedLayouts(const Checkpoint& checkpoint)
    : checkpoint_(&checkpoint),
      scheme_(std::make_unique<Scheme>(
          Scheme{parse_quant_config(checkpoint.config(), checkpoint.hf_quant_config())})) {
  if (const std::int64_t dense = count_dense_with_scales(checkpoint)) {
    scheme_->config.notes.push_back(fmt::format(
        "{} layers are dense with a weight_scale beside them: they are used as they are", dense));
  }
}

PackedLayouts::~PackedLayouts() = default;

bool PackedLayouts::is_packed(std::string_view module) const {
  const std::string name(module);
  if (checkpoint_->find(name + ".weight_packed")) return true;
  const StoredTensor* weight = checkpoint_->find(name + ".weight");
  return weight && is_code(*weight);
}

bool PackedLayouts::any_packed() const {
  return std::any_of(checkpoint_->tensors().begin(), checkpoint_->tensors().end(),
                     [](const StoredTensor& tensor) {
                       return tensor.name.ends_with(".weight_packed") ||
                              (tensor.name.ends_with(".weight") && is_code(tensor));
                     });
}

PackedWeight PackedLayouts::read(std::string_view module, std::int64_t out_features,
                                 std::int64_t in_features) const {
  const QuantConfig& config = scheme_->config;
  const PackedScheme* scheme = config.scheme_of(module);
  if (!scheme) {
    const std::string name(module);
    const StoredTensor* stored = checkpoint_->find(name + ".weight_packed");
    if (!stored) stored = &checkpoint_->at(name + ".weight");
    if (config.where.empty()) {
      fail(ErrorCode::file,
           "{} is packed, but neither config.json (quantization_config) nor hf_quant_config.json "
           "says how",
           to_string(*stored));
    }
    fail(ErrorCode::file, "{} is packed, but {} leaves that layer dense", to_string(*stored),
         config.where);
  }
  return Reader(*checkpoint_, module, *scheme, out_features, in_features).read();
}

const std::vector<std::string>& PackedLayouts::notes() const { return scheme_->config.notes; }

}  // namespace tessera::model
