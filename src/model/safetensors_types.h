// The dtypes that our safetensors reader and writer support, by their names in the format. Private to the
// model area.
#pragma once

#include <ATen/ATen.h>

#include <array>
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

namespace smoe {

// The format is little-endian and tensors are mapped, not converted.
static_assert(std::endian::native == std::endian::little,
              "safetensors files are read in place on little-endian only");

struct SafetensorsType {
  std::string_view name;
  at::ScalarType dtype;
  uint64_t bytes;
};

inline constexpr std::array kSafetensorsTypes = {
    SafetensorsType{"F64", at::kDouble, 8}, SafetensorsType{"F32", at::kFloat, 4},
    SafetensorsType{"F16", at::kHalf, 2},   SafetensorsType{"BF16", at::kBFloat16, 2},
    SafetensorsType{"I64", at::kLong, 8},   SafetensorsType{"I32", at::kInt, 4},
    SafetensorsType{"I16", at::kShort, 2},  SafetensorsType{"I8", at::kChar, 1},
    SafetensorsType{"U8", at::kByte, 1},    SafetensorsType{"BOOL", at::kBool, 1},
};

// nullptr when the dtype is not in the table.
inline const SafetensorsType* find_safetensors_type(std::string_view name) {
  for (const SafetensorsType& type : kSafetensorsTypes) {
    if (type.name == name) {
      return &type;
    }
  }
  return nullptr;
}

inline const SafetensorsType* find_safetensors_type(at::ScalarType dtype) {
  for (const SafetensorsType& type : kSafetensorsTypes) {
    if (type.dtype == dtype) {
      return &type;
    }
  }
  return nullptr;
}

// "F64, F32, ...", for messages.
inline std::string safetensors_type_names() {
  std::string names;
  for (const SafetensorsType& type : kSafetensorsTypes) {
    names += (names.empty() ? "" : ", ") + std::string(type.name);
  }
  return names;
}

}  // namespace smoe
