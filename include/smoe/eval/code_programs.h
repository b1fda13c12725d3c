// The program text that decides whether a completion solves a row of a code benchmark: pure text, nothing
// runs here. The layouts are those of lm-evaluation-harness (HumanEval, MBPP) and of MultiPL-E.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "smoe/eval/code_runner.h"
#include "smoe/eval/rows.h"

namespace smoe {

// prompt + completion + newline + test + newline + check(entry_point). Fields: prompt, test, entry_point.
Program humaneval_program(const Row& row, std::string_view completion);

// completion + newline + the assertions of test_list, one a line. `test_setup_code` is left out, as in the
// harness: task 367 of the test split can therefore not be solved by its reference solution.
Program mbpp_program(const Row& row, std::string_view completion);

// prompt + completion cut at the first of stop_tokens + newline + tests; the field `language` must be java,
// python or swift (else DataError).
Program multipl_e_program(const Row& row, std::string_view completion);

// `text` up to the earliest place where one of `stops` begins; empty stops are ignored.
std::string_view cut_at_first_stop(std::string_view text, const std::vector<std::string>& stops);

}  // namespace smoe
