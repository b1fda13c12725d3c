// What the fuzz targets share. Each target is one function that takes arbitrary bytes: an input may be
// refused with one of our exceptions, whose text is the message for the user; anything else that leaves the
// function is a finding, like every report of a sanitizer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace smoe::fuzz {

void config(std::string_view input);
void safetensors(std::string_view input);
void indexed_dataset(std::string_view input);
void tokenizer_json(std::string_view input);
void chat_jsonl(std::string_view input);
void package_index(std::string_view input);
void http_body(std::string_view input);

// Runs `body`; an exception of ours is a refusal. Fails on one without a text. Returns false for a refusal.
bool accepts(const std::function<void()>& body);

// Ends the process with the message: a property does not hold.
[[noreturn]] void fail(const std::string& message);

// A folder in memory (where the system has one) that lives as long as the process.
const std::filesystem::path& scratch_folder();

// Replaces the file, quickly: no flush to disk.
void write_scratch(const std::filesystem::path& path, std::string_view bytes);

}  // namespace smoe::fuzz
