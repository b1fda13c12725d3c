#include "smoe/infer/streaming_package.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <charconv>
#include <fstream>

#include "smoe/core/error.h"
#include "smoe/core/files.h"
#include "smoe/core/json.h"
#include "smoe/core/json_depth.h"

namespace smoe {
namespace {

namespace fs = std::filesystem;

constexpr const char* kIndexFile = "index.json";
constexpr const char* kExpertsFile = "experts.bin";
constexpr const char* kResidentFile = "resident.safetensors";
constexpr const char* kConfigFile = "config.yaml";
constexpr std::string_view kFormat = "smoe-streaming-package";
constexpr int64_t kVersion = 1;
// Above any model; products of two of them, times a few bytes, fit 64 bits.
constexpr int64_t kMaxCount = int64_t{1} << 28;
constexpr const char* kRemedy = "export the checkpoint again with smoe-export streaming";

std::string index_sum(nlohmann::json index) {
  index.erase("index_sha256");
  return sha256_of_bytes(index.dump());
}

// The numbers of a layout that a reader in another language needs; ours come from the shape.
nlohmann::json layout_json(const ExpertLayout& layout) {
  nlohmann::json json = {{"gate", layout.gate_offset},
                         {"up", layout.up_offset},
                         {"down", layout.down_offset},
                         {"block_bytes", layout.block_bytes}};
  if (layout.encoding == ExpertEncoding::kInt8) {
    json["gate_scale"] = layout.gate_scale_offset;
    json["up_scale"] = layout.up_scale_offset;
    json["down_scale"] = layout.down_scale_offset;
  }
  return json;
}

// Fields of an index that has passed its own checksum: a field that is missing or of another type was written
// by something else.
class IndexReader {
 public:
  IndexReader(const nlohmann::json& json, const fs::path& path) : json_(json), path_(path) {}

  int64_t count(const char* key) const {
    const auto found = json_.find(key);
    SMOE_CHECK(CheckpointError,
               found != json_.end() && found->is_number_integer() && *found >= 0 && *found <= kMaxCount,
               "{}: `{}` is missing or not a count up to {}; {}", path_.string(), key, kMaxCount, kRemedy);
    return found->get<int64_t>();
  }
  std::string text(const char* key) const {
    const auto found = json_.find(key);
    SMOE_CHECK(CheckpointError, found != json_.end() && found->is_string(),
               "{}: `{}` is missing or not a text; {}", path_.string(), key, kRemedy);
    return found->get<std::string>();
  }

