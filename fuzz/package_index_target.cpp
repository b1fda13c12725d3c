// index.json of a streaming package. The index holds its own checksum, which no mutation would pass: where
// the input is an object, the right one is put in.
#include <nlohmann/json.hpp>

#include "fuzz_target.h"
#include "smoe/core/files.h"
#include "smoe/core/json_depth.h"
#include "smoe/infer/streaming_package.h"

namespace smoe::fuzz {
namespace {

constexpr std::string_view kConfig =
    "architecture: stepped_moe\nvocab_size: 16\ndim: 8\nnum_heads: 1\nnum_kv_heads: 1\nhead_dim: 8\n"
    "num_dense_layers: 1\ndense_ffn_dim: 8\nnum_moe_layers: 1\nnum_experts: 2\nexpert_dim: 4\n"
    "budgets: [{name: one, experts_per_layer: 1}]\n";
constexpr size_t kExpertsBytes = 8192;

std::string with_checksum(std::string_view input) {
  if (is_too_deep_json(input)) return std::string(input);  // the reader must stop it, before it is printed
  nlohmann::json index = nlohmann::json::parse(input, nullptr, /*allow_exceptions=*/false);
  if (!index.is_object()) return std::string(input);
  index.erase("index_sha256");
  index["index_sha256"] = sha256_of_bytes(index.dump());
  return index.dump();
}

}  // namespace

void package_index(std::string_view input) {
  static const std::filesystem::path folder = [] {
    const std::filesystem::path made = scratch_folder() / "package";
    std::filesystem::create_directories(made);
    write_scratch(made / "config.yaml", kConfig);
    write_scratch(made / "resident.safetensors", "");
    write_scratch(made / "experts.bin", std::string(kExpertsBytes, '\0'));
    return made;
  }();
  write_scratch(folder / "index.json", with_checksum(input));
  accepts([&] {
    const StreamingPackage package(folder);
    for (int64_t layer = 0; layer < package.num_moe_layers(); ++layer) {
      for (int64_t expert = 0; expert < package.num_experts(); ++expert) {
        const ExpertBlock& block = package.block(layer, expert);
        if (block.offset < 0 || block.offset + package.layout().block_bytes > package.experts_bytes()) {
          fail("a block outside of the file");
        }
      }
    }
    accepts([&] { package.verify_files(); });
    accepts([&] { package.verify_experts(); });
  });
}

}  // namespace smoe::fuzz
