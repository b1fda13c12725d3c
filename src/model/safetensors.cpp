// The reading side of safetensors. Every claim of the header is checked before a tensor is made, because a
// view over a wrong offset would read another tensor's numbers without any error.
#include "smoe/model/safetensors.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "safetensors_types.h"
#include "smoe/core/error.h"
#include "smoe/core/files.h"
#include "smoe/core/json_depth.h"

namespace smoe {
namespace {

using nlohmann::json;

// A header larger than this is certainly damage, not a model; the limit is the one of the public library.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr size_t kLengthBytes = 8;

struct Entry {
  std::string name;
  const SafetensorsType* type = nullptr;
  std::vector<int64_t> sizes;
  uint64_t begin = 0;
  uint64_t end = 0;
};

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& what) {
  throw CheckpointError(fmt::format(
      "{}: not a valid safetensors file: {}. The file is damaged or incomplete; restore it from a copy "
      "or use another checkpoint",
      path.string(), what));
}

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& tensor,
                       const std::string& what) {
  fail(path, fmt::format("tensor \"{}\": {}", tensor, what));
}

std::shared_ptr<MappedFile> map_file(const std::filesystem::path& path) {
  try {
    return std::make_shared<MappedFile>(path);
  } catch (const DataError& error) {
    throw CheckpointError(error.what());  // the same fact, under the kind that callers of this file handle
  }
}

// The JSON text between the length field and the tensor data.
std::string_view header_text(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  if (bytes.size() < kLengthBytes) {
    fail(path, fmt::format("it has {} bytes, fewer than the 8 of the header length", bytes.size()));
  }
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), kLengthBytes);
  if (length > kMaxHeaderBytes) {
    fail(path, fmt::format("the header length is {}, above the limit of {}", length, kMaxHeaderBytes));
  }
  if (length > bytes.size() - kLengthBytes) {
    fail(path, fmt::format("the header length is {}, but only {} bytes follow", length,
                           bytes.size() - kLengthBytes));
  }
  return {reinterpret_cast<const char*>(bytes.data()) + kLengthBytes, length};
}

// Parses the header and refuses names that occur twice, which a JSON parser would silently merge.
json parse_header(const std::filesystem::path& path, std::string_view text) {
  std::vector<std::set<std::string>> seen;
  const auto refuse_duplicates = [&](int depth, json::parse_event_t event, json& value) {
    if (event == json::parse_event_t::object_start) {
      seen.resize(static_cast<size_t>(depth) + 1);
      seen.back().clear();
    } else if (event == json::parse_event_t::key) {
      const auto name = value.get<std::string>();
      if (!seen.at(static_cast<size_t>(depth) - 1).insert(name).second) {
        fail(path, name, "the name occurs twice in the header");
      }
    }
    return true;
  };
  if (is_too_deep_json(text)) {
    fail(path, fmt::format("the header nests more than {} levels deep", kMaxJsonDepth));
  }
  try {
    json header = json::parse(text, refuse_duplicates);
    if (!header.is_object()) {
      fail(path, fmt::format("the header is a JSON {}, not an object", header.type_name()));
    }
    return header;
  } catch (const json::exception& error) {
    fail(path, fmt::format("the header is not JSON ({})", error.what()));
  }
}

uint64_t unsigned_number(const json& value, const std::filesystem::path& path, const std::string& tensor,
                         const std::string& what) {
  if (!value.is_number_unsigned()) {
    fail(path, tensor, fmt::format("{} is {}, not a whole number of at least 0", what, value.dump()));
  }
  return value.get<uint64_t>();
}

std::vector<int64_t> parse_shape(const json& shape, const std::filesystem::path& path,
                                 const std::string& tensor) {
  if (!shape.is_array()) {
    fail(path, tensor, fmt::format("shape is {}, not a list", shape.dump()));
  }
  std::vector<int64_t> sizes;
  for (const json& size : shape) {
    const uint64_t value = unsigned_number(size, path, tensor, "a dimension of shape");
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      fail(path, tensor, fmt::format("dimension {} of shape is too large", value));
    }
    sizes.push_back(static_cast<int64_t>(value));
  }
  return sizes;
}

uint64_t byte_count(const Entry& entry, const std::filesystem::path& path) {
  uint64_t count = entry.type->bytes;
  for (const int64_t size : entry.sizes) {
    if (__builtin_mul_overflow(count, static_cast<uint64_t>(size), &count)) {
      fail(path, entry.name, "the product of its shape does not fit 64 bits");
    }
  }
  return count;
}

