#include "smoe/eval/items.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <map>
#include <optional>

#include "smoe/core/error.h"
#include "smoe/eval/python_random.h"
#include "smoe/eval/text_filters.h"
#include "smoe/eval/text_template.h"
#include "smoe/eval/tool_dialogue.h"

namespace smoe {
namespace {

// The texts of one row before they are put into a prompt.
struct RenderedRow {
  std::string prompt;
  std::string raw_prompt;  // before the filters
  std::vector<std::string> choices;
  int64_t gold = 0;
  std::vector<std::string> targets;  // of kinds that generate
};

class RowRenderer {
 public:
  RowRenderer(const RowFormat& format, const TaskConfig& task)
      : format_(format),
        has_choices_(task.kind == TaskKind::kMultipleChoice || task.kind == TaskKind::kPartialEvaluation),
        generates_(is_generation(task.kind)),
        prompt_(format.prompt, "task " + task.name),
        target_(format.target, "task " + task.name) {
    for (const std::string& choice : format.choices) choices_.emplace_back(choice, "task " + task.name);
  }

  RenderedRow render(const Row& row) const {
    RenderedRow rendered;
    rendered.raw_prompt = prompt_.render(row);
    rendered.prompt = apply_text_filters(format_.prompt_filters, rendered.raw_prompt);
    if (generates_) rendered.targets = targets(row);
    if (!has_choices_) return rendered;
    if (!format_.choices_field.empty()) rendered.choices = row.texts(format_.choices_field);
    for (const TextTemplate& choice : choices_) rendered.choices.push_back(choice.render(row));
    for (std::string& choice : rendered.choices) {
      choice = apply_text_filters(format_.choice_filters, std::move(choice));
    }
    rendered.gold = gold(row, std::ssize(rendered.choices));
    return rendered;
  }

 private:
  std::vector<std::string> targets(const Row& row) const {
    if (format_.targets_field.empty()) {
      return format_.target.empty() ? std::vector<std::string>{} : std::vector{target_.render(row)};
    }
    std::vector<std::string> texts = row.texts(format_.targets_field);
    SMOE_CHECK(DataError, !texts.empty(), "{}: the list of right answers `{}` is empty", row.where(),
               format_.targets_field);
    return texts;
  }

  int64_t gold(const Row& row, int64_t num_choices) const {
    const GoldConfig& config = format_.gold;
    int64_t index = -1;
    std::string found = "index";
    if (config.index) {
      index = *config.index;
    } else {
      found = row.text(config.field);
      if (config.labels.empty() && config.labels_field.empty()) {
        const auto [end, error] = std::from_chars(found.data(), found.data() + found.size(), index);
        if (error != std::errc() || end != found.data() + found.size()) index = -1;
      } else {
        const auto labels = config.labels.empty() ? row.texts(config.labels_field) : config.labels;
        const auto label = std::ranges::find(labels, found);
        if (label != labels.end()) index = label - labels.begin();
      }
    }
    SMOE_CHECK(DataError, index >= 0 && index < num_choices,
               "{}: the right choice `{}` (field `{}`) is none of the {} choices", row.where(), found,
               config.field, num_choices);
    return index;
  }

