// Arguments of the tools that can read experts from disk: where they are, and how they are kept in memory.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "smoe/core/config.h"
#include "smoe/core/error.h"
#include "smoe/infer/streaming_model.h"

namespace smoe {

struct StreamingArguments {
  std::string package;  // empty: weights of a checkpoint, all in memory
  std::string memory_limit;
  std::string backend = "io_uring";
  std::vector<std::string> store_options;

  void add_to(CLI::App& app) {
    auto* streaming = app.add_option(
        "--streaming", package,
        "package of smoe-export streaming, instead of --checkpoint: experts are read from disk");
    app.add_option("--memory-limit", memory_limit,
                   "memory for routed experts, for example 256MiB; needed with --streaming")
        ->needs(streaming);
    app.add_option("--expert-backend", backend, "how experts are read")
        ->needs(streaming)
        ->capture_default_str()
        ->check(CLI::IsMember({"io_uring", "threads", "mmap"}));
    app.add_option(
           "--expert-option", store_options,
           "further settings of the store: io=buffered, eviction=decayed_frequency, max_retries=5 ...")
        ->needs(streaming)
        ->take_all()
        ->expected(1);
  }

  // Throws ConfigError without a limit or for one that cannot be read.
  int64_t memory_limit_bytes() const {
    SMOE_CHECK(ConfigError, !memory_limit.empty(),
               "--streaming needs --memory-limit: memory for routed experts, for example 256MiB");
    return parse_byte_count(memory_limit);
  }

  // Throws ConfigError for settings that the store does not have.
  ExpertStoreConfig store_config() const {
    std::vector<std::string> overrides = {"backend=" + backend};
    overrides.insert(overrides.end(), store_options.begin(), store_options.end());
    return read_config<ExpertStoreConfig>({{}, overrides});
  }
};

}  // namespace smoe
