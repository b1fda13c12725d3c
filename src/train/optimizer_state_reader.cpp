#include "smoe/train/optimizer_state_reader.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "smoe/core/error.h"

namespace smoe {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWholeFile = "optimizer.safetensors";
constexpr const char* kUpdatesTensor = "step";

std::vector<fs::path> list_part_files(const fs::path& checkpoint) {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(checkpoint)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("optimizer-") && name.ends_with(".safetensors")) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

int64_t product(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

// The metadata of a part, every claim of which is checked: a wrong range would restore wrong numbers.
nlohmann::json read_pieces(const SafetensorsFile& file) {
  const auto found = file.metadata().find("pieces");
  const nlohmann::json pieces = found == file.metadata().end()
                                    ? nlohmann::json()
                                    : nlohmann::json::parse(found->second, nullptr, false);
  SMOE_CHECK(CheckpointError, pieces.is_object(),
             "{}: the metadata has no JSON object `pieces` with the ranges of its tensors; the file is "
             "damaged, use another checkpoint",
             file.path().string());
  return pieces;
}

}  // namespace

bool has_optimizer_state(const fs::path& checkpoint) {
  return fs::is_regular_file(checkpoint / kWholeFile) || !list_part_files(checkpoint).empty();
}

OptimizerStateReader::OptimizerStateReader(const fs::path& checkpoint) : checkpoint_(checkpoint) {
  const std::vector<fs::path> parts = list_part_files(checkpoint);
  const bool is_whole = fs::is_regular_file(checkpoint / kWholeFile);
  SMOE_CHECK(CheckpointError, is_whole || !parts.empty(),
             "{}: {} is missing, so training cannot go on from here; choose a checkpoint that has it",
             checkpoint.string(), kWholeFile);
  SMOE_CHECK(CheckpointError, !is_whole || parts.empty(),
             "{}: {} and {} are both there, so it is not clear which is meant; remove the one that "
             "checksums.json does not list",
             checkpoint.string(), kWholeFile, parts.empty() ? "" : parts.front().filename().string());
  if (is_whole) add_whole(SafetensorsFile(checkpoint / kWholeFile));
  for (const fs::path& part : parts) add_pieces(SafetensorsFile(part));
}

void OptimizerStateReader::add_whole(const SafetensorsFile& file) {
  for (const std::string& name : file.names()) {
    const at::Tensor tensor = file.tensor(name);
    if (name == kUpdatesTensor) {
      num_updates_ = static_cast<int64_t>(tensor.item<float>());
    } else {
      add(name, tensor.sizes().vec(), {0, tensor.numel(), tensor.flatten(), file.path()});
    }
  }
  SMOE_CHECK(CheckpointError, num_updates_ >= 0,
             "{}: the tensor {} is missing; the file is damaged, use another checkpoint",
             file.path().string(), kUpdatesTensor);
}

void OptimizerStateReader::add_pieces(const SafetensorsFile& file) {
  const nlohmann::json pieces = read_pieces(file);
  try {
    const int64_t updates = std::stoll(file.metadata().at("updates"));
    SMOE_CHECK(CheckpointError, num_updates_ < 0 || updates == num_updates_,
               "{}: written after {} updates, the other files after {}; they do not belong together",
               file.path().string(), updates, num_updates_);
    num_updates_ = updates;
    for (const std::string& name : file.names()) {
      const nlohmann::json& entry = pieces.at(name);
      const at::Tensor tensor = file.tensor(name);
      const Piece piece{entry.at("begin").get<int64_t>(), entry.at("end").get<int64_t>(), tensor.flatten(),
                        file.path()};
      const auto shape = entry.at("shape").get<std::vector<int64_t>>();
      const bool fits =
          piece.begin >= 0 && piece.end - piece.begin == tensor.numel() && piece.end <= product(shape);
      SMOE_CHECK(CheckpointError, fits,
                 "{}: tensor {} has {} values, but is said to be [{}, {}) of [{}]; the file is damaged, use "
                 "another checkpoint",
                 file.path().string(), name, tensor.numel(), piece.begin, piece.end, fmt::join(shape, ", "));
      add(name, shape, piece);
    }
  } catch (const CheckpointError&) {
    throw;
  } catch (const std::exception& error) {
    throw CheckpointError(
        fmt::format("{}: its metadata cannot be read ({}); the file is damaged, use "
                    "another checkpoint",
                    file.path().string(), error.what()));
  }
}

void OptimizerStateReader::add(const std::string& name, std::vector<int64_t> shape, Piece piece) {
  SavedTensor& saved = tensors_[name];
  SMOE_CHECK(CheckpointError, saved.pieces.empty() || saved.shape == shape,
             "{}: tensor {} has shape [{}], in {} it has [{}]; the files do not belong together",
             piece.path.string(), name, fmt::join(shape, ", "), saved.pieces.front().path.string(),
             fmt::join(saved.shape, ", "));
  saved.shape = std::move(shape);
  saved.pieces.push_back(std::move(piece));
}

std::vector<std::string> OptimizerStateReader::names() const {
  std::vector<std::string> all;
  for (const auto& [name, tensor] : tensors_) all.push_back(name);
  return all;
}

const std::vector<int64_t>& OptimizerStateReader::shape(const std::string& name) const {
  const auto found = tensors_.find(name);
  SMOE_CHECK(CheckpointError, found != tensors_.end(), "{}: the optimizer state has no tensor {}",
             checkpoint_.string(), name);
  return found->second.shape;
}

void OptimizerStateReader::read(const StateSlice& slice) const {
  SMOE_ASSERT(slice.values.is_contiguous() && slice.values.numel() == slice.num_elements());
  const at::NoGradGuard no_gradient;
  const at::Tensor target = slice.values.detach().view({-1});
  shape(slice.name);  // that it is there
  int64_t done = slice.begin;
  for (const Piece& piece : pieces_in_order(slice.name)) {
    if (piece.begin > done) break;
    const int64_t end = std::min(piece.end, slice.end);
    if (end <= done) continue;
    target.narrow(0, done - slice.begin, end - done)
        .copy_(piece.values.narrow(0, done - piece.begin, end - done));
    done = end;
  }
  if (done < slice.end) refuse_gap(slice.name, done, slice.end);
}

void OptimizerStateReader::check_fits(const std::vector<NamedParameter>& parameters) const {
  for (const NamedParameter& parameter : parameters) {
    if (parameter.kind == ParameterKind::kBuffer) continue;
    std::vector<const char*> states = {".exp_avg", ".exp_avg_sq"};
    if (c10::elementSize(parameter.tensor.scalar_type()) < sizeof(float)) states.push_back(".master");
    for (const char* state : states) {
      const std::string name = parameter.name + state;
      const std::vector<int64_t>& found = shape(name);
      SMOE_CHECK(CheckpointError, found == parameter.tensor.sizes(),
                 "{}: the optimizer state does not fit the model: {} has shape [{}], the model needs [{}]",
                 checkpoint_.string(), name, fmt::join(found, ", "),
                 fmt::join(parameter.tensor.sizes(), ", "));
      check_covered(name);
    }
  }
}

std::vector<OptimizerStateReader::Piece> OptimizerStateReader::pieces_in_order(
    const std::string& name) const {
  std::vector<Piece> pieces = tensors_.at(name).pieces;
  std::sort(pieces.begin(), pieces.end(),
            [](const Piece& left, const Piece& right) { return left.begin < right.begin; });
  return pieces;
}

void OptimizerStateReader::refuse_gap(const std::string& name, int64_t done, int64_t end) const {
  throw CheckpointError(fmt::format(
      "{}: no optimizer file holds the values from {} of {} (up to {} are needed); a file is missing, use "
      "another checkpoint",
      checkpoint_.string(), done, name, end));
}

void OptimizerStateReader::check_covered(const std::string& name) const {
  const int64_t end = product(shape(name));
  int64_t done = 0;
  for (const Piece& piece : pieces_in_order(name)) {
    if (piece.begin > done) break;
    done = std::max(done, piece.end);
  }
  if (done < end) refuse_gap(name, done, end);
}

void OptimizerStateReader::restore(Optimizer& optimizer) const {
  std::vector<std::string> problems;
  std::set<std::string> expected;
  const std::vector<StateSlice> slices = optimizer.state_slices();
  for (const StateSlice& slice : slices) {
    expected.insert(slice.name);
    const auto saved = tensors_.find(slice.name);
    if (saved == tensors_.end()) {
      problems.push_back(fmt::format("{} is missing", slice.name));
    } else if (saved->second.shape != slice.shape) {
      problems.push_back(fmt::format("{} has shape [{}], the model needs [{}]", slice.name,
                                     fmt::join(saved->second.shape, ", "), fmt::join(slice.shape, ", ")));
    } else if (const at::ScalarType type = saved->second.pieces.front().values.scalar_type();
               type != slice.values.scalar_type()) {
      problems.push_back(fmt::format("{} has type {}, the model needs {}", slice.name, c10::toString(type),
                                     c10::toString(slice.values.scalar_type())));
    }
  }
  // A process holds a part of the tensors only, so what it lacks is no sign of a surplus; whole states are.
  const bool holds_all = std::all_of(slices.begin(), slices.end(), [](const StateSlice& slice) {
    return slice.num_elements() == product(slice.shape);
  });
  for (const auto& [name, tensor] : tensors_) {
    if (holds_all && !expected.contains(name))
      problems.push_back(fmt::format("{} belongs to no parameter of the model", name));
  }
  SMOE_CHECK(CheckpointError, problems.empty(),
             "{}: the optimizer state does not fit the model:\n  {}\nResume with the config that wrote it.",
             checkpoint_.string(), fmt::join(problems, "\n  "));
  for (const StateSlice& slice : slices) read(slice);
  optimizer.restore(num_updates_);
}

}  // namespace smoe