  const RowFormat& format_;
  bool has_choices_;
  bool generates_;
  TextTemplate prompt_;
  TextTemplate target_;
  std::vector<TextTemplate> choices_;
};

// A prompt cut where the scored text begins: at the blank, or before the last word.
struct SplitPrompt {
  std::string before;
  std::string after;
};

SplitPrompt split_prompt(const TaskConfig& task, const std::string& prompt, const std::string& where) {
  if (task.kind == TaskKind::kLastWord) {
    const size_t space = prompt.rfind(' ');
    if (space == std::string::npos) return {"", " " + prompt};
    return {prompt.substr(0, space), prompt.substr(space)};
  }
  const size_t blank = prompt.find(task.blank);
  SMOE_CHECK(DataError, blank != std::string::npos, "{}: no blank `{}` in the sentence `{}`", where,
             task.blank, prompt);
  return {prompt.substr(0, blank),
          std::string(strip(std::string_view(prompt).substr(blank + task.blank.size())))};
}

// A row with its answer, as a shot shows it.
struct SolvedRow {
  std::string question;
  std::string answer;
};

SolvedRow solved_row(const TaskConfig& task, const RenderedRow& row, const std::string& where) {
  if (is_generation(task.kind)) {
    SMOE_CHECK(ConfigError, !row.targets.empty(), "task {}: shots need row.target or row.targets_field",
               task.name);
    return {row.prompt, row.targets.front()};
  }
  if (task.kind == TaskKind::kMultipleChoice) return {row.prompt, row.choices[static_cast<size_t>(row.gold)]};
  const SplitPrompt split = split_prompt(task, row.prompt, where);
  const std::string& option =
      task.kind == TaskKind::kPartialEvaluation ? row.choices[static_cast<size_t>(row.gold)] : std::string();
  return {split.before + option, split.after};
}

// What stands before the question: text, and messages of a dialogue.
struct Preamble {
  std::string text;
  Conversation dialogue;
};

// The two with `delimiter` between them, unless white space is there already.
std::string join_texts(const std::string& a, const std::string& b, const std::string& delimiter) {
  if (a.empty() || b.empty()) return a + b;
  const bool has_space = strip_right(a).size() < a.size() || strip_left(b).size() < b.size();
  return a + (has_space ? "" : delimiter) + b;
}

Preamble build_preamble(const TaskConfig& task, const ItemOptions& options, const std::string& description,
                        const std::vector<SolvedRow>& shots) {
  const auto text = [&] {
    std::string joined;
    for (const SolvedRow& shot : shots) {
      joined += shot.question + task.target_delimiter + shot.answer + task.few_shot.delimiter;
    }
    return joined;
  };
  if (options.layout == PromptLayout::kText) return {description + text(), {}};
  Preamble preamble;
  const std::string system = join_texts(options.system_prompt, description, task.few_shot.delimiter);
  if (!system.empty()) preamble.dialogue.push_back({ChatRole::kSystem, system});
  if (options.layout == PromptLayout::kOneMessage) {
    preamble.text = text();
    return preamble;
  }
  for (const SolvedRow& shot : shots) {
    preamble.dialogue.push_back({ChatRole::kUser, shot.question});
    preamble.dialogue.push_back({ChatRole::kAssistant, shot.answer});
  }
  return preamble;
}

// `delimiter` stands between question and answer; an assistant's message begins without it.
void add_pairs(const TaskConfig& task, const RenderedRow& row, const std::string& preamble,
               const std::string& delimiter, EvaluationItem& item) {
  item.choices = row.choices;
  item.gold = row.gold;
  if (task.kind == TaskKind::kRollingText) {
    item.pairs.push_back({"", row.prompt});
    item.choices = {row.raw_prompt};
    return;
  }
  if (task.kind == TaskKind::kMultipleChoice) {
    for (const std::string& choice : row.choices) {
      item.pairs.push_back({preamble + row.prompt, delimiter + choice});
    }
    return;
  }
  if (is_generation(task.kind)) {
    item.pairs.push_back({preamble + row.prompt, ""});
    item.references = row.targets;
    return;
  }
  const SplitPrompt split = split_prompt(task, row.prompt, item.where);
  if (task.kind == TaskKind::kLastWord) {
    item.pairs.push_back({preamble + split.before, split.after});
    item.choices = {split.after.substr(1)};
    return;
  }
  for (const std::string& option : row.choices) {
    item.pairs.push_back({preamble + split.before + option, delimiter + split.after});
  }
}

std::filesystem::path data_file(const std::string& name, const std::filesystem::path& folder) {
  return std::filesystem::path(name).is_absolute() ? std::filesystem::path(name) : folder / name;
}

// Draws shots for one evaluated row after the other.
class ShotSource {
 public:
  ShotSource(const TaskConfig& task, const ItemOptions& options)
      : task_(task),
        num_shots_(options.num_shots),
        random_(options.seed),
        renderer_(task.few_shot.row.prompt.empty() ? task.row : task.few_shot.row, task) {
    if (num_shots_ == 0) return;
    const DataSplit split =
        task.few_shot.split.value_or(!task.train_file.empty()        ? DataSplit::kTrain
                                     : !task.validation_file.empty() ? DataSplit::kValidation
                                                                     : DataSplit::kTest);
    const std::string& name = split == DataSplit::kTrain        ? task.train_file
                              : split == DataSplit::kValidation ? task.validation_file
                                                                : task.test_file;
    SMOE_CHECK(ConfigError, !name.empty(), "task {}: few_shot.split is {}, but the task names no file for it",
               task.name, enum_to_name(split));
    pool_ = read_rows(data_file(name, options.data_folder), 0);
    // The reference compares the two split names; "both unset" counts as equal.
    removes_evaluated_ = task.few_shot.split ? split == DataSplit::kTest : task.test_file.empty();
    const int64_t needed = num_shots_ + (removes_evaluated_ ? 1 : 0);
    for (int64_t i = 0; i < std::ssize(pool_); ++i) {
      pools_[pool_key(pool_[static_cast<size_t>(i)])].push_back(i);
    }
    for (const auto& [key, rows] : pools_) {
      SMOE_CHECK(DataError, std::ssize(rows) >= needed, "task {}: {} shots need {} rows{}, but {} holds {}",
                 task.name, num_shots_, needed,
                 key.empty() ? "" : fmt::format(" with {} `{}`", task.few_shot.same_field, key), name,
                 rows.size());
    }
  }

