// Finds the word that was probably meant, for messages about unknown names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace smoe::detail {

// Edits (insert, delete, replace a byte, swap two neighbours) that turn one text into the other.
size_t edit_distance(std::string_view from, std::string_view to);

// " did you mean `dim`?" for the nearest candidate, or "" if none is near.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace smoe::detail
