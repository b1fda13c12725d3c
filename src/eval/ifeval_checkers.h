// The builders of IFEval's checkers, by subject (internal to ifeval.cpp).
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ifeval_arguments.h"

namespace smoe {

using IfevalCheck = std::function<bool(const std::string& response)>;

struct IfevalBuilder {
  std::string_view id;
  IfevalCheck (*build)(const IfevalArguments& arguments);
  bool needs_outside_model = false;
};

// keywords:*, punctuation:*, startend:*, combination:repeat_prompt
std::vector<IfevalBuilder> ifeval_wording_builders();
// length_constraints:*, change_case:*, language:*
std::vector<IfevalBuilder> ifeval_language_builders();
// detectable_format:*, detectable_content:*, combination:two_responses, paragraphs
std::vector<IfevalBuilder> ifeval_layout_builders();

}  // namespace smoe