  std::vector<int64_t> draw(const Row& evaluated) {
    const auto is_other = [&](int64_t index) {
      return !removes_evaluated_ || pool_[static_cast<size_t>(index)].value() != evaluated.value();
    };
    std::vector<int64_t> drawn;
    if (num_shots_ == 0) return drawn;
    const std::vector<int64_t>& rows = rows_for(evaluated);
    if (task_.few_shot.sampler == ShotSampler::kFirstN) {
      for (size_t i = 0; i < rows.size() && std::ssize(drawn) < num_shots_; ++i) {
        if (is_other(rows[i])) drawn.push_back(rows[i]);
      }
    } else {
      drawn = random_.sample(std::ssize(rows), num_shots_ + (removes_evaluated_ ? 1 : 0));
      for (int64_t& index : drawn) index = rows[static_cast<size_t>(index)];
      std::erase_if(drawn, [&](int64_t index) { return !is_other(index); });
      if (std::ssize(drawn) < num_shots_) drawn = draw_among_others(rows, is_other);
      drawn.resize(std::min(drawn.size(), static_cast<size_t>(num_shots_)));
    }
    SMOE_CHECK(DataError, std::ssize(drawn) == num_shots_,
               "{}: fewer than {} few-shot rows differ from this row", evaluated.where(), num_shots_);
    return drawn;
  }

  std::vector<SolvedRow> solved(const std::vector<int64_t>& shots) const {
    std::vector<SolvedRow> rows;
    for (const int64_t index : shots) {
      const Row& row = pool_[static_cast<size_t>(index)];
      rows.push_back(solved_row(task_, renderer_.render(row), row.where()));
    }
    return rows;
  }

 private:
  // What the rows that a row may be shown have in common.
  std::string pool_key(const Row& row) const {
    return task_.few_shot.same_field.empty() ? "" : row.text(task_.few_shot.same_field);
  }
  const std::vector<int64_t>& rows_for(const Row& evaluated) const {
    const auto found = pools_.find(pool_key(evaluated));
    SMOE_CHECK(DataError, found != pools_.end(), "{}: no few-shot row has {} `{}`", evaluated.where(),
               task_.few_shot.same_field, pool_key(evaluated));
    return found->second;
  }

  // Several rows equal the evaluated one and were drawn: draw again without any of them.
  template <class Predicate>
  std::vector<int64_t> draw_among_others(const std::vector<int64_t>& rows, const Predicate& is_other) {
    std::vector<int64_t> others;
    std::ranges::copy_if(rows, std::back_inserter(others), is_other);
    if (std::ssize(others) < num_shots_) return {};
    std::vector<int64_t> drawn = random_.sample(std::ssize(others), num_shots_);
    for (int64_t& index : drawn) index = others[static_cast<size_t>(index)];
    return drawn;
  }

