// AlpacaEval 2: a judge compares a model's answers with those of a baseline, one request an instruction. The
// preference is the judge's probability of naming the model's answer, from the log-probabilities of its
// answer.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "smoe/eval/judge_client.h"
#include "smoe/eval/length_controlled.h"
#include "smoe/eval/model_outputs.h"

namespace smoe {

// How the judge is asked.
struct AlpacaJudge {
  std::string name;                    // of this set-up, the `annotator` in annotations
  std::string model;                   // that the benchmark prescribes
  std::vector<JudgeMessage> messages;  // with the placeholders {instruction}, {output_1} and {output_2}
  std::string numerator_token;         // names the first output
  std::vector<std::string> denominator_tokens;
  JudgeSampling sampling;
};

// Reads a judge from one JSON object with the keys name, judge_model, prompt_template (roles between
// <|im_start|> and <|im_end|>), numerator_token, denominator_tokens, max_tokens, temperature and
// top_logprobs. Throws DataError.
AlpacaJudge read_alpaca_judge(const std::filesystem::path& file);

// An instruction with both answers.
struct AlpacaItem {
  int64_t index = 0;  // position in the benchmark
  std::string dataset;
  std::string instruction;
  std::string baseline_output;
  std::string baseline_name;
  std::string model_output;
  std::string model_name;
  bool model_is_first = false;  // whether the judge sees the model's answer first
};

struct AlpacaPairing {
  uint64_t seed = 0;           // of the order of the two answers
  int64_t limit = 0;           // first instructions only; 0: all
  bool allow_missing = false;  // judge what is there
};

// Joins answers by instruction with the reference, in its order. The order of two answers depends on the seed
// and the instruction alone. Throws DataError if an answer belongs to no instruction or is missing.
std::vector<AlpacaItem> pair_alpaca_outputs(const std::vector<AlpacaOutput>& reference,
                                            const std::vector<AlpacaOutput>& outputs,
                                            const AlpacaPairing& pairing);

JudgeRequest alpaca_request(const AlpacaJudge& judge, const AlpacaItem& item);

struct AlpacaVerdict {
  std::optional<double> preference;  // probability that the model's answer is better; none: invalid
  std::string raw;                   // what the judge said
  std::string problem;               // why it is invalid
};

// Reads the log-probabilities at the first token. A judge that names neither output among its likeliest
// tokens, or gives no log-probabilities, is invalid.
AlpacaVerdict read_alpaca_verdict(const AlpacaJudge& judge, const AlpacaItem& item, const JudgeReply& reply);

// Annotations in the project's own format; `preference` is 1 (baseline) to 2 (model), null where invalid.
void write_alpaca_annotations(const std::filesystem::path& file, const std::string& annotator,
                              const std::vector<AlpacaItem>& items,
                              const std::vector<AlpacaVerdict>& verdicts);
// The verdicts for `items`, in their order, from such a file; output_1 must be the baseline's and output_2
// the model's answer. Items without annotation get an invalid verdict. Throws DataError for annotations of
// other answers.
std::vector<AlpacaVerdict> read_alpaca_annotations(const std::filesystem::path& file,
                                                   const std::vector<AlpacaItem>& items);

struct AlpacaScores {
  std::string model_name;
  std::string baseline_name;
  int64_t num_items = 0;
  int64_t num_invalid = 0;
  int64_t num_wins = 0;  // preference above 0.5
  int64_t num_draws = 0;
  double win_rate = 0.0;  // mean preference, in [0, 1]
  double standard_error = 0.0;
  double average_length = 0.0;  // characters of the model's answers
  double baseline_average_length = 0.0;
  std::optional<LengthControlResult> length_controlled;  // none where `length_control_problem` says why
  std::string length_control_problem;
};

// Throws DataError if no verdict is valid.
AlpacaScores score_alpaca(const std::vector<AlpacaItem>& items, const std::vector<AlpacaVerdict>& verdicts,
                          const LengthControlData& length_control);

}  // namespace smoe
