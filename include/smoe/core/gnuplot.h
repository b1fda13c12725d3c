// Drawing SVG and PNG files with gnuplot: finding it, running it, and leaving a complete file or none.
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

// Whether `out` is named like a plot: .svg or .png.
bool is_plot_file(const std::filesystem::path& out);

// Runs gnuplot on `commands` with a terminal of `width` x `height` whose output becomes `out`: an .svg, or a
// .png of twice as many pixels, which suits today's screens and print. Throws ConfigError if `out` is neither
// or gnuplot is not installed, Error if gnuplot fails.
struct PlotSize {
  int width = 900;
  int height = 560;
};
void write_gnuplot(const std::filesystem::path& out, const std::string& commands, PlotSize size = {});

}  // namespace smoe