  const TaskConfig& task_;
  int64_t num_shots_;
  PythonRandom random_;
  RowRenderer renderer_;
  std::vector<Row> pool_;
  std::map<std::string, std::vector<int64_t>> pools_;  // rows of pool_ by key
  bool removes_evaluated_ = false;
};

bool is_scored(const RowRangeConfig& range, const Row& row) {
  if (range.field.empty()) return true;
  const auto found = row.value().find(range.field);
  SMOE_CHECK(DataError, found != row.value().end() && found->is_number_integer(),
             "{}: the task chooses rows by the whole number `{}`, which this row lacks", row.where(),
             range.field);
  return found->get<int64_t>() >= range.first && found->get<int64_t>() <= range.last;
}

std::vector<std::string> stops_of(const TaskConfig& task, const Row& row) {
  std::vector<std::string> stops = task.generation.stops;
  if (!task.generation.stops_field.empty()) {
    for (std::string& stop : row.texts(task.generation.stops_field)) stops.push_back(std::move(stop));
  }
  return stops;
}

std::string subgroup_of(const TaskConfig& task, const Row& row) {
  std::string value = row.text(task.subgroup_field);
  const bool is_known = std::ranges::any_of(task.subgroups, [&](const SubgroupConfig& group) {
    return std::ranges::find(group.values, value) != group.values.end();
  });
  SMOE_CHECK(DataError, is_known, "{}: {} `{}` belongs to no subgroup of task {}", row.where(),
             task.subgroup_field, value, task.name);
  return value;
}

void add_tool_dialogue(const TaskConfig& task, const ItemOptions& options, const Row& row,
                       EvaluationItem& item) {
  item.dialogue = tool_dialogue(task.tool_call, row);
  if (options.layout == PromptLayout::kText) {
    item.pairs.push_back({plain_dialogue(std::exchange(item.dialogue, {})), ""});
    return;
  }
  if (!options.system_prompt.empty()) {
    if (item.dialogue.front().role != ChatRole::kSystem)
      item.dialogue.insert(item.dialogue.begin(), {ChatRole::kSystem, ""});
    std::string& system = item.dialogue.front().content;
    system = join_texts(options.system_prompt, system, "\n\n");
  }
  item.pairs.push_back({std::move(item.dialogue.back().content), ""});
  item.dialogue.pop_back();
}

}  // namespace

std::filesystem::path scored_file(const TaskConfig& task, const std::filesystem::path& data_folder) {
  return data_file(task.test_file.empty() ? task.validation_file : task.test_file, data_folder);
}

int64_t shots_of(const TaskConfig& task, std::optional<int64_t> requested) {
  // Where there are no solved rows, a number of shots for all tasks is not meant.
  const bool has_solutions = !task.row.target.empty() || !task.row.targets_field.empty() ||
                             !task.few_shot.row.target.empty() || !task.few_shot.row.targets_field.empty();
  const bool takes_shots = is_generation(task.kind) ? has_solutions : task.kind != TaskKind::kRollingText;
  return takes_shots ? requested.value_or(task.few_shot.shots) : 0;
}

std::vector<EvaluationItem> build_items(const TaskConfig& task, const ItemOptions& options) {
  const std::filesystem::path file = scored_file(task, options.data_folder);
  SMOE_CHECK(DataError, std::filesystem::is_regular_file(file),
             "task {}: the data file {} does not exist; the folder that holds it is --data of smoe-eval, "
             "`evaluation.data` of a training run",
             task.name, file.string());
  SMOE_CHECK(ConfigError, task.kind != TaskKind::kRollingText || options.num_shots == 0,
             "task {}: plain text takes no shots", task.name);
  ShotSource shots(task, options);
  const RowRenderer renderer(task.row, task);
  const TextTemplate description(task.description, "task " + task.name);
  const std::string delimiter = options.layout == PromptLayout::kText ? task.target_delimiter : "";
  std::vector<EvaluationItem> items;
  for (const Row& row : read_rows(file, task.rows.field.empty() ? options.limit : 0)) {
    if (!is_scored(task.rows, row)) continue;
    if (options.limit > 0 && std::ssize(items) == options.limit) break;
    EvaluationItem item;
    item.line = row.line();
    item.where = row.where();
    item.shots = shots.draw(row);
    if (task.kind == TaskKind::kToolCall) {
      add_tool_dialogue(task, options, row, item);
    } else {
      Preamble preamble = build_preamble(task, options, description.render(row), shots.solved(item.shots));
      item.dialogue = std::move(preamble.dialogue);
      add_pairs(task, renderer.render(row), preamble.text, delimiter, item);
    }
    if (!task.subgroup_field.empty()) item.subgroup = subgroup_of(task, row);
    if (is_generation(task.kind)) item.stops = stops_of(task, row);
    if (is_generation(task.kind) && task.kind != TaskKind::kGenerate) item.row = row;
    items.push_back(std::move(item));
  }
  SMOE_CHECK(DataError, !items.empty(), "task {}: {} holds no row with {} from {} to {}", task.name,
             file.string(), task.rows.field, task.rows.first, task.rows.last);
  return items;
}

}  // namespace smoe
