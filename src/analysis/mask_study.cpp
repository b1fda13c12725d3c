#include "smoe/analysis/mask_study.h"

#include <algorithm>
#include <map>

#include "smoe/core/error.h"
#include "smoe/core/files.h"
#include "smoe/core/json.h"
#include "smoe/core/log.h"
#include "smoe/core/table.h"
#include "smoe/routing/router_statistics.h"

namespace smoe {
namespace {

namespace fs = std::filesystem;

// A text as the model reads it.
struct EncodedText {
  std::vector<int64_t> tokens;
  std::vector<std::string> topics;  // a token
};

EncodedText encode(const Tokenizer& tokenizer, const TopicText& text, int64_t max_tokens) {
  EncodedText encoded;
  // As in token stores, a text begins after the token that ends the one before it.
  if (const auto end = tokenizer.eos_id()) {
    encoded.tokens.push_back(*end);
    encoded.topics.push_back(text.parts.front().topic);
  }
  size_t last_part_begin = 0;
  for (const TopicText::Part& part : text.parts) {
    last_part_begin = encoded.tokens.size();
    for (const int32_t id : tokenizer.encode(part.text)) {
      encoded.tokens.push_back(id);
      encoded.topics.push_back(part.topic);
    }
  }
  const size_t length = std::min(encoded.tokens.size(), static_cast<size_t>(max_tokens));
  if (text.parts.size() > 1 && length <= last_part_begin) {
    SPDLOG_WARN(
        "text `{}`: cut after {} of {} tokens, so that its last part is missing; make shorter texts "
        "(tools/make_mask_cases.py --characters) or raise --max-tokens",
        text.name, length, encoded.tokens.size());
  }
  encoded.tokens.resize(length);
  encoded.topics.resize(length);
  return encoded;
}

// uint8 [Q, L, E]: masks of the whole segments; a shorter one at the end says less and is left out.
at::Tensor masks_of(const Model& model, const EncodedText& text, int64_t budget, int64_t segment_length) {
  const int64_t length = static_cast<int64_t>(text.tokens.size()) / segment_length * segment_length;
  const int64_t num_layers = model.config().num_moe_layers;
  if (length == 0) return at::empty({0, num_layers, model.config().num_experts}, at::kByte);
  ModelInput input;
  input.tokens_BT = at::tensor(text.tokens, at::kLong).narrow(0, 0, length).unsqueeze(0).to(model.device());
  input.segments = fixed_segments(1, length, segment_length, model.config().routing.selector_position);
  input.budget_of_row = {budget};
  const at::NoGradGuard no_gradient;
  return model.forward(input).plan->mask_QLE.to(at::kCPU, at::kByte);
}

std::vector<int64_t> numbers_of(const std::vector<std::string>& topics, std::vector<std::string>& known) {
  std::vector<int64_t> numbers;
  for (const std::string& topic : topics) {
    const auto found = std::ranges::find(known, topic);
    numbers.push_back(found - known.begin());
    if (found == known.end()) known.push_back(topic);
  }
  return numbers;
}

TextMasks study_text(const Model& model, const TopicText& text, const EncodedText& encoded, int64_t budget,
                     int64_t segment_length) {
  TextMasks masks;
  masks.text = text.name;
  masks.mask_QLE = masks_of(model, encoded, budget, segment_length);
  for (int64_t q = 0; q < masks.mask_QLE.size(0); ++q) {
    masks.topics.push_back(encoded.topics[static_cast<size_t>(q * segment_length)]);
  }
  masks.cosine_QQ = mask_cosine_QQ(masks.mask_QLE);
  std::vector<std::string> known;
  masks.similarity = topic_similarity(masks.cosine_QQ, numbers_of(masks.topics, known));
  return masks;
}

void add_loads(BudgetMasks& budget) {
  std::vector<at::Tensor> all;
  std::vector<std::string> topics;
  for (const TextMasks& text : budget.texts) {
    all.push_back(text.mask_QLE);
    topics.insert(topics.end(), text.topics.begin(), text.topics.end());
  }
  const std::vector<int64_t> numbers = numbers_of(topics, budget.topics);
  const at::Tensor mask_QLE = at::cat(all).to(at::kDouble);
  budget.load_LE = mask_QLE.mean(0);
  std::vector<at::Tensor> loads;
  const at::Tensor topic_Q = at::tensor(numbers, at::kLong);
  for (int64_t topic = 0; topic < static_cast<int64_t>(budget.topics.size()); ++topic) {
    loads.push_back(mask_QLE.index({topic_Q.eq(topic)}).mean(0));
  }
  budget.topic_load_GLE = at::stack(loads);
}

bool has_one_topic(const TextMasks& text) {
  return !text.topics.empty() &&
         std::ranges::all_of(text.topics, [&](const std::string& topic) { return topic == text.topics[0]; });
}

// Texts are independent of each other, their segments are not: the test compares one mean mask a text. All
// means are over equally many segments, since masks depend on the position too (the first token is the same
// in all texts), and texts of one topic tend to be equally long: otherwise even masks that ignore the input
// would pass.
void compare_texts(BudgetMasks& budget, const MaskStudyOptions& options) {
  std::vector<at::Tensor> masks;
  std::vector<std::string> topics;
  for (const TextMasks& text : budget.texts) {
    if (!has_one_topic(text)) continue;
    masks.push_back(text.mask_QLE.to(at::kDouble));
    topics.push_back(text.topics[0]);
    const int64_t length = text.mask_QLE.size(0);
    budget.compared_segments = masks.size() == 1 ? length : std::min(budget.compared_segments, length);
  }
  if (masks.size() < 2) return;
  std::vector<at::Tensor> means;
  for (const at::Tensor& mask_QLE : masks) {
    means.push_back(mask_QLE.narrow(0, 0, budget.compared_segments).mean(0));
  }
  const at::Tensor cosine = mask_cosine_QQ(at::stack(means));
  std::vector<std::string> known;
  const std::vector<int64_t> numbers = numbers_of(topics, known);
  budget.between_texts = topic_similarity(cosine, numbers);
  if (budget.between_texts.within_pairs == 0 || budget.between_texts.across_pairs == 0) return;
  budget.p_value = topic_p_value(cosine, numbers, options.permutations, options.seed);
}

std::optional<double> mean_hit_rate(const Model& model, const std::vector<EncodedText>& texts, int64_t budget,
                                    int64_t segment_length) {
  double sum = 0.0;
  double count = 0.0;
  for (const EncodedText& text : texts) {
    const at::Tensor mask_QLE = masks_of(model, text, budget, segment_length);
    // Every pair of neighbours weighs the same.
    const double pairs = static_cast<double>(mask_QLE.size(0) - 1);
    if (pairs < 1.0) continue;
    sum += pairs * neighbor_hit_rate(mask_QLE);
    count += pairs;
  }
  return count == 0.0 ? std::nullopt : std::optional(sum / count);
}

double nesting_of(const BudgetMasks& smaller, const BudgetMasks& larger) {
  std::vector<at::Tensor> small, large;
  for (size_t i = 0; i < smaller.texts.size(); ++i) {
    small.push_back(smaller.texts[i].mask_QLE.to(at::kFloat));
    large.push_back(larger.texts[i].mask_QLE.to(at::kFloat));
  }
  return nesting_ratio(at::cat(small), at::cat(large));
}

nlohmann::ordered_json similarity_json(const TopicSimilarity& similarity) {
  return {{"within", similarity.within},
          {"across", similarity.across},
          {"within_pairs", similarity.within_pairs},
          {"across_pairs", similarity.across_pairs}};
}

nlohmann::ordered_json matrix_json(const at::Tensor& matrix) {
  const at::Tensor values = matrix.to(at::kDouble).contiguous();
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (int64_t i = 0; i < values.size(0); ++i) {
    const double* begin = values.const_data_ptr<double>() + i * values.size(1);
    rows.push_back(std::vector<double>(begin, begin + values.size(1)));
  }
  return rows;
}

TopicText parse_text(const nlohmann::json& line, const std::string& where) {
  TopicText text;
  try {
    if (line.contains("parts")) {
      text.name = line.at("name").get<std::string>();
      for (const auto& part : line.at("parts")) {
        text.parts.push_back({part.at("topic").get<std::string>(), part.at("text").get<std::string>()});
      }
    } else {
      text.parts.push_back({line.at("domain").get<std::string>(), line.at("text").get<std::string>()});
      text.name = line.value("name", "");
    }
  } catch (const nlohmann::json::exception& error) {
    throw DataError(
        fmt::format("{}: {}. A line is {{\"name\": ..., \"parts\": [{{\"topic\": ..., \"text\": ...}}]}} or "
                    "{{\"text\": ..., \"domain\": ...}}.",
                    where, error.what()));
  }
  SMOE_CHECK(DataError, !text.parts.empty(), "{}: `parts` is empty; a text needs at least one part", where);
  return text;
}

}  // namespace

std::vector<TopicText> read_topic_texts(const fs::path& path) {
  const std::string content = read_file(path);
  std::vector<TopicText> texts;
  int64_t number = 0;
  for (size_t begin = 0; begin < content.size();) {
    const size_t end = std::min(content.find('\n', begin), content.size());
    ++number;
    if (end > begin) {
      const std::string where = fmt::format("{}:{}", path.string(), number);
      texts.push_back(
          parse_text(parse_json(std::string_view(content).substr(begin, end - begin), where), where));
      if (texts.back().name.empty()) texts.back().name = fmt::format("line {}", number);
    }
    begin = end + 1;
  }
  SMOE_CHECK(DataError, !texts.empty(), "{}: holds no text", path.string());
  return texts;
}

MaskStudy study_masks(const Model& model, const Tokenizer& tokenizer, const std::vector<TopicText>& texts,
                      const MaskStudyOptions& options) {
  SMOE_CHECK(ConfigError, model.config().architecture == Architecture::kSteppedMoe,
             "the model is a {}, which has no masks; only a stepped_moe chooses experts for segments",
             enum_to_name(model.config().architecture));
  std::vector<EncodedText> encoded;
  for (const TopicText& text : texts) {
    encoded.push_back(encode(tokenizer, text, options.max_tokens));
    SMOE_CHECK(DataError, static_cast<int64_t>(encoded.back().tokens.size()) >= options.segment_length,
               "text `{}` has {} tokens, fewer than one segment of {}; give longer texts or a shorter "
               "--segment-length",
               text.name, encoded.back().tokens.size(), options.segment_length);
  }
  MaskStudy study;
  for (const int64_t index : options.budgets) {
    BudgetMasks budget;
    const BudgetConfig& config = model.config().budgets[static_cast<size_t>(index)];
    budget.budget = config.name;
    budget.experts_per_layer = config.experts_per_layer;
    for (size_t i = 0; i < texts.size(); ++i) {
      budget.texts.push_back(study_text(model, texts[i], encoded[i], index, options.segment_length));
    }
    add_loads(budget);
    compare_texts(budget, options);
    for (const int64_t length : options.hit_rate_lengths) {
      budget.hit_rates.push_back(mean_hit_rate(model, encoded, index, length));
    }
    if (!study.budgets.empty()) study.nesting.push_back(nesting_of(study.budgets.back(), budget));
    study.budgets.push_back(std::move(budget));
  }
  return study;
}

nlohmann::ordered_json to_json(const MaskStudy& study, const MaskStudyOptions& options) {
  nlohmann::ordered_json json = {{"segment_length", options.segment_length},
                                 {"max_tokens", options.max_tokens},
                                 {"permutations", options.permutations},
                                 {"seed", options.seed},
                                 {"nesting", study.nesting}};
  for (const BudgetMasks& budget : study.budgets) {
    nlohmann::ordered_json& entry = json["budgets"].emplace_back();
    entry = {{"name", budget.budget}, {"experts_per_layer", budget.experts_per_layer}};
    entry["between_texts"] = similarity_json(budget.between_texts);
    entry["between_texts"]["compared_segments"] = budget.compared_segments;
    entry["between_texts"]["p_value"] = budget.p_value ? nlohmann::ordered_json(*budget.p_value) : nullptr;
    for (size_t i = 0; i < options.hit_rate_lengths.size(); ++i) {
      const std::optional<double>& rate = budget.hit_rates[i];
      entry["hit_rates"].push_back({{"segment_length", options.hit_rate_lengths[i]},
                                    {"hit_rate", rate ? nlohmann::ordered_json(*rate) : nullptr}});
    }
    entry["load"] = matrix_json(budget.load_LE);
    for (size_t topic = 0; topic < budget.topics.size(); ++topic) {
      entry["topic_load"][budget.topics[topic]] =
          matrix_json(budget.topic_load_GLE[static_cast<int64_t>(topic)]);
    }
    for (const TextMasks& text : budget.texts) {
      nlohmann::ordered_json one = {{"name", text.text}, {"topics", text.topics}};
      one["segments"] = similarity_json(text.similarity);
      one["cosine"] = matrix_json(text.cosine_QQ);
      entry["texts"].push_back(std::move(one));
    }
  }
  return json;
}

std::string describe(const MaskStudy& study, const MaskStudyOptions& options) {
  std::vector<std::string> header = {"budget", "within topics", "across", "p"};
  for (const int64_t length : options.hit_rate_lengths)
    header.push_back(fmt::format("hit rate S={}", length));
  Table table(header);
  for (const BudgetMasks& budget : study.budgets) {
    const TopicSimilarity& between = budget.between_texts;
    std::vector<std::string> row = {fmt::format("{} (k={})", budget.budget, budget.experts_per_layer),
                                    between.within_pairs > 0 ? fmt::format("{:.3f}", between.within) : "-",
                                    between.across_pairs > 0 ? fmt::format("{:.3f}", between.across) : "-",
                                    budget.p_value ? fmt::format("{:.4f}", *budget.p_value) : "-"};
    for (const std::optional<double>& rate : budget.hit_rates) {
      row.push_back(rate ? fmt::format("{:.3f}", *rate) : "-");
    }
    table.add_row(row);
  }
  std::string text =
      table.to_terminal() +
      "Cosine between the mean masks of texts with one topic each, over the first segments that all of them "
      "have; p: permutation test over texts.\n";
  Table segments({"text", "budget", "segments", "within topics", "across"});
  for (const BudgetMasks& budget : study.budgets) {
    for (const TextMasks& one : budget.texts) {
      if (one.similarity.across_pairs == 0) continue;
      segments.add_row({one.text, budget.budget, std::to_string(one.mask_QLE.size(0)),
                        fmt::format("{:.3f}", one.similarity.within),
                        fmt::format("{:.3f}", one.similarity.across)});
    }
  }
  text += segments.to_terminal() + "Cosine between the masks of segments of texts with several topics.\n";
  for (size_t i = 0; i < study.nesting.size(); ++i) {
    text += fmt::format("{:.3f} of the experts of {} are among those of {}\n", study.nesting[i],
                        study.budgets[i].budget, study.budgets[i + 1].budget);
  }
  return text;
}

}  // namespace smoe
