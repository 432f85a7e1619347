// roformer bench: timings, each verified before it is timed.
//
//   kernels        every kernel of core, with --peers compared with torch eager (rf/bench/bench.h)
//   pretrain-step  training steps on command (stdin), for a program that alternates its own windows with ours
//
// Other peers are timed by the scripts of bench/.
#include "rf/bench/bench.h"

#include <algorithm>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "command_line.h"
#include "machine_facts.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/train/pretrain_bench.h"
#include "rf/train/runtime.h"
#include "training_command.h"

namespace rf::cli {

namespace {

struct BenchOptions {
  bench::Options kernels;
  bool list = false;
  std::string json_path;
  train::PretrainBenchOptions pretrain;
};

// JSON lines to the file, or to stdout.
class Lines {
 public:
  explicit Lines(const std::string& path) {
    if (!path.empty()) file_.emplace(path);
  }
  void add(const nlohmann::json& line) { file_ ? file_->write(line.dump() + "\n") : emit(line); }
  void commit() {
    if (file_) file_->commit();
  }

 private:
  std::optional<io::AtomicFile> file_;
};

nlohmann::json machine_line(const BenchOptions& options) {
  return {{"machine", machine_facts()}, {"rounds", options.kernels.rounds}};
}

nlohmann::json result_line(const bench::Result& result) {
  nlohmann::json line = {{"case", result.name},           {"side", result.side},
                         {"sets", result.sets},           {"error_eps", result.error_eps},
                         {"median_us", result.median_us}, {"ours_times_as_fast", result.ours_times_as_fast}};
  if (result.gflop_per_s > 0) line["gflop_per_s"] = result.gflop_per_s;
  if (result.gigabytes_per_s > 0) line["gigabytes_per_s"] = result.gigabytes_per_s;
  return line;
}

std::string table_line(const bench::Result& result, size_t name_width) {
  const bool bytes = result.gigabytes_per_s > 0;
  return fmt::format("{:{}}  {:5} {:11.1f} us {:8.1f} {}{:>9}", result.name, name_width, result.side, result.median_us,
                     bytes ? result.gigabytes_per_s : result.gflop_per_s, bytes ? "GB/s    " : "GFLOP/s ",
                     result.side == "ours" ? "" : fmt::format("{:.2f}", result.ours_times_as_fast));
}

int run_kernels(const BenchOptions& options) {
  for (const std::string* path :
       {&options.pretrain.model_dir, &options.pretrain.ids_path, &options.pretrain.labels_path}) {
    if (!path->empty()) {
      fail_usage("bench", "--model, --ids and --labels must go with --filter pretrain-step, got --filter \"{}\"",
                 options.kernels.filter);
    }
  }
  const std::vector<std::string> names = bench::case_names(options.kernels);
  if (options.list) {
    for (const std::string& name : names) emit({{"case", name}});
    return kOk;
  }
  size_t width = 0;
  for (const std::string& name : names) width = std::max(width, name.size());
  Lines lines(options.json_path);
  lines.add(machine_line(options));
  say(fmt::format("{:{}}  {:5} {:>14} {:>16} {:>9}", "case", width, "side", "median of calls", "", "ours x"));
  bench::run(options.kernels, [&](const bench::Result& result) {
    lines.add(result_line(result));
    say(table_line(result, width));
  });
  lines.commit();
  return kOk;
}

int run_pretrain_step(const train::PretrainBenchOptions& options) {
  if (options.model_dir.empty() || options.ids_path.empty() || options.labels_path.empty()) {
    fail_usage("bench", "pretrain-step must be given --model, --ids and --labels, got {}",
               options.model_dir.empty() ? "no --model" : "no --ids or no --labels");
  }
  train::bench_pretrain_steps(
      options, [](std::string& line) { return static_cast<bool>(std::getline(std::cin, line)); }, emit_line);
  return kOk;
}

void add_kernel_options(CLI::App& app, BenchOptions& options) {
  app.add_option("--filter", options.kernels.filter,
                 "Regular expression, searched in the names of cases; pretrain-step is a separate case");
  app.add_flag("--list", options.list, "List the names of the cases without timing them");
  app.add_flag_callback(
      "--peers", [&options] { options.kernels.peers = bench::Peers::kYes; }, "Also time the same work in torch eager");
  app.add_option("--json", options.json_path, "Write results to this file instead of stdout");
  app.add_option("--rounds", options.kernels.rounds, "Number of rounds; medians are over these")
      ->check(whole_number(1, int64_t{1} << 20));
  app.add_option("--sets", options.kernels.sets,
                 "Sets of arrays used in turn; 0: enough for the data to come from memory, where that matters; 1: "
                 "data that fit stay in the cache")
      ->check(whole_number(0, int64_t{1} << 20));
  app.add_flag_callback(
      "--tiny", [&options] { options.kernels.sizes = bench::Sizes::kTiny; },
      "Every case at a small size, to test that it works");
}

std::function<int()> configure_bench(CLI::App& app, const Common& common) {
  auto options = std::make_shared<BenchOptions>();
  add_kernel_options(app, *options);
  app.add_option("--model", options->pretrain.model_dir, "pretrain-step: model directory to start from");
  app.add_option("--ids", options->pretrain.ids_path, "pretrain-step: .npy of integers [N,B,T], masked");
  app.add_option("--labels", options->pretrain.labels_path, "pretrain-step: .npy like the ids, -100 where not masked");
  app.add_flag_callback(
      "--float32", [options] { options->pretrain.precision = train::Precision::kFloat32; },
      "pretrain-step: no bfloat16 autocast");
  return [options, &common] {
    options->kernels.seed = common.seed.value_or(options->kernels.seed);
    train::keep_freed_memory();
    // pretrain-step reads stdin, so it runs only if it is named.
    if (options->kernels.filter != "pretrain-step") return run_kernels(*options);
    if (!options->json_path.empty()) {
      fail_usage("bench", "--json must go with kernels, got --filter pretrain-step, which writes to stdout");
    }
    return run_pretrain_step(options->pretrain);
  };
}

}  // namespace

}  // namespace rf::cli

RF_TRAINING_COMMAND(bench, rf::cli::configure_bench)