 private:
  const nlohmann::json& json_;
  const fs::path& path_;
};

uint64_t parse_hex(const std::string& text, const fs::path& path) {
  uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, status] = std::from_chars(text.data(), end, value, 16);
  SMOE_CHECK(CheckpointError, status == std::errc() && stop == end, "{}: \"{}\" is no checksum; {}",
             path.string(), text, kRemedy);
  return value;
}

nlohmann::json load_index_json(const fs::path& folder) {
  const fs::path path = folder / kIndexFile;
  SMOE_CHECK(CheckpointError, fs::is_regular_file(path),
             "{}: not a streaming package, it has no {}; make one with smoe-export streaming",
             folder.string(), kIndexFile);
  const std::string text = read_file(path);
  SMOE_CHECK(CheckpointError, !is_too_deep_json(text), "{}: the JSON nests more than {} levels deep; {}",
             path.string(), kMaxJsonDepth, kRemedy);
  nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  SMOE_CHECK(CheckpointError, json.is_object(),
             "{}: not a JSON object, so the index is damaged or cut short; {}", path.string(), kRemedy);
  const std::string format = json.value("format", nlohmann::json()).is_string() ? json["format"] : "";
  SMOE_CHECK(CheckpointError, format == kFormat,
             "{}: format \"{}\" found, \"{}\" expected; the folder belongs to another program", path.string(),
             format, kFormat);
  const int64_t version = IndexReader(json, path).count("version");
  SMOE_CHECK(CheckpointError, version == kVersion,
             "{}: the package has version {}, this program reads version {}; {}", path.string(), version,
             kVersion, kRemedy);
  const std::string expected = IndexReader(json, path).text("index_sha256");
  SMOE_CHECK(CheckpointError, expected == index_sum(json),
             "{}: the index was altered or damaged (its SHA-256 is {}, {} expected); {}", path.string(),
             index_sum(json), expected, kRemedy);
  return json;
}

PackageIndex parse_index(const nlohmann::json& json, const fs::path& path) {
  const IndexReader reader(json, path);
  PackageIndex index;
  const std::string encoding = reader.text("encoding");
  const auto known = enum_from_name<ExpertEncoding>(encoding);
  SMOE_CHECK(CheckpointError, known.has_value(), "{}: encoding \"{}\" found; known are fp32, bf16 and int8",
             path.string(), encoding);
  index.layout = make_expert_layout(*known, {reader.count("dim"), reader.count("expert_dim")});
  SMOE_CHECK(CheckpointError, json.value("layout", nlohmann::json()) == layout_json(index.layout),
             "{}: the layout of a block is not the one of this version; {}", path.string(), kRemedy);
  index.num_moe_layers = reader.count("num_moe_layers");
  index.num_experts = reader.count("num_experts");
  const nlohmann::json sums = json.value("block_xxh3", nlohmann::json::array());
  SMOE_CHECK(CheckpointError, std::ssize(sums) == index.num_moe_layers * index.num_experts,
             "{}: checksums of {} blocks found, {} layers of {} experts expected; {}", path.string(),
             sums.size(), index.num_moe_layers, index.num_experts, kRemedy);
  int64_t total_bytes = 0;
  SMOE_CHECK(CheckpointError,
             !__builtin_mul_overflow(std::ssize(sums), index.layout.block_bytes, &total_bytes),
             "{}: {} blocks of {} bytes are more than a file can hold; {}", path.string(), sums.size(),
             index.layout.block_bytes, kRemedy);
  for (const nlohmann::json& sum : sums) {
    const int64_t offset = std::ssize(index.blocks) * index.layout.block_bytes;
    index.blocks.push_back({offset, parse_hex(sum.is_string() ? sum.get<std::string>() : "", path)});
  }
  const nlohmann::json files = json.value("files_sha256", nlohmann::json::object());
  for (const auto& [name, sum] : files.items()) {
    SMOE_CHECK(CheckpointError, sum.is_string() && fs::path(name).filename() == name,
               "{}: \"{}\" is no file of the package; {}", path.string(), name, kRemedy);
    index.file_sha256[name] = sum.get<std::string>();
  }
  return index;
}

void check_config(const ModelConfig& config, const PackageIndex& index, const fs::path& folder) {
  const ExpertShape shape{config.dim, config.expert_dim};
  SMOE_CHECK(
      CheckpointError,
      shape == index.layout.shape && config.num_moe_layers == index.num_moe_layers &&
          config.num_experts == index.num_experts,
      "{}: {} describes {} MoE layers of {} experts of {} x {}, the index {} layers of {} experts of {} x "
      "{}; the files belong to different packages, {}",
      folder.string(), kConfigFile, config.num_moe_layers, config.num_experts, config.expert_dim, config.dim,
      index.num_moe_layers, index.num_experts, index.layout.shape.expert_dim, index.layout.shape.dim,
      kRemedy);
}

}  // namespace

uint64_t expert_checksum(const std::byte* block, int64_t num_bytes) {
  return XXH3_64bits(block, static_cast<size_t>(num_bytes));
}

void write_package_index(const fs::path& folder, const PackageIndex& index) {
  nlohmann::json json = {{"format", kFormat},
                         {"version", kVersion},
                         {"encoding", enum_to_name(index.layout.encoding)},
                         {"dim", index.layout.shape.dim},
                         {"expert_dim", index.layout.shape.expert_dim},
                         {"num_moe_layers", index.num_moe_layers},
                         {"num_experts", index.num_experts},
                         {"layout", layout_json(index.layout)},
                         {"files_sha256", index.file_sha256}};
  nlohmann::json sums = nlohmann::json::array();
  for (const ExpertBlock& block : index.blocks) sums.push_back(fmt::format("{:016x}", block.checksum));
  json["block_xxh3"] = std::move(sums);
  json["index_sha256"] = index_sum(json);
  write_json_atomically(folder / kIndexFile, json, -1);
}

