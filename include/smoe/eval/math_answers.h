// Answers to the MATH benchmark as the Minerva evaluation reads them. Two answers are equal if their
// normalised texts are: there is no computer algebra here, so "1/2" and "0.5" differ, and scores are at most
// those of the published metric, which asks SymPy as well.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace smoe {

// What stands between "Final Answer: The final answer is" and "I hope it is correct.", which is appended
// first;
// "[invalidanswer]" if that is not in the response.
std::string minerva_answer(std::string_view response);

// The normalisation of Lewkowycz et al. (2022), appendix D, as lm-evaluation-harness 0.4.13 has it: units and
// spaces go, shorthand TeX becomes full, thousands lose their commas.
std::string normalize_minerva_answer(std::string_view answer);

// The last \boxed{...}, \boxed ... or \fbox{...} of a solution, the command included; nullopt if there is
// none or its braces do not close.
std::optional<std::string> last_boxed(std::string_view solution);

// The normalised content of last_boxed. Throws DataError with the solution's beginning if there is none.
std::string minerva_reference(std::string_view solution);

// Whether a response answers like the solution.
bool minerva_equal(std::string_view response, std::string_view solution);

}  // namespace smoe
