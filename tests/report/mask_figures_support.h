// A small masks.json as smoe-inspect masks writes it: two budgets, one text with two topics, one with one.
#pragma once

#include <fmt/format.h>

#include <string>

namespace smoe::testing {

inline std::string masks_json() {
  const auto budget = [](const char* name, const char* p_value) {
    return fmt::format(
        R"({{"name":"{}","experts_per_layer":1,"between_texts":{{"within":0.5,"across":0.125,"within_pairs":3,)"
        R"("across_pairs":4,"p_value":{}}},"hit_rates":[{{"segment_length":8,"hit_rate":0.5}},)"
        R"({{"segment_length":16,"hit_rate":0.375}}],"load":[[0.25,0.75]],)"
        R"("topic_load":{{"a":[[0.25,0.5]],"b":[[0.5,0.75]]}},"texts":[)"
        R"({{"name":"case","topics":["a","b"],"segments":{{"within":0,"across":0.25,"within_pairs":0,)"
        R"("across_pairs":1}},"cosine":[[1,0.25],[0.25,1]]}},)"
        R"({{"name":"document","topics":["a","a"],"segments":{{"within":1,"across":0,"within_pairs":1,)"
        R"("across_pairs":0}},"cosine":[[1,1],[1,1]]}}]}})",
        name, p_value);
  };
  return fmt::format(R"({{"segment_length":16,"nesting":[0.875],"budgets":[{},{}]}})", budget("S", "0.01"),
                     budget("L", "null"));
}

}  // namespace smoe::testing
