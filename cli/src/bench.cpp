// roformer bench: timings that need no other program, each verified before it is timed.
//
//   rope           rotary embedding, every layout and place, beside a copy of the same bytes (rf/bench/rope.h)
//   pretrain-step  training steps on command (stdin), for a program that alternates its own windows with ours
//
// Peers are timed by the scripts of bench/.
#include "rf/bench/rope.h"

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "command.h"
#include "rf/io/error.h"
#include "rf/train/pretrain_bench.h"

namespace rf::cli {

namespace {

struct Options {
  std::string filter;
  bench::RopeOptions rope;
  train::PretrainBenchOptions pretrain;
};

void print(const bench::RopeResult& result) {
  emit({{"case", "rope"},
        {"positions", result.positions},
        {"dtype", result.dtype},
        {"side", result.side},
        {"sets", result.sets},
        {"median_us", result.median_us},
        {"gigabytes_per_second", result.gigabytes_per_second},
        {"ratio_to_copy", result.ratio_to_copy}});
  std::cerr << fmt::format("{:>8}  {:8}  {:28} {:9.1f} us {:8.1f} GB/s   {:.3f} of copy\n", result.positions,
                           result.dtype, result.side, result.median_us, result.gigabytes_per_second,
                           result.ratio_to_copy);
}

void run_pretrain_step(const train::PretrainBenchOptions& options) {
  if (options.model_dir.empty() || options.ids_path.empty() || options.labels_path.empty()) {
    fail("bench", "pretrain-step must be given --model, --ids and --labels, got {}",
         options.model_dir.empty() ? "no --model" : "no --ids or no --labels");
  }
  train::bench_pretrain_steps(
      options, [](std::string& line) { return static_cast<bool>(std::getline(std::cin, line)); }, emit_line);
}

int run(const Options& options) {
  const bool rope = std::string("rope").find(options.filter) != std::string::npos;
  const bool pretrain = options.filter == "pretrain-step";  // reads stdin, so only when it is named
  if (!rope && !pretrain) {
    fail("bench", "the filter must match a case (rope, pretrain-step), got \"{}\"", options.filter);
  }
  if (rope) bench::bench_rope(options.rope, print);
  if (pretrain) run_pretrain_step(options.pretrain);
  return kOk;
}

}  // namespace

std::function<int()> configure_bench(CLI::App& app, const Common&) {
  auto options = std::make_shared<Options>();
  app.add_option("--filter", options->filter, "Part of a case's name: rope; pretrain-step only by its whole name");
  app.add_option("--positions", options->rope.positions, "rope: numbers of positions")->delimiter(',');
  app.add_option("--heads", options->rope.heads, "rope: heads");
  app.add_option("--head-dim", options->rope.head_dim, "rope: elements a head");
  app.add_option("--sets", options->rope.sets,
                 "rope: pairs of buffers taken in turn; 0: as many as make 128 MiB; 1: what fits stays in the cache")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 20));
  app.add_option("--rounds", options->rope.rounds, "rope: rounds of windows; the medians are over these")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  app.add_option("--model", options->pretrain.model_dir, "pretrain-step: model directory to start from");
  app.add_option("--ids", options->pretrain.ids_path, "pretrain-step: .npy of integers [N,B,T], masked");
  app.add_option("--labels", options->pretrain.labels_path, "pretrain-step: .npy like the ids, -100 where not masked");
  app.add_flag_callback(
      "--float32", [options] { options->pretrain.precision = train::Precision::kFloat32; },
      "pretrain-step: no bfloat16 autocast");
  return [options] { return run(*options); };
}

}  // namespace rf::cli