Entry parse_entry(const std::string& name, const json& fields, const std::filesystem::path& path) {
  if (!fields.is_object()) {
    fail(path, name, fmt::format("its entry is a JSON {}, not an object", fields.type_name()));
  }
  for (const char* key : {"dtype", "shape", "data_offsets"}) {
    if (!fields.contains(key)) {
      fail(path, name, fmt::format("\"{}\" is missing", key));
    }
  }
  Entry entry;
  entry.name = name;
  const json& dtype = fields.at("dtype");
  entry.type = dtype.is_string() ? find_safetensors_type(dtype.get<std::string>()) : nullptr;
  if (entry.type == nullptr) {
    fail(path, name,
         fmt::format("dtype {} is not supported; supported are {}", dtype.dump(), safetensors_type_names()));
  }
  entry.sizes = parse_shape(fields.at("shape"), path, name);
  const json& offsets = fields.at("data_offsets");
  if (!offsets.is_array() || offsets.size() != 2) {
    fail(path, name, fmt::format("data_offsets is {}, not a pair [begin, end]", offsets.dump()));
  }
  entry.begin = unsigned_number(offsets[0], path, name, "the begin of data_offsets");
  entry.end = unsigned_number(offsets[1], path, name, "the end of data_offsets");
  if (entry.end < entry.begin) {
    fail(path, name, fmt::format("data_offsets end at {} before they begin at {}", entry.end, entry.begin));
  }
  const uint64_t expected = byte_count(entry, path);
  if (entry.end - entry.begin != expected) {
    fail(path, name,
         fmt::format("data_offsets span {} bytes, but its dtype and shape need {}", entry.end - entry.begin,
                     expected));
  }
  return entry;
}

std::map<std::string, std::string> parse_metadata(const json& fields, const std::filesystem::path& path) {
  if (!fields.is_object()) {
    fail(path, "__metadata__ is not an object");
  }
  std::map<std::string, std::string> metadata;
  for (const auto& [key, value] : fields.items()) {
    if (!value.is_string()) {
      fail(path, fmt::format("__metadata__ holds {} under \"{}\", not a string", value.dump(), key));
    }
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

// The tensors must tile the data exactly: a gap or an overlap means that offsets were altered.
void check_tiling(std::vector<Entry>& entries, uint64_t data_bytes, const std::filesystem::path& path) {
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  uint64_t position = 0;
  for (const Entry& entry : entries) {
    if (entry.begin != position) {
      fail(path, entry.name,
           fmt::format("its data begin at {}, but the tensor before it ends at {} ({})", entry.begin,
                       position, entry.begin < position ? "overlap" : "gap"));
    }
    if (entry.end > data_bytes) {
      fail(path, entry.name, fmt::format("its data end at {}, but the file holds {}", entry.end, data_bytes));
    }
    position = entry.end;
  }
  if (position != data_bytes) {
    fail(path, fmt::format("{} bytes follow the last tensor", data_bytes - position));
  }
}

at::Tensor make_tensor(const Entry& entry, const std::byte* data, const std::shared_ptr<MappedFile>& file) {
  const auto options = at::TensorOptions().dtype(entry.type->dtype);
  if (entry.begin == entry.end) {
    return at::empty(entry.sizes, options);
  }
  const std::byte* source = data + entry.begin;
  if (reinterpret_cast<uintptr_t>(source) % entry.type->bytes != 0) {
    // Other writers need not align; loads through a misaligned pointer are undefined, so copy.
    at::Tensor copy = at::empty(entry.sizes, options);
    std::memcpy(copy.data_ptr(), source, entry.end - entry.begin);
    return copy;
  }
  // The deleter's capture keeps the map alive for as long as any view exists.
  return at::from_blob(
      const_cast<std::byte*>(source), entry.sizes, [file](void*) {}, options);
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : path_(path) {
  const std::shared_ptr<MappedFile> file = map_file(path);
  const std::span<const std::byte> bytes = file->bytes();
  const std::string_view text = header_text(path, bytes);
  const json header = parse_header(path, text);
  std::vector<Entry> entries;
  for (const auto& [name, fields] : header.items()) {
    if (name == "__metadata__") {
      metadata_ = parse_metadata(fields, path);
    } else {
      entries.push_back(parse_entry(name, fields, path));
    }
  }
  const size_t data_begin = kLengthBytes + text.size();
  check_tiling(entries, bytes.size() - data_begin, path);
  for (const Entry& entry : entries) {
    tensors_.emplace_back(entry.name, make_tensor(entry, bytes.data() + data_begin, file));
  }
}

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors_) {
    names.push_back(name);
  }
  return names;
}

bool SafetensorsFile::contains(const std::string& name) const {
  return std::any_of(tensors_.begin(), tensors_.end(),
                     [&](const auto& entry) { return entry.first == name; });
}

at::Tensor SafetensorsFile::tensor(const std::string& name) const {
  for (const auto& [known, tensor] : tensors_) {
    if (known == name) {
      return tensor;
    }
  }
  throw CheckpointError(fmt::format("{}: tensor \"{}\" is not in the file, which holds {} tensors",
                                    path_.string(), name, tensors_.size()));
}

}  // namespace smoe
