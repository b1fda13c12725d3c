// Fine-tuning end to end: what packed dialogues may see of each other, what a choice of experts may depend
// on, and whole runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <fstream>

#include "chat_test_support.h"
#include "smoe/core/error.h"
#include "smoe/data/chat_renderer.h"
#include "smoe/model/checkpoint_reader.h"
#include "smoe/train/loss.h"
#include "smoe/train/model_input.h"
#include "smoe/train/run_data.h"
#include "smoe/train/trainer.h"
#include "train_test_support.h"

namespace smoe {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

TrainerOptions quiet(bool resume = false) {
  TrainerOptions options;
  options.resume = resume;
  options.console = false;
  options.log_to_folder = false;
  return options;
}

// Questions about small sums, so that there is something to learn.
std::string sums(uint64_t seed, int count) {
  SplitMix64 random(seed);
  std::string lines;
  for (int i = 0; i < count; ++i) {
    const auto a = random.below(5);
    const auto b = random.below(5);
    std::vector<std::string> turns = {fmt::format("{}+{}", a, b), fmt::format("it is {}", a + b)};
    if (i % 3 == 0) {
      turns.insert(turns.end(), {fmt::format("{}-{}", a + b, b), fmt::format("now it is {} again", a)});
    }
    lines += testing::chat_line(turns, i % 5 == 0 ? "sums" : "");
  }
  return lines;
}

TrainConfig tiny_sft(const fs::path& folder, Architecture architecture = Architecture::kSteppedMoe) {
  TrainConfig config = testing::tiny_run(folder, architecture);
  config.task = TrainTask::kSft;
  config.model.vocab_size = 264;
  config.data.tokenizer = testing::write_chat_tokenizer(folder / "tokenizer").string();
  for (const char* name : {"one", "two", "held"}) {
    std::ofstream(folder / (std::string(name) + ".jsonl")) << sums(name[0], name[0] == 'h' ? 12 : 60);
  }
  config.data.train = {{"one", (folder / "one.jsonl").string(), 2.0},
                       {"two", (folder / "two.jsonl").string(), 1.0}};
  config.data.validation = {{"held", (folder / "held.jsonl").string(), 1.0}};
  config.data.sequence_length = 96;
  config.data.sequences = SequenceKind::kPacked;
  config.sft.chat_template = testing::template_path("plain");
  config.sft.packing_window = 16;
  return config;
}

// A row of the given dialogues, as the data area would pack it.
Batch row_of(const std::vector<ChatExample>& examples, int64_t num_tokens) {
  Batch batch;
  batch.tokens_BT = at::zeros({1, num_tokens}, at::kLong);
  batch.targets_BT = at::zeros({1, num_tokens}, at::kLong);
  batch.loss_mask_BT = at::zeros({1, num_tokens}, at::kBool);
  batch.documents_BT = at::full({1, num_tokens}, 99, at::kLong);
  batch.positions_BT = at::zeros({1, num_tokens}, at::kLong);
  batch.sources = {0};
  ChatRow row;
  int64_t at = 0;
  for (const ChatExample& example : examples) {
    ChatSpan span{at, at + example.num_pairs(), {}};
    for (int64_t i = 0; i < example.num_pairs(); ++i) {
      batch.tokens_BT[0][at + i] = example.tokens[static_cast<size_t>(i)];
      batch.targets_BT[0][at + i] = example.tokens[static_cast<size_t>(i) + 1];
      batch.loss_mask_BT[0][at + i] = example.is_target[static_cast<size_t>(i) + 1] != 0;
      batch.documents_BT[0][at + i] = static_cast<int64_t>(row.size());
      batch.positions_BT[0][at + i] = i;
    }
    for (const ResponseSpan& response : example.responses) {
      span.responses.push_back({at + response.begin, std::min(at + response.end, span.end)});
    }
    row.push_back(span);
    at = span.end;
  }
  batch.chats = {row};
  return batch;
}

class SftRoutingTest : public ::testing::Test {
 protected:
  // Another choice of experts elsewhere changes the order of sums: float64 tells that from a leak.
  SftRoutingTest() : model_(config(), at::kCPU, at::kDouble) { model_.initialize(3); }

