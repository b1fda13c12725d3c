// Dates as people write them: "April 2, 2024", "4/2/2024", "2024-04-02". What Python's dateutil reads in
// these common forms, and without its "today" for what is missing, which no run could repeat.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace smoe {

struct FlexibleDate {
  std::optional<int64_t> year;
  std::optional<int64_t> month;
  std::optional<int64_t> day;
  std::optional<int64_t> weekday;    // 0 is Monday; only where no day is given
  std::array<int64_t, 3> time = {};  // hour, minute, second; midnight if none is given
  std::optional<int64_t> utc_offset_minutes;

  friend bool operator==(const FlexibleDate&, const FlexibleDate&) = default;
};

// Nothing where the text is no date.
std::optional<FlexibleDate> parse_flexible_date(std::string_view text);

// Whether both texts are dates, and the same one.
bool are_the_same_date(std::string_view a, std::string_view b);

}  // namespace smoe
