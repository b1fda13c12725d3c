// Config of a sweep: a base run and what is varied over it.
//
// The runs of a sweep are rows x product of the axes x seeds. Overrides are spelled as for `smoe-train --set`
// and are applied in this order: the sweep's, the row's, the axes', the seed's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "smoe/core/config.h"

namespace smoe {

struct SweepAxis {
  std::string key;
  std::vector<std::string> values;
  std::string name;
  std::vector<std::string> labels;
};
template <class Visitor>
void visit_fields(Visitor& visitor, SweepAxis& config) {
  visitor.field("key", config.key, "key of the run's config, for example model.routing.segment_length");
  visitor.field("values", config.values, "one run a value, written as in YAML");
  visitor.field("name", config.name, "name in tables; empty: the last part of the key");
  visitor.field("labels", config.labels, "names of the values in tables and folders; empty: the values");
}

struct SweepRow {
  std::string name;
  std::string base;
  std::vector<std::string> set;
  std::vector<std::string> rename_budgets;
};
template <class Visitor>
void visit_fields(Visitor& visitor, SweepRow& config) {
  visitor.field("name", config.name, "name in tables and folders");
  visitor.field("base", config.base, "config of smoe-train, relative to this file; empty: the sweep's base");
  visitor.field("set", config.set, "overrides of this row");
  visitor.field("rename_budgets", config.rename_budgets,
                "NAME=COLUMN: the table column of a budget; puts `dense` beside the budget of its size");
}

// A run of smoe-eval on the last checkpoint of every run.
struct SweepEvaluation {
  std::string name;
  std::vector<std::string> tasks;
  std::string data = ".";
  std::vector<std::string> options;
};
template <class Visitor>
void visit_fields(Visitor& visitor, SweepEvaluation& config) {
  visitor.field("name", config.name, "first part of metric paths, and name of the results file");
  visitor.field("tasks", config.tasks, "tasks, groups and text:FILE.jsonl, as for smoe-eval --tasks");
  visitor.field("data", config.data, "folder with one folder a benchmark");
  visitor.field("options", config.options, "further arguments of smoe-eval, for example --segment-length=64");
}

struct SweepMetric {
  std::string path;
  std::string label;
};
template <class Visitor>
void visit_fields(Visitor& visitor, SweepMetric& config) {
  visitor.field(
      "path", config.path,
      "validation/SOURCE|mean/loss|bits_per_byte, router/FIELD, cost/NAME, or EVALUATION/TASK[/METRIC]");
  visitor.field("label", config.label, "name in tables; empty: the path");
}

struct SweepConfig {
  std::string base;
  std::string folder;
  std::vector<std::string> set;
  std::vector<int64_t> seeds = {1};
  std::vector<SweepAxis> axes;
  std::vector<SweepRow> rows;
  std::vector<SweepEvaluation> evaluations;
  std::vector<SweepMetric> metrics = {{"validation/mean/loss", "loss"}};
};
template <class Visitor>
void visit_fields(Visitor& visitor, SweepConfig& config) {
  visitor.field("base", config.base, "config of smoe-train, relative to this file");
  visitor.field("folder", config.folder, "receives the runs, their configs, logs and states");
  visitor.field("set", config.set, "overrides of all runs");
  visitor.field("seeds", config.seeds,
                "every row runs once a seed; it sets `seed` and `data.seed`, so rows of one seed are paired");
  visitor.field("axes", config.axes, "keys that are varied, every value with every other");
  visitor.field("rows", config.rows, "named variants; empty: one row, the base itself");
  visitor.field("evaluations", config.evaluations, "benchmarks after training");
  visitor.field("metrics", config.metrics, "columns of the table");
}

// Names that are missing, doubled or no file names; axes without values; paths of no known kind.
void validate(const SweepConfig& config, ConfigProblems& problems);

}  // namespace smoe
