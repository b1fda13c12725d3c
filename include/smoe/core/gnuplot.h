// Drawing SVG files with gnuplot: finding it, running it, and leaving a complete file or none.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>

namespace smoe {

// Text inside double quotes of a gnuplot script.
std::string gnuplot_quoted(const std::string& text);

// A colour as '#rrggbb' that people with colour-blindness can tell from its neighbours (Okabe and Ito); they
// repeat after eight.
std::string gnuplot_color(size_t index);

// Runs gnuplot on `commands` with an SVG terminal of `width` x `height` whose output becomes `out`.
// Throws ConfigError if `out` is no .svg or gnuplot is not installed, Error if gnuplot fails.
struct SvgSize {
  int width = 900;
  int height = 560;
};
void write_gnuplot_svg(const std::filesystem::path& out, const std::string& commands, SvgSize size = {});

}  // namespace smoe
