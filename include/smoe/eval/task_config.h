// Config of a benchmark: tasks are data (configs/eval/tasks/*.yaml), so that a new benchmark of a known kind
// needs no C++. docs/evaluation.md describes the keys with examples.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "smoe/core/config.h"
#include "smoe/eval/answer_filters.h"
#include "smoe/eval/tool_calls.h"

namespace smoe {

// How a row becomes texts to score.
enum class TaskKind {
  kMultipleChoice,     // every choice is a continuation of one context
  kPartialEvaluation,  // every option completes the context at a blank; what follows the blank is scored
  kLastWord,           // the last word is the continuation of all the words before it
  kRollingText,        // the whole text is scored in windows
  kGenerate,           // answers are generated, read by filters and compared with references
  kCode,               // programs are generated and run
  kInstruction,        // answers are generated and checked against the instructions of IFEval
  kToolCall,           // calls of functions are generated and compared with the right ones
  kJudged,             // answers are generated and written to a file, for a judge
};
inline bool is_generation(TaskKind kind) {
  return kind == TaskKind::kGenerate || kind == TaskKind::kCode || kind == TaskKind::kInstruction ||
         kind == TaskKind::kToolCall || kind == TaskKind::kJudged;
}
template <>
struct EnumNames<TaskKind> {
  static constexpr std::array values = {enum_name(TaskKind::kMultipleChoice, "multiple_choice"),
                                        enum_name(TaskKind::kPartialEvaluation, "partial_evaluation"),
                                        enum_name(TaskKind::kLastWord, "last_word"),
                                        enum_name(TaskKind::kRollingText, "rolling_text"),
                                        enum_name(TaskKind::kGenerate, "generate"),
                                        enum_name(TaskKind::kCode, "code"),
                                        enum_name(TaskKind::kInstruction, "instruction"),
                                        enum_name(TaskKind::kToolCall, "tool_call"),
                                        enum_name(TaskKind::kJudged, "judged")};
};

// Text operations on prompts and choices; text_filters.h implements them.
enum class TextFilter { kStrip, kStripLeft, kStripRight, kCapitalize, kHellaswag, kWords, kWikitext };
template <>
struct EnumNames<TextFilter> {
  static constexpr std::array values = {enum_name(TextFilter::kStrip, "strip"),
                                        enum_name(TextFilter::kStripLeft, "strip_left"),
                                        enum_name(TextFilter::kStripRight, "strip_right"),
                                        enum_name(TextFilter::kCapitalize, "capitalize"),
                                        enum_name(TextFilter::kHellaswag, "hellaswag"),
                                        enum_name(TextFilter::kWords, "words"),
                                        enum_name(TextFilter::kWikitext, "wikitext")};
};

enum class Metric {
  kAccuracy,            // the best sum is the gold choice; last_word: every token is the arg-max
  kAccuracyCharacters,  // the same by sum / code points of the choice
  kAccuracyBytes,       // the same by sum / UTF-8 bytes of the choice
  kAccuracyCentered,    // (acc - 1/choices) / (1 - 1/choices): 0 is chance
  kGoldBitsPerByte,     // bits of the gold continuation per UTF-8 byte, averaged over rows
  kPerplexity,          // exp of minus the mean sum of a row: per word for last_word
  kLoss,                // rolling_text: nats a token
  kBitsPerByte,         // rolling_text: bits a UTF-8 byte
  kWordPerplexity,      // rolling_text: per whitespace-separated word
  kBytePerplexity,      // rolling_text: per UTF-8 byte
};
template <>
struct EnumNames<Metric> {
  static constexpr std::array values = {enum_name(Metric::kAccuracy, "acc"),
                                        enum_name(Metric::kAccuracyCharacters, "acc_norm"),
                                        enum_name(Metric::kAccuracyBytes, "acc_bytes"),
                                        enum_name(Metric::kAccuracyCentered, "acc_centered"),
                                        enum_name(Metric::kGoldBitsPerByte, "gold_bits_per_byte"),
                                        enum_name(Metric::kPerplexity, "perplexity"),
                                        enum_name(Metric::kLoss, "loss"),
                                        enum_name(Metric::kBitsPerByte, "bits_per_byte"),
                                        enum_name(Metric::kWordPerplexity, "word_perplexity"),
                                        enum_name(Metric::kBytePerplexity, "byte_perplexity")};
};

// Where the index of the right choice comes from.
struct GoldConfig {
  std::string field;
  std::string labels_field;
  std::vector<std::string> labels;
  std::optional<int64_t> index;
};
template <class Visitor>
void visit_fields(Visitor& visitor, GoldConfig& config) {
  visitor.field("field", config.field, "row field that names the right choice; by itself a number from 0");
  visitor.field("labels_field", config.labels_field,
                "row field with the labels of the choices, in which field is found");
  visitor.field("labels", config.labels, "fixed labels of the choices, in which field is found");
  visitor.field("index", config.index, "the same choice is right in every row; auto: by field", at_least(0));
}

// How the fields of a row become texts. Placeholders: {field}, {field.inner}, {field|filter|filter}; {{ and
// }} are braces. Filters: strip, strip_left, strip_right, capitalize, hellaswag, words,
// wikitext.
struct RowFormat {
  std::string prompt;
  std::vector<TextFilter> prompt_filters;
  std::vector<std::string> choices;
  std::string choices_field;
  std::vector<TextFilter> choice_filters;
  GoldConfig gold;
  std::string target;
  std::string targets_field;
};
template <class Visitor>
void visit_fields(Visitor& visitor, RowFormat& config) {
  visitor.field("prompt", config.prompt, "template of the question, sentence or text");
  visitor.field("prompt_filters", config.prompt_filters, "filters on the whole prompt, in order");
  visitor.field("choices", config.choices, "one template a choice");
  visitor.field("choices_field", config.choices_field,
                "row field that holds the list of choices, instead of choices");
  visitor.field("choice_filters", config.choice_filters, "filters on every choice, in order");
  visitor.field("gold", config.gold, "the right choice");
  visitor.field("target", config.target,
                "generated answers: template of the reference, and of a shot's answer");
  visitor.field(
      "targets_field", config.targets_field,
      "generated answers: row field with all right answers, instead of target; shots show the first");
}

enum class DataSplit { kTest, kValidation, kTrain };
template <>
struct EnumNames<DataSplit> {
  static constexpr std::array values = {enum_name(DataSplit::kTest, "test"),
                                        enum_name(DataSplit::kValidation, "validation"),
                                        enum_name(DataSplit::kTrain, "train")};
};

enum class ShotSampler {
  kRandom,  // CPython's random.Random(seed).sample, one generator a task, advanced through the rows in order
  kFirstN,  // the first rows of the few-shot split
};
template <>
struct EnumNames<ShotSampler> {
  static constexpr std::array values = {enum_name(ShotSampler::kRandom, "random"),
                                        enum_name(ShotSampler::kFirstN, "first_n")};
};

struct FewShotConfig {
  int64_t shots = 0;
  ShotSampler sampler = ShotSampler::kRandom;
  std::optional<DataSplit> split;
  std::string delimiter = "\n\n";
  RowFormat row;
  std::string same_field;
};
template <class Visitor>
void visit_fields(Visitor& visitor, FewShotConfig& config) {
  visitor.field("shots", config.shots,
                "solved rows before the question, unless the command line says otherwise", at_least(0));
  visitor.field("sampler", config.sampler, "which rows become shots");
  visitor.field("split", config.split, "where shots come from; auto: train, else validation, else test");
  visitor.field("delimiter", config.delimiter, "text after each shot");
  visitor.field("row", config.row, "format of the few-shot rows, if it differs (prompt not empty)");
  visitor.field("same_field", config.same_field,
                "shots come only from rows that agree with the question in this field");
}

// How answers are generated.
struct TaskGenerationConfig {
  int64_t max_new_tokens = 256;
  std::vector<std::string> stops;
  std::string stops_field;
  double temperature = 0.0;
  double top_p = 1.0;
  int64_t samples = 1;
  bool continues_text = false;
};
template <class Visitor>
void visit_fields(Visitor& visitor, TaskGenerationConfig& config) {
  visitor.field("max_new_tokens", config.max_new_tokens, "most tokens of an answer", at_least(1));
  visitor.field("stops", config.stops, "an answer ends before the first of these texts");
  visitor.field("stops_field", config.stops_field, "row field with more of these texts");
  visitor.field("temperature", config.temperature, "divides the logits; 0: greedy", at_least(0.0));
  visitor.field("top_p", config.top_p, "share of the probability that is drawn from");
  visitor.field("samples", config.samples, "answers to each row", at_least(1));
  visitor.field(
      "continues_text", config.continues_text,
      "an answer keeps the space by which it follows the prompt, which SentencePiece otherwise drops");
}

// How an answer is read from a generated text.
enum class AnswerReading {
  kText,     // as it is
  kStrip,    // without white space at its ends
  kRegex,    // a match of a regular expression
  kMinerva,  // the final answer of a MATH solution, normalised; the reference is the boxed one
};
template <>
struct EnumNames<AnswerReading> {
  static constexpr std::array values = {
      enum_name(AnswerReading::kText, "text"), enum_name(AnswerReading::kStrip, "strip"),
      enum_name(AnswerReading::kRegex, "regex"), enum_name(AnswerReading::kMinerva, "minerva")};
};

// One way to read answers; each gives a metric `exact_match,NAME` (`exact_match` without a name).
struct AnswerConfig {
  std::string name;
  AnswerReading reading = AnswerReading::kText;
  RegexFilterConfig regex;
};
template <class Visitor>
void visit_fields(Visitor& visitor, AnswerConfig& config) {
  visitor.field("name", config.name, "label of this reading in the name of its metric");
  visitor.field("reading", config.reading, "how the answer is found in the text");
  visitor.field("regex", config.regex, "of the reading regex");
}

enum class ProgramKind { kHumaneval, kMbpp, kMultiplE };
template <>
struct EnumNames<ProgramKind> {
  static constexpr std::array values = {enum_name(ProgramKind::kHumaneval, "humaneval"),
                                        enum_name(ProgramKind::kMbpp, "mbpp"),
                                        enum_name(ProgramKind::kMultiplE, "multipl_e")};
};

struct CodeTaskConfig {
  ProgramKind program = ProgramKind::kHumaneval;
  std::vector<int64_t> pass_at = {1};
};
template <class Visitor>
void visit_fields(Visitor& visitor, CodeTaskConfig& config) {
  visitor.field("program", config.program, "layout of the program that is run");
  visitor.field("pass_at", config.pass_at, "the k of pass@k; none may exceed generation.samples");
}

// The files of answers that judges read.
enum class JudgedFormat {
  kAlpacaEval,  // model_outputs.json of AlpacaEval; fields of a row: instruction, dataset
  kArenaHard,   // model_answer/MODEL.jsonl of Arena-Hard; fields of a row: uid
};
template <>
struct EnumNames<JudgedFormat> {
  static constexpr std::array values = {enum_name(JudgedFormat::kAlpacaEval, "alpaca_eval"),
                                        enum_name(JudgedFormat::kArenaHard, "arena_hard")};
};

struct JudgedConfig {
  JudgedFormat format = JudgedFormat::kAlpacaEval;
};
template <class Visitor>
void visit_fields(Visitor& visitor, JudgedConfig& config) {
  visitor.field("format", config.format, "layout of the file with the answers");
}

// Parts of a benchmark whose scores are reported beside the whole, each by its rows.
struct SubgroupConfig {
  std::string name;
  std::vector<std::string> values;
};
template <class Visitor>
void visit_fields(Visitor& visitor, SubgroupConfig& config) {
  visitor.field("name", config.name, "the name in tables");
  visitor.field("values", config.values, "values of subgroup_field that belong to it");
}

// Which rows of the data file are scored.
struct RowRangeConfig {
  std::string field;
  int64_t first = 0;
  int64_t last = 0;
};
template <class Visitor>
void visit_fields(Visitor& visitor, RowRangeConfig& config) {
  visitor.field("field", config.field, "whole-number field; empty: all rows are scored");
  visitor.field("first", config.first, "smallest value that is scored");
  visitor.field("last", config.last, "largest value that is scored");
}

struct TaskConfig {
  std::string name;
  std::string title;
  TaskKind kind = TaskKind::kMultipleChoice;
  std::string test_file;
  std::string validation_file;
  std::string train_file;
  std::string description;
  RowFormat row;
  std::string blank = "_";
  std::string target_delimiter = " ";
  std::vector<Metric> metrics;
  std::string primary = "acc";
  FewShotConfig few_shot;
  RowRangeConfig rows;
  TaskGenerationConfig generation;
  std::vector<AnswerConfig> answers;
  ExactMatchConfig exact_match;
  CodeTaskConfig code;
  ToolCallConfig tool_call;
  JudgedConfig judged;
  std::string subgroup_field;
  std::vector<SubgroupConfig> subgroups;
};
template <class Visitor>
void visit_fields(Visitor& visitor, TaskConfig& config) {
  visitor.field("name", config.name, "the name on the command line, also the name of the file");
  visitor.field("title", config.title, "the name in tables");
  visitor.field("kind", config.kind, "how rows become texts to score");
  visitor.field("test_file", config.test_file, "JSONL below the data folder; scored if given");
  visitor.field("validation_file", config.validation_file,
                "JSONL below the data folder; scored if there is no test");
  visitor.field("train_file", config.train_file, "JSONL below the data folder, for shots");
  visitor.field("description", config.description, "template of the text before everything else");
  visitor.field("row", config.row, "how the fields of a row become texts");
  visitor.field("blank", config.blank, "partial_evaluation: mark in the prompt that the options replace");
  visitor.field("target_delimiter", config.target_delimiter,
                "text between prompt and answer, scored with the answer");
  visitor.field("metrics", config.metrics, "what is reported, in order; kinds that generate name theirs");
  visitor.field("primary", config.primary, "the metric that groups average");
  visitor.field("few_shot", config.few_shot, "solved rows before the question");
  visitor.field("rows", config.rows, "the rows that are scored");
  visitor.field("generation", config.generation, "how answers are generated");
  visitor.field("answers", config.answers, "generate: how answers are read");
  visitor.field("exact_match", config.exact_match, "generate: what the comparison leaves out");
  visitor.field("code", config.code, "code: what is run and reported");
  visitor.field("tool_call", config.tool_call, "tool_call: how functions and calls are written");
  visitor.field("judged", config.judged, "judged: the file of the answers");
  visitor.field("subgroup_field", config.subgroup_field, "row field by which rows belong to a subgroup");
  visitor.field("subgroups", config.subgroups, "parts whose primary metric is reported too");
}

// The names of a task's metrics, in order: those of `metrics`, or what its kind reports.
std::vector<std::string> metric_names(const TaskConfig& config);

// What types alone do not say: a multiple choice needs choices, metrics must fit the kind, some file must be
// scored.
void validate(const TaskConfig& config, ConfigProblems& problems);

enum class TaskGroupKind {
  kMean,  // the plain mean of the members' primary metrics is reported
  kList,  // only a name for many tasks
};
template <>
struct EnumNames<TaskGroupKind> {
  static constexpr std::array values = {enum_name(TaskGroupKind::kMean, "mean"),
                                        enum_name(TaskGroupKind::kList, "list")};
};

// A named list of tasks.
struct TaskGroupConfig {
  std::string name;
  std::string title;
  std::vector<std::string> tasks;
  std::vector<std::string> groups = {};
  TaskGroupKind kind = TaskGroupKind::kMean;
  std::string note = {};
};
template <class Visitor>
void visit_fields(Visitor& visitor, TaskGroupConfig& config) {
  visitor.field("name", config.name, "the name on the command line, also the name of the file");
  visitor.field("title", config.title, "the name in tables");
  visitor.field("tasks", config.tasks, "members");
  visitor.field("groups", config.groups, "of the kind list: groups that belong to it, before its tasks");
  visitor.field("kind", config.kind, "what is reported beside the tasks");
  visitor.field("note", config.note, "printed below the results");
}

void validate(const TaskGroupConfig& config, ConfigProblems& problems);

}  // namespace smoe