  static ModelConfig config() {
    ModelConfig config = testing::tiny_model_config();
    config.vocab_size = 264;
    return config;
  }
  int64_t num_budgets() const { return static_cast<int64_t>(model_.config().budgets.size()); }

  ChatExample render(const Conversation& messages) const {
    return ChatRenderer(load_chat_template(testing::template_path("chatml")), *tokenizer_).render(messages);
  }

  // The final hidden states [T, D] of a row, whose dot products with the head are the logits.
  at::Tensor hidden(const Batch& batch, int64_t budget) const {
    const at::NoGradGuard no_gradient;
    return model_.forward(make_model_input(batch, 4, {budget}, at::kCPU)).hidden_BTD[0];
  }

  // Sum of the cross-entropy over the trained tokens.
  double loss_sum(const Batch& batch, int64_t budget) const {
    const at::NoGradGuard no_gradient;
    const HeadLoss loss =
        head_cross_entropy(hidden(batch, budget), model_.output_weight(), batch.targets_BT.flatten(),
                           batch.loss_mask_BT.flatten().to(at::kDouble), {});
    return loss.weighted_loss.item<double>();
  }

  const testing::TemporaryFolder folder_;
  const std::unique_ptr<Tokenizer> tokenizer_ = load_tokenizer(testing::write_chat_tokenizer(folder_.path()));
  Model model_;
};

// The largest difference in each row of two [T, D] tensors.
at::Tensor difference_T(const at::Tensor& one_TD, const at::Tensor& other_TD) {
  return (one_TD - other_TD).abs().amax(1);
}

constexpr double kRounding = 1e-11;

const Conversation kFirst = {{ChatRole::kUser, "How are you?"}, {ChatRole::kAssistant, "Very well."}};
const Conversation kSecond = {{ChatRole::kUser, "Count"},
                              {ChatRole::kAssistant, "one two three"},
                              {ChatRole::kUser, "More"},
                              {ChatRole::kAssistant, "four five six"}};

TEST_F(SftRoutingTest, ChangingOneDialogueChangesNothingInAnother) {
  const ChatExample first = render(kFirst);
  const ChatExample second = render(kSecond);
  const int64_t border = first.num_pairs();
  const int64_t end = border + second.num_pairs();
  const Batch base = row_of({first, second}, end + 5);
  for (int64_t budget = 0; budget < num_budgets(); ++budget) {
    const at::Tensor before = hidden(base, budget);
    for (int64_t token = 0; token < end; ++token) {
      Batch changed = base;
      changed.tokens_BT = base.tokens_BT.clone();
      changed.tokens_BT[0][token] = (base.tokens_BT[0][token].item<int64_t>() + 17) % 256;
      const at::Tensor after = hidden(changed, budget);
      const bool in_first = token < border;
      const int64_t begin = in_first ? border : 0;
      const int64_t count = in_first ? second.num_pairs() : border;
      EXPECT_LT(difference_T(before, after).narrow(0, begin, count).max().item<double>(), kRounding)
          << "budget " << budget << ", token " << token;
      EXPECT_GT(difference_T(before, after)[token].item<double>(), 1e-3);
    }
  }
}

TEST_F(SftRoutingTest, AResponseTokenNeverChangesWhatIsPredictedBeforeIt) {
  const ChatExample example = render(kSecond);
  const Batch base = row_of({example}, example.num_pairs());
  for (int64_t budget = 0; budget < num_budgets(); ++budget) {
    const at::Tensor before = hidden(base, budget);
    for (const ResponseSpan& response : base.chats[0][0].responses) {
      for (int64_t token = response.begin; token < response.end; ++token) {
        Batch changed = base;
        changed.tokens_BT = base.tokens_BT.clone();
        changed.tokens_BT[0][token] = (base.tokens_BT[0][token].item<int64_t>() + 17) % 256;
        EXPECT_LT(difference_T(before, hidden(changed, budget)).narrow(0, 0, token).max().item<double>(),
                  kRounding)
            << "budget " << budget << ", token " << token;
      }
    }
  }
}

TEST_F(SftRoutingTest, APromptTokenNeverChangesATrainedPredictionBeforeIt) {
  const ChatExample example = render(kSecond);
  const Batch base = row_of({example}, example.num_pairs());
  const at::Tensor before = hidden(base, 1);
  const at::Tensor trained_T = base.loss_mask_BT[0];
  bool some_prompt_changed = false;
  for (int64_t token = 1; token < example.num_pairs(); ++token) {
    Batch changed = base;
    changed.tokens_BT = base.tokens_BT.clone();
    changed.tokens_BT[0][token] = (base.tokens_BT[0][token].item<int64_t>() + 17) % 256;
    const at::Tensor differs_T = difference_T(hidden(changed, 1), before).narrow(0, 0, token).gt(kRounding);
    EXPECT_FALSE(differs_T.logical_and(trained_T.narrow(0, 0, token)).any().item<bool>()) << token;
    some_prompt_changed = some_prompt_changed || differs_T.any().item<bool>();
  }
  EXPECT_TRUE(some_prompt_changed) << "the last prompt token chooses experts for the prompt before it";
}

TEST_F(SftRoutingTest, PackedLossEqualsTheSumOfUnpackedLosses) {
  const std::vector<ChatExample> examples = {render(kFirst), render(kSecond), render(kFirst)};
  int64_t total = 7;  // padding
  for (const ChatExample& example : examples) total += example.num_pairs();
  for (int64_t budget = 0; budget < num_budgets(); ++budget) {
    double unpacked = 0.0;
    for (const ChatExample& example : examples) {
      unpacked += loss_sum(row_of({example}, example.num_pairs()), budget);
    }
    EXPECT_NEAR(loss_sum(row_of(examples, total), budget), unpacked, 1e-10 * unpacked) << "budget " << budget;
  }
}

TEST(SliceRows, KeepsTheDialoguesOfItsRows) {
  const testing::TemporaryFolder folder;
  const TrainConfig config = tiny_sft(folder.path());
  const auto tokenizer = load_tokenizer(config.data.tokenizer);
  const Batch batch = open_training_data(config, *tokenizer).rows(0, 5);
  const Batch slice = slice_rows(batch, 2, 2);
  ASSERT_EQ(slice.chats.size(), 2U);
  EXPECT_EQ(slice.chats[0], batch.chats[2]);
  EXPECT_EQ(slice.chats[1], batch.chats[3]);
  const SegmentMap segments = make_model_input(slice, 4, {0, 0}, at::kCPU).segments;
  segments.check();
  EXPECT_EQ(segments.segments, chat_segments(slice.chats, 96, 4).segments);
}

TEST(Sft, TrainingReducesTheLossOfEveryBudget) {
  const testing::TemporaryFolder folder;
  TrainConfig config = tiny_sft(folder.path());
  config.steps = 60;
  config.optimizer.learning_rate = 1e-2;
  config.optimizer.mup_base_dim = 0;
  config.validate_every_steps = 0;
  Trainer trainer(config, quiet());
  const auto tokenizer = load_tokenizer(config.data.tokenizer);
  const Validation validation(config, *tokenizer);
  const ValidationReport before = validation.run(trainer.model());
  trainer.run();
  const ValidationReport after = validation.run(trainer.model());
  ASSERT_EQ(after.sources[0].losses.size(), 3U);
  for (size_t budget = 0; budget < 3; ++budget) {
    EXPECT_GT(before.sources[0].losses[budget], 4.0);
    EXPECT_LT(after.sources[0].losses[budget], 1.2);
  }
  EXPECT_GT(after.sources[0].bits_per_byte[0], 0.0);
}

// Ends the run after a step, as a signal does.
class SignalAfter : public TrainCallback {
 public:
  explicit SignalAfter(int64_t step) : step_(step) {}
  void on_step(const StepReport& report) override {
    if (report.step == step_) ::raise(SIGTERM);
  }