StreamingPackage::StreamingPackage(fs::path folder) : folder_(std::move(folder)) {
  SMOE_CHECK(CheckpointError, fs::is_directory(folder_),
             "{}: no such folder; give a package made by smoe-export streaming", folder_.string());
  index_ = parse_index(load_index_json(folder_), folder_ / kIndexFile);
  for (const char* name : {kConfigFile, kResidentFile}) {
    SMOE_CHECK(CheckpointError, fs::is_regular_file(folder_ / name) && index_.file_sha256.contains(name),
               "{}: {} is missing, so the package is not complete; {}", folder_.string(), name, kRemedy);
  }
  config_ = read_model_config({folder_ / kConfigFile, {}});
  check_config(config_, index_, folder_);
  std::error_code error;
  const auto found = static_cast<int64_t>(fs::file_size(experts_path(), error));
  SMOE_CHECK(CheckpointError, !error, "{}: {} is missing, so the package is not complete; {}",
             folder_.string(), kExpertsFile, kRemedy);
  SMOE_CHECK(CheckpointError, found == experts_bytes(), "{}: the file has {} bytes, {} expected: it {}; {}",
             experts_path().string(), found, experts_bytes(),
             found < experts_bytes() ? "was cut short" : "belongs to another package", kRemedy);
}

fs::path StreamingPackage::experts_path() const { return folder_ / kExpertsFile; }
fs::path StreamingPackage::resident_path() const { return folder_ / kResidentFile; }

std::optional<fs::path> StreamingPackage::tokenizer_path() const {
  for (const char* name : {"tokenizer.model", "tokenizer.json"}) {
    if (index_.file_sha256.contains(name)) return folder_ / name;
  }
  return std::nullopt;
}

const ExpertBlock& StreamingPackage::block(int64_t layer, int64_t expert) const {
  SMOE_ASSERT(layer >= 0 && layer < index_.num_moe_layers && expert >= 0 && expert < index_.num_experts);
  return index_.blocks[static_cast<size_t>(layer * index_.num_experts + expert)];
}

int64_t StreamingPackage::experts_bytes() const {
  return std::ssize(index_.blocks) * index_.layout.block_bytes;
}

void StreamingPackage::verify_files() const {
  for (const auto& [name, expected] : index_.file_sha256) {
    const fs::path path = folder_ / name;
    SMOE_CHECK(CheckpointError, fs::is_regular_file(path), "{}: the file is missing; {}", path.string(),
               kRemedy);
    const std::string found = sha256_of_file(path);
    SMOE_CHECK(CheckpointError, found == expected,
               "{}: the file was altered or damaged: SHA-256 {} expected by {}, {} found; {}", path.string(),
               expected, kIndexFile, found, kRemedy);
  }
}

void StreamingPackage::verify_experts() const {
  std::ifstream file(experts_path(), std::ios::binary);
  std::vector<char> bytes(static_cast<size_t>(index_.layout.block_bytes));
  for (size_t i = 0; i < index_.blocks.size(); ++i) {
    file.read(bytes.data(), std::ssize(bytes));
    const bool equal = file.gcount() == std::ssize(bytes) &&
                       expert_checksum(reinterpret_cast<const std::byte*>(bytes.data()), std::ssize(bytes)) ==
                           index_.blocks[i].checksum;
    SMOE_CHECK(CheckpointError, equal, "{}: expert {} of MoE layer {} is damaged (its checksum differs); {}",
               experts_path().string(), static_cast<int64_t>(i) % index_.num_experts,
               static_cast<int64_t>(i) / index_.num_experts, kRemedy);
  }
}

}  // namespace smoe
