// What an evaluation has computed so far, on disk: a run that was killed continues from it. One file a task,
// one JSON line a piece of work; the first line says which run the others belong to.
#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

namespace smoe {

class TaskJournal {
 public:
  // An empty `folder` keeps nothing. Entries of an earlier run are known again if its fingerprint is the
  // same; else the file begins anew, with a warning.
  TaskJournal(const std::filesystem::path& folder, const std::string& task, const std::string& fingerprint);

  // What was stored under `key`; nullptr if nothing.
  const nlohmann::json* find(const std::string& key) const;
  // Stores a value, on disk before this returns (in the system's cache: a killed process loses nothing).
  void add(const std::string& key, const nlohmann::json& value);

  size_t num_known() const { return entries_.size(); }

 private:
  void read(const std::string& fingerprint);

  std::filesystem::path path_;
  std::map<std::string, nlohmann::json> entries_;
  std::ofstream stream_;
};

}  // namespace smoe