 private:
  int64_t step_;
};

TEST(Sft, ResumesBitForBit) {
  const testing::TemporaryFolder folder;
  TrainConfig config = tiny_sft(folder.path());
  config.steps = 20;
  config.model.routing.balance.kind = BalanceKind::kBias;
  config.model.routing.random_mask_fraction = 0.5;
  const auto weights = [](const TrainConfig& run) {
    return sha256_of_file(resolve_checkpoint(run.run_folder) / "model.safetensors");
  };
  config.run_folder = (folder / "straight").string();
  Trainer(config, quiet()).run();
  const std::string straight = weights(config);
  config.run_folder = (folder / "stopped").string();
  {
    Trainer trainer(config, quiet());
    trainer.add_callback(std::make_unique<SignalAfter>(7));
    EXPECT_EQ(trainer.run().signal, SIGTERM);
  }
  Trainer(config, quiet(true)).run();
  EXPECT_EQ(weights(config), straight);
}

// One run keeps its activations, the other computes them twice.
TEST(Sft, RecomputedLayersChangeNoBitOfTheResult) {
  for (const Architecture architecture : {Architecture::kSteppedMoe, Architecture::kVanillaMoe}) {
    const testing::TemporaryFolder folder;
    TrainConfig config = tiny_sft(folder.path(), architecture);
    std::vector<std::string> hashes;
    for (const CheckpointedLayers policy : {CheckpointedLayers::kNone, CheckpointedLayers::kAll}) {
      config.activation_checkpointing.policy = policy;
      config.run_folder = (folder.path() / std::string(enum_to_name(policy))).string();
      Trainer(config, quiet()).run();
      hashes.push_back(sha256_of_file(resolve_checkpoint(config.run_folder) / "model.safetensors"));
    }
    EXPECT_EQ(hashes[0], hashes[1]);
  }
}

TEST(Sft, ResumeRefusesOtherDialogues) {
  const testing::TemporaryFolder folder;
  const TrainConfig config = tiny_sft(folder.path());
  Trainer(config, quiet()).run();
  std::ofstream(folder / "two.jsonl", std::ios::app) << testing::chat_line({"new", "line"});
  EXPECT_THROW(Trainer(config, quiet(true)), CheckpointError);
}

TEST(Sft, CheckpointKeepsTemplateAndSpecialTokens) {
  const testing::TemporaryFolder folder;
  const TrainConfig config = tiny_sft(folder.path());
  Trainer(config, quiet()).run();
  const fs::path checkpoint = resolve_checkpoint(config.run_folder);
  verify_checkpoint(checkpoint);
  EXPECT_EQ(dump_config(checkpoint_chat_template(checkpoint)),
            dump_config(load_chat_template(config.sft.chat_template)));
  const auto before = load_tokenizer(config.data.tokenizer);
  const auto after = load_tokenizer(checkpoint_tokenizer(checkpoint));
  EXPECT_EQ(after->eos_id(), before->eos_id());
  EXPECT_EQ(after->bos_id(), before->bos_id());
  EXPECT_EQ(after->hash(), before->hash());
}

class InitializeFromTest : public ::testing::Test {
 protected:
  // A pre-training run of one step with the tokenizer of the dialogues.
  TrainConfig pretrained(Architecture architecture = Architecture::kSteppedMoe) const {
    TrainConfig config = tiny_sft(folder_.path(), architecture);
    config.task = TrainTask::kPretrain;
    config.data.sequences = SequenceKind::kStream;
    config.data.sequence_length = 16;
    const std::string hash = load_tokenizer(config.data.tokenizer)->hash();
    config.data.train = {{"text", testing::write_store(folder_ / "text", hash, 400, 5), 1.0}};
    config.data.validation = {};
    config.run_folder = (folder_ / "pretrained").string();
    config.steps = 2;
    Trainer(config, quiet()).run();
    return config;
  }
  TrainConfig finetuning(Architecture architecture = Architecture::kSteppedMoe) const {
    TrainConfig config = tiny_sft(folder_.path(), architecture);
    config.initialize_from = (folder_ / "pretrained").string();
    config.run_folder = (folder_ / "finetuned").string();
    return config;
  }
  static std::string refusal(const TrainConfig& config) {
    try {
      Trainer trainer(config, quiet());
    } catch (const CheckpointError& error) {
      return error.what();
    }
    ADD_FAILURE() << "no error was thrown";
    return "";
  }

