#include "smoe/data/chat_row_source.h"

#include <set>

#include "chat_test_support.h"
#include "data_test_support.h"
#include "smoe/data/training_data.h"

namespace smoe {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class ChatRowSourceTest : public ::testing::Test {
 protected:
  ChatRowSourceTest() {
    data_.sequence_length = 64;
    data_.sequences = SequenceKind::kPacked;
    sft_.chat_template = testing::template_path("chatml");
  }

  SourceConfig source(const std::string& lines) const {
    return {"chats", test::write_text(folder_ / "chats.jsonl", lines).string(), 1.0};
  }
  ChatRowSource open(const std::string& lines, RowPurpose purpose = RowPurpose::kTraining) const {
    return {source(lines), data_, sft_, renderer_, 300, purpose};
  }

  testing::TemporaryFolder folder_;
  std::unique_ptr<Tokenizer> tokenizer_ = load_tokenizer(testing::write_chat_tokenizer(folder_.path()));
  ChatRenderer renderer_{load_chat_template(testing::template_path("chatml")), *tokenizer_};
  DataConfig data_;
  SftConfig sft_;
};

// Dialogues of many lengths; number i answers with its own number.
std::string numbered(int count) {
  std::string lines;
  for (int i = 0; i < count; ++i) {
    lines +=
        testing::chat_line({std::string(static_cast<size_t>(1 + i * 7 % 13), 'q'), fmt::format("<{}>", i)});
  }
  return lines;
}

// The text of the trained targets of a row, one a dialogue.
std::vector<std::string> answers_of(const Batch& batch, int64_t row, const Tokenizer& tokenizer) {
  std::vector<std::string> answers;
  for (const ChatSpan& span : batch.chats[static_cast<size_t>(row)]) {
    std::vector<int32_t> ids;
    for (int64_t t = span.begin; t < span.end; ++t) {
      if (batch.loss_mask_BT[row][t].item<bool>()) ids.push_back(batch.targets_BT[row][t].item<int32_t>());
    }
    answers.push_back(tokenizer.decode(ids));
  }
  return answers;
}

TEST_F(ChatRowSourceTest, FillsARowFromTheRenderedDialogues) {
  const std::string lines = testing::chat_line({"ab", "cd"}) + testing::chat_line({"e", "f"});
  const ChatRowSource rows = open(lines, RowPurpose::kValidation);
  data_.sequence_length = 64;
  ASSERT_EQ(rows.num_rows(), 1);
  Batch batch = make_batch(1, 64, SequenceKind::kPacked);
  rows.fill(0, batch, 0);
  int64_t at = 0;
  for (const Conversation& messages : {Conversation{{ChatRole::kUser, "ab"}, {ChatRole::kAssistant, "cd"}},
                                       Conversation{{ChatRole::kUser, "e"}, {ChatRole::kAssistant, "f"}}}) {
    const ChatExample example = renderer_.render(messages);
    const int64_t document = batch.documents_BT[0][at].item<int64_t>();
    for (int64_t i = 0; i < example.num_pairs(); ++i, ++at) {
      EXPECT_EQ(batch.tokens_BT[0][at].item<int64_t>(), example.tokens[i]);
      EXPECT_EQ(batch.targets_BT[0][at].item<int64_t>(), example.tokens[i + 1]);
      EXPECT_EQ(batch.loss_mask_BT[0][at].item<bool>(), example.is_target[i + 1] == 1);
      EXPECT_EQ(batch.positions_BT[0][at].item<int64_t>(), i);
      EXPECT_EQ(batch.documents_BT[0][at].item<int64_t>(), document);
    }
    EXPECT_NE(batch.documents_BT[0][at].item<int64_t>(), document);
  }
  for (; at < 64; ++at) EXPECT_FALSE(batch.loss_mask_BT[0][at].item<bool>());
  const SegmentMap segments = batch_segments(batch, 4);
  segments.check();
  // The answer "cd<|im_end|>" begins at token 16 of the first dialogue, which has 18 inputs; both are one
  // run.
  const ChatExample first = renderer_.render({{ChatRole::kUser, "ab"}, {ChatRole::kAssistant, "cd"}});
  EXPECT_EQ(segments.segments[0], (Segment{0, 0, first.num_pairs(), first.responses[0].begin - 1}));
  EXPECT_EQ(segments.num_segments(), 2);
}

TEST_F(ChatRowSourceTest, GivesEveryAnswerOnceAPassAndFillsRowsWell) {
  sft_.packing_window = 32;
  const ChatRowSource rows = open(numbered(100));
  std::multiset<std::string> answers;
  Batch batch = make_batch(rows.num_rows(), 64, SequenceKind::kPacked);
  for (int64_t row = 0; row < rows.num_rows(); ++row) {
    rows.fill(row, batch, row);
    for (const std::string& answer : answers_of(batch, row, *tokenizer_)) answers.insert(answer);
  }
  std::multiset<std::string> expected;
  for (int i = 0; i < 100; ++i) expected.insert(fmt::format("<{}>", i));
  EXPECT_EQ(answers, expected);
  EXPECT_EQ(rows.counts().dialogues, 100);
  EXPECT_EQ(rows.counts().targets, batch.num_targets());
  // Dialogues of 33 to 46 tokens hardly share a row of 64, those of 96 do.
  data_.sequence_length = 256;
  EXPECT_GT(static_cast<double>(open(numbered(100)).counts().tokens) /
                static_cast<double>(open(numbered(100)).num_rows() * 256),
            0.85);
}

TEST_F(ChatRowSourceTest, WindowsAndSeedDecideThePacking) {
  data_.sequence_length = 200;
  const auto layout = [&](int64_t seed, int64_t window) {
    data_.seed = seed;
    sft_.packing_window = window;
    const ChatRowSource rows = open(numbered(60));
    Batch batch = make_batch(rows.num_rows(), 200, SequenceKind::kPacked);
    std::vector<std::vector<std::string>> all;
    for (int64_t row = 0; row < rows.num_rows(); ++row) {
      rows.fill(row, batch, row);
      all.push_back(answers_of(batch, row, *tokenizer_));
    }
    return all;
  };
  EXPECT_EQ(layout(1, 20), layout(1, 20));
  EXPECT_NE(layout(1, 20), layout(2, 20));
  EXPECT_NE(layout(1, 20), layout(1, 60));
}

TEST_F(ChatRowSourceTest, LongDialoguesFollowThePolicyAndAreCounted) {
  const std::string lines = testing::chat_line({"short", "yes"}) +
                            testing::chat_line({std::string(80, 'q'), "long"}) +
                            testing::chat_line({"q", std::string(80, 'a')});
  EXPECT_EQ(open(lines).counts().dropped, 2);
  sft_.too_long = TooLongPolicy::kTruncateLeft;
  const ChatRowSource cut = open(lines, RowPurpose::kValidation);
  EXPECT_EQ(cut.counts().dialogues, 3);
  EXPECT_EQ(cut.counts().dropped, 1) << "an answer longer than the row has no beginning left";
  EXPECT_EQ(cut.counts().truncated, 1);
  Batch batch = make_batch(2, 64, SequenceKind::kPacked);
  cut.fill(1, batch, 1);
  EXPECT_THAT(answers_of(batch, 1, *tokenizer_), ::testing::ElementsAre("long"));
  EXPECT_EQ(batch.chats[1][0].end, 64);
  sft_.too_long = TooLongPolicy::kError;
  EXPECT_THAT(test::error_of([&] { open(lines); }),
              AllOf(HasSubstr("chats.jsonl:2"), HasSubstr("sequence_length"), HasSubstr("sft.too_long")));
  sft_.too_long = TooLongPolicy::kDrop;
  EXPECT_THAT(test::error_of([&] {
                open(testing::chat_line({std::string(80, 'q'), "long"}));
              }),
              HasSubstr("none of its 1 dialogues"));
}

TEST_F(ChatRowSourceTest, ADialogueOfExactlyOneRowFits) {
  const int64_t frame = renderer_.render({{ChatRole::kUser, ""}, {ChatRole::kAssistant, "a"}}).num_pairs();
  const auto chat = [&](int64_t pairs) {
    return testing::chat_line({std::string(static_cast<size_t>(pairs - frame), 'q'), "a"});
  };
  EXPECT_EQ(open(chat(64)).counts().dropped, 0);
  EXPECT_THROW(open(chat(65)), DataError);
}

TEST_F(ChatRowSourceTest, NamesTheLineThatIsNoConversation) {
  EXPECT_THAT(test::error_of([&] { open(numbered(5) + "{\"text\": \"x\"}\n" + numbered(50)); }),
              HasSubstr("chats.jsonl:6: messages"));
}

TEST_F(ChatRowSourceTest, RefusesATokenizerLargerThanTheVocabulary) {
  EXPECT_THAT(test::error_of([&] {
                ChatRowSource(source(numbered(3)), data_, sft_, renderer_, 260, RowPurpose::kTraining);
              }),
              AllOf(HasSubstr("263"), HasSubstr("model.vocab_size is 260")));
}

TEST_F(ChatRowSourceTest, RefusesRowsThatWouldMixDialogues) {
  data_.sequences = SequenceKind::kStream;
  EXPECT_THAT(test::error_of<ConfigError>([&] { open(numbered(3)); }), HasSubstr("packed"));
}

class ChatTrainingDataTest : public ChatRowSourceTest {
 protected:
  ChatTrainingDataTest() {
    for (const char* name : {"a", "b"}) {
      data_.train.push_back(
          {name,
           test::write_text(folder_ / (std::string(name) + ".jsonl"), numbered(name[0] == 'a' ? 40 : 23))
               .string(),
           name[0] == 'a' ? 3.0 : 1.0});
    }
    data_.sequence_length = 128;
  }
  TrainingData make() const { return TrainingData(data_, sft_, *tokenizer_, 300); }
};

TEST_F(ChatTrainingDataTest, HasOneOrderHoweverItIsRead) {
  const TrainingData data = make();
  const TrainingData again = make();
  const Batch whole = data.rows(0, 400);
  for (const int64_t position : {0, 17, 393}) {
    const Batch part = again.rows(position, 7);
    EXPECT_TRUE(at::equal(part.tokens_BT, whole.tokens_BT.narrow(0, position, 7)));
    EXPECT_TRUE(at::equal(part.loss_mask_BT, whole.loss_mask_BT.narrow(0, position, 7)));
    for (size_t i = 0; i < 7; ++i) EXPECT_EQ(part.chats[i], whole.chats[static_cast<size_t>(position) + i]);
  }
  batch_segments(whole, 8).check();
  EXPECT_NEAR(static_cast<double>(std::ranges::count(whole.sources, 0)), 300.0, 30.0);
}

TEST_F(ChatTrainingDataTest, FingerprintChangesWithEverythingThatChangesTheRows) {
  const std::string before = make().fingerprint();
  EXPECT_EQ(make().fingerprint(), before);
  const auto differs = [&](auto change) {
    const DataConfig data = data_;
    const SftConfig sft = sft_;
    change();
    const bool result = make().fingerprint() != before;
    data_ = data;
    sft_ = sft;
    return result;
  };
  EXPECT_TRUE(differs([&] { data_.seed = 2; }));
  EXPECT_TRUE(differs([&] { data_.train[0].weight = 2.0; }));
  EXPECT_TRUE(differs([&] { data_.sequence_length = 100; }));
  EXPECT_TRUE(differs([&] { sft_.packing_window = 10; }));
  EXPECT_TRUE(differs([&] { sft_.too_long = TooLongPolicy::kTruncateLeft; }));
  EXPECT_TRUE(differs([&] { sft_.chat_template = testing::template_path("plain"); }));
  test::write_text(folder_ / "b.jsonl", numbered(24));
  EXPECT_NE(make().fingerprint(), before);
}

TEST_F(ChatTrainingDataTest, ValidationCountsBytesOfAnswersATarget) {
  const ValidationData data(data_.train[1], data_, sft_, *tokenizer_, 300);
  // 10 answers <0>..<9> of 3 bytes and 13 of 4, each with one more token for its end.
  EXPECT_DOUBLE_EQ(data.bytes_per_token(), (10 * 3 + 13 * 4) / (10 * 4 + 13 * 5.0));
}

}  // namespace
}  // namespace smoe
