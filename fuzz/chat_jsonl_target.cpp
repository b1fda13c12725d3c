// JSON lines of dialogues, and of documents: through the reader, then every line by itself.
#include "fuzz_target.h"
#include "smoe/data/chat_message.h"
#include "smoe/data/document_reader.h"

namespace smoe::fuzz {

void chat_jsonl(std::string_view input) {
  const std::filesystem::path path = scratch_folder() / "chat.jsonl";
  write_scratch(path, input);
  accepts([&] {
    DocumentReader reader({path});
    DocumentRecord record;
    while (reader.next(record)) {
      accepts([&] {
        const Conversation messages = parse_conversation(record);
        if (messages.empty() || messages.back().role != ChatRole::kAssistant) fail("no answer at the end");
      });
      accepts([&] { document_text(DocumentRecord(record), "text"); });
    }
  });
}

}  // namespace smoe::fuzz