  const testing::TemporaryFolder folder_;
};

TEST_F(InitializeFromTest, TakesTheWeightsOfTheNewestCheckpoint) {
  for (const Architecture architecture : {Architecture::kSteppedMoe, Architecture::kDense}) {
    fs::remove_all(folder_ / "pretrained");
    fs::remove_all(folder_ / "finetuned");
    pretrained(architecture);
    Trainer trainer(finetuning(architecture), quiet());
    const Model old = load_model(folder_ / "pretrained", at::kCPU);
    for (size_t i = 0; i < old.parameters().size(); ++i) {
      EXPECT_TRUE(at::equal(old.parameters()[i].tensor, trainer.model().parameters()[i].tensor))
          << old.parameters()[i].name;
    }
    EXPECT_EQ(trainer.state().step, 0);
    EXPECT_EQ(trainer.run().signal, 0);
  }
}

TEST_F(InitializeFromTest, TakesOtherExpertCountsABudgetButNotOtherShapes) {
  pretrained();
  TrainConfig config = finetuning();
  config.model.budgets = {{"1B", 2}, {"2B", 4}, {"3B", 8}};
  EXPECT_NO_THROW(Trainer(config, quiet()));

  config.model.budgets = {{"1B", 2}, {"2B", 4}};
  config.model.dense_ffn_dim = 40;
  EXPECT_THAT(refusal(config), AllOf(HasSubstr("initialize_from"), HasSubstr("size_embedding.weight"),
                                     HasSubstr("layers.0.feed_forward.gate_proj.weight"),
                                     HasSubstr("layers.0.feed_forward.down_proj.weight"),
                                     HasSubstr("48 x 32 in the file, 40 x 32 in the model")));
}

TEST_F(InitializeFromTest, RefusesWhatIsNoCheckpointOrAnotherTokenizer) {
  TrainConfig config = finetuning();
  EXPECT_THAT(refusal(config), HasSubstr("no such folder"));
  pretrained();
  const fs::path other = folder_ / "other";
  fs::create_directories(other);
  std::string text = read_file(config.data.tokenizer);
  text.replace(text.find("<|im_end|>"), 10, "<|im_fin|>");
  write_file_atomically(other / "tokenizer.json", text);
  fs::copy_file(folder_ / "tokenizer" / "special_tokens_map.json", other / "special_tokens_map.json");
  config.data.tokenizer = (other / "tokenizer.json").string();
  EXPECT_THAT(refusal(config),
              AllOf(HasSubstr("token 257"), HasSubstr("<|im_end|>"), HasSubstr("<|im_fin|>")));
}

TEST(SftConfig, NeedsATemplateAndPackedRows) {
  const testing::TemporaryFolder folder;
  TrainConfig config = tiny_sft(folder.path());
  config.sft.chat_template = "";
  config.data.sequences = SequenceKind::kStream;
  try {
    config_from_yaml<TrainConfig>(dump_config(config), "run.yaml");
    ADD_FAILURE() << "no error was thrown";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("sft.chat_template"), HasSubstr("data.sequences")));
  }
}

}  // namespace
}  // namespace smoe
