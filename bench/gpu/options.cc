#include "options.h"

#include <algorithm>
#include <charconv>

#include "core/fail.h"

namespace tessera::bench {

std::int64_t parse_size(const std::string& text) {
  std::int64_t size = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, size);
  if (error != std::errc() || rest != end || size <= 0) {
    fail(ErrorCode::invalid_argument, "'{}' was given where a size of at least 1 is expected",
         text);
  }
  return size;
}

Shape parse_shape(const std::string& text) {
  const std::size_t x = text.find('x');
  if (x == std::string::npos) {
    fail(ErrorCode::invalid_argument, "'{}' was given where a shape like 4096x14336 is expected",
         text);
  }
  return {.first = parse_size(text.substr(0, x)), .second = parse_size(text.substr(x + 1))};
}

DType parse_dtype(const std::string& text) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    if (name(dtype) == text) return dtype;
  }
  fail(ErrorCode::invalid_argument, "there is no dtype {}; f32, f16 and bf16 are accepted", text);
}

DType parse_kv_dtype(const std::string& text) {
  for (const DType dtype : {DType::i8, DType::f8e4m3, DType::f32, DType::f16, DType::bf16}) {
    if (kv_dtype_name(dtype) == text) return dtype;
  }
  fail(ErrorCode::invalid_argument,
       "keys and values cannot be stored as {}; int8, fp8, f32, f16 and bf16 are accepted", text);
}

std::string_view kv_dtype_name(DType dtype) {
  return dtype == DType::i8 ? "int8" : dtype == DType::f8e4m3 ? "fp8" : name(dtype);
}

QuantizeOptions parse_weights(const std::string& text) {
  const std::size_t colon = std::min(text.find(':'), text.size());
  const std::string format = text.substr(0, colon);
  if (format == "dense") return {.format = Format::dense};
  QuantizeOptions options{.search = ScaleSearch::from_max};  // the speed is the same
  options.zero_point = format == "int4z";
  options.format = options.zero_point ? Format::int4 : parse_format(format);
  if (colon < text.size()) options.group = parse_size(text.substr(colon + 1));
  return options;
}

std::vector<std::string> packed_weights() {
  std::vector<std::string> texts;
  for (const FormatInfo& format : formats()) {
    texts.emplace_back(format.name);
    if (format.format == Format::int4) texts.emplace_back("int4z");
  }
  return texts;
}

}  // namespace tessera::bench
