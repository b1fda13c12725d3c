// Config of a benchmark: tasks are data (configs/eval/tasks/*.yaml), so that a new benchmark of a known kind
// needs no C++. docs/evaluation.md describes the keys with examples.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "smoe/core/config.h"

namespace smoe {

// How a row becomes texts to score.
enum class TaskKind {
  kMultipleChoice,     // every choice is a continuation of one context
  kPartialEvaluation,  // every option completes the context at a blank; what follows the blank is scored
  kLastWord,           // the last word is the continuation of all the words before it
  kRollingText,        // the whole text is scored in windows
};
template <>
struct EnumNames<TaskKind> {
  static constexpr std::array values = {enum_name(TaskKind::kMultipleChoice, "multiple_choice"),
                                        enum_name(TaskKind::kPartialEvaluation, "partial_evaluation"),
                                        enum_name(TaskKind::kLastWord, "last_word"),
                                        enum_name(TaskKind::kRollingText, "rolling_text")};
};

// Text operations on prompts and choices; text_filters.h implements them.
enum class TextFilter { kStrip, kStripLeft, kStripRight, kCapitalize, kHellaswag };
template <>
struct EnumNames<TextFilter> {
  static constexpr std::array values = {
      enum_name(TextFilter::kStrip, "strip"), enum_name(TextFilter::kStripLeft, "strip_left"),
      enum_name(TextFilter::kStripRight, "strip_right"), enum_name(TextFilter::kCapitalize, "capitalize"),
      enum_name(TextFilter::kHellaswag, "hellaswag")};
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
// }} are braces. Filters: strip, strip_left, strip_right, capitalize, hellaswag.
struct RowFormat {
  std::string prompt;
  std::vector<TextFilter> prompt_filters;
  std::vector<std::string> choices;
  std::string choices_field;
  std::vector<TextFilter> choice_filters;
  GoldConfig gold;
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
};
template <class Visitor>
void visit_fields(Visitor& visitor, FewShotConfig& config) {
  visitor.field("shots", config.shots,
                "solved rows before the question, unless the command line says otherwise", at_least(0));
  visitor.field("sampler", config.sampler, "which rows become shots");
  visitor.field("split", config.split, "where shots come from; auto: train, else validation, else test");
  visitor.field("delimiter", config.delimiter, "text after each shot");
  visitor.field("row", config.row, "format of the few-shot rows, if it differs (prompt not empty)");
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
  Metric primary = Metric::kAccuracy;
  FewShotConfig few_shot;
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
  visitor.field("description", config.description, "text before everything else");
  visitor.field("row", config.row, "how the fields of a row become texts");
  visitor.field("blank", config.blank, "partial_evaluation: mark in the prompt that the options replace");
  visitor.field("target_delimiter", config.target_delimiter,
                "text between prompt and answer, scored with the answer");
  visitor.field("metrics", config.metrics, "what is reported, in order");
  visitor.field("primary", config.primary, "the metric that groups average");
  visitor.field("few_shot", config.few_shot, "solved rows before the question");
}

// What types alone do not say: a multiple choice needs choices, metrics must fit the kind, some file must be
// scored.
void validate(const TaskConfig& config, ConfigProblems& problems);

// A named list of tasks and the plain mean of their primary metrics.
struct TaskGroupConfig {
  std::string name;
  std::string title;
  std::vector<std::string> tasks;
};
template <class Visitor>
void visit_fields(Visitor& visitor, TaskGroupConfig& config) {
  visitor.field("name", config.name, "the name on the command line, also the name of the file");
  visitor.field("title", config.title, "the name in tables");
  visitor.field("tasks", config.tasks, "members");
}

}  // namespace smoe
