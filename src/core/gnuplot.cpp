#include "smoe/core/gnuplot.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <sstream>

#include "smoe/core/error.h"

namespace smoe {
namespace {

namespace fs = std::filesystem;

constexpr const char* kColors[] = {"#0072b2", "#e69f00", "#009e73", "#d55e00",
                                   "#cc79a7", "#56b4e9", "#f0e442", "#000000"};

void check_gnuplot() {
  std::istringstream folders(std::getenv("PATH") == nullptr ? "" : std::getenv("PATH"));
  std::string folder;
  while (std::getline(folders, folder, ':')) {
    if (::access((fs::path(folder) / "gnuplot").c_str(), X_OK) == 0) return;
  }
  throw ConfigError("gnuplot was not found on the PATH; install it with `apt-get install gnuplot-nox`");
}

std::string terminal_for(const fs::path& out, PlotSize size) {
  if (out.extension() == ".png") {
    return fmt::format(
        "pngcairo size {},{} font 'sans,14' fontscale 2 linewidth 2 pointscale 2 background "
        "'#ffffff' noenhanced",
        2 * size.width, 2 * size.height);
  }
  return fmt::format("svg size {},{} dynamic font 'sans,14' background '#ffffff' noenhanced", size.width,
                     size.height);
}

void run_gnuplot(const std::string& script) {
  std::FILE* pipe = ::popen("gnuplot", "w");
  SMOE_CHECK(Error, pipe != nullptr, "gnuplot could not be started");
  const size_t written = std::fwrite(script.data(), 1, script.size(), pipe);
  const int status = ::pclose(pipe);
  SMOE_CHECK(Error, written == script.size() && status == 0,
             "gnuplot failed with status {}; its message is above", status);
}

}  // namespace

std::string gnuplot_quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + "\"";
}

std::string gnuplot_color(size_t index) { return fmt::format("'{}'", kColors[index % std::size(kColors)]); }

bool is_plot_file(const fs::path& out) { return out.extension() == ".svg" || out.extension() == ".png"; }

void write_gnuplot(const fs::path& out, const std::string& commands, PlotSize size) {
  SMOE_CHECK(ConfigError, is_plot_file(out), "{}: only .svg and .png files can be drawn", out.string());
  check_gnuplot();
  // gnuplot leaves half a file behind when it fails.
  fs::path temporary = out;
  temporary += fmt::format(".tmp-{}", ::getpid());
  try {
    run_gnuplot(fmt::format("set terminal {}\nset output {}\n", terminal_for(out, size),
                            gnuplot_quoted(temporary.string())) +
                commands);
    fs::rename(temporary, out);
  } catch (...) {
    std::error_code ignored;
    fs::remove(temporary, ignored);
    throw;
  }
}

}  // namespace smoe
