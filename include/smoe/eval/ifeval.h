// IFEval: whether a response follows the instructions of its prompt that a program can check (Zhou et al.
// 2023). The verdicts are those of lm-evaluation-harness, but for five of the 25 kinds that need outside
// models (language_detection.h): every score is given over all kinds and without those five.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace smoe {

struct IfevalKind {
  std::string_view id;               // as in the data: "keywords:existence"
  bool needs_outside_model = false;  // the published tool decides it by a trained model
};

// The 25 kinds, by id.
const std::vector<IfevalKind>& ifeval_kinds();

// One instruction, ready to check responses. Safe to use from several threads.
struct IfevalInstruction {
  IfevalKind kind;
  std::function<bool(const std::string& response)> follows;
};

struct IfevalItem {
  int64_t key = 0;
  std::string prompt;
  std::vector<IfevalInstruction> instructions;
};

// Builds the checkers of one row of the published file (key, prompt, instruction_id_list, kwargs). Arguments
// that are null, 0, false or empty count as not given. Throws DataError with `where`, the instruction and the
// argument where one that the checker needs is missing or out of range: the published tool draws such
// arguments at random.
IfevalItem build_ifeval_item(const nlohmann::json& row, const std::string& where);

struct IfevalVerdict {
  IfevalKind kind;
  bool strict = false;  // the response as it is
  bool loose = false;   // any of eight versions: without first line, last line, both, each without asterisks
};

// One verdict an instruction. A blank response (or version) follows nothing. Throws DataError if the response
// is not UTF-8.
std::vector<IfevalVerdict> check_ifeval(const IfevalItem& item, const std::string& response);

}  // namespace smoe
