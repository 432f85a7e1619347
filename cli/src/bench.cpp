// roformer bench: small timings that need no other program, each verified before it is timed.
//
//   rope           rf_rope_apply on [T,H,D] data, out of place and in place, beside a copy of the same bytes
//   pretrain-step  training steps on command (stdin), for a program that alternates its own windows with ours
//
// Peers are timed by the scripts of bench/, which use these.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "command.h"
#include "rf/io/error.h"
#include "rf/rope.h"
#include "rf/train/pretrain_bench.h"

namespace rf::cli {

namespace {

constexpr int64_t kHeads = 12, kHeadDim = 64;
constexpr double kBase = 10000.0;
constexpr double kRopeTolerance = 2e-6;  // float32, values of about 1
constexpr int kRounds = 15;

struct Options {
  std::string filter;
  train::PretrainBenchOptions pretrain;
  uint64_t seed = 1;
};

void check(rf_status status) {
  if (status != RF_OK) throw Error("bench", rf_last_error());
}

// Median seconds of each of the calls, run in turn so that all see the same clock.
template <size_t N>
std::array<double, N> median_seconds(const std::array<std::function<void()>, N>& calls) {
  std::array<std::vector<double>, N> seconds;
  for (int round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < N; ++i) {
      const auto start = std::chrono::steady_clock::now();
      calls[i]();
      seconds[i].push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
  }
  std::array<double, N> medians;
  for (size_t i = 0; i < N; ++i) {
    std::nth_element(seconds[i].begin(), seconds[i].begin() + kRounds / 2, seconds[i].end());
    medians[i] = seconds[i][kRounds / 2];
  }
  return medians;
}

// The last position against the equation in double (rf/rope.h), interleaved pairs.
void verify_rope(const std::vector<float>& x, const std::vector<float>& y, int64_t tokens) {
  const size_t begin = static_cast<size_t>((tokens - 1) * kHeads * kHeadDim);
  for (size_t i = 0; i < kHeadDim / 2; ++i) {
    const double theta = std::pow(kBase, -2.0 * static_cast<double>(i) / static_cast<double>(kHeadDim));
    const double angle = static_cast<double>(tokens - 1) * theta;
    const double a = x[begin + 2 * i], b = x[begin + 2 * i + 1];
    const double error = std::max(std::abs(y[begin + 2 * i] - (std::cos(angle) * a - std::sin(angle) * b)),
                                  std::abs(y[begin + 2 * i + 1] - (std::sin(angle) * a + std::cos(angle) * b)));
    if (!(error <= kRopeTolerance))
      fail("bench", "rope must agree with its equation to {}, got {}", kRopeTolerance, error);
  }
}

void copy_rows(const std::vector<float>& x, std::vector<float>& y, int64_t tokens) {
#pragma omp parallel for schedule(static)
  for (int64_t t = 0; t < tokens; ++t) {
    const size_t row = static_cast<size_t>(t * kHeads * kHeadDim);
    std::memcpy(&y[row], &x[row], kHeads * kHeadDim * sizeof(float));
  }
}

void bench_rope(int64_t tokens, uint64_t seed) {
  const size_t count = static_cast<size_t>(tokens * kHeads * kHeadDim);
  std::vector<float> x(count), y(count), z(count);
  for (size_t i = 0; i < count; ++i) {
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    x[i] = static_cast<float>(static_cast<double>(seed >> 11) * 0x1p-52 - 1.0);
  }
  std::vector<double> hi(kHeadDim / 2), lo(kHeadDim / 2);
  check(rf_rope_frequencies(kBase, kHeadDim, hi.data(), lo.data()));
  rf_rope* raw = nullptr;
  check(rf_rope_create(hi.data(), lo.data(), kHeadDim / 2, 1.0, 0, &raw));
  const std::unique_ptr<rf_rope, void (*)(rf_rope*)> rope(raw, rf_rope_destroy);
  rf_rope_args args{};
  args.struct_size = sizeof args;
  args.dtype = RF_F32;
  args.layout = RF_ROPE_PAIRS;
  args.direction = RF_ROPE_FORWARD;
  args.batch = 1;
  args.tokens = tokens;
  args.heads = kHeads;
  args.head_dim = kHeadDim;
  args.x_stride_b = args.y_stride_b = static_cast<int64_t>(count);
  args.x_stride_t = args.y_stride_t = kHeads * kHeadDim;
  args.x_stride_h = args.y_stride_h = kHeadDim;
  rf_rope_args in_place = args;
  args.x = x.data();
  args.y = y.data();
  in_place.x = in_place.y = z.data();
  check(rf_rope_apply(rope.get(), &args));
  verify_rope(x, y, tokens);
  const auto [copy, out, in] =
      median_seconds<3>({[&] { copy_rows(x, y, tokens); }, [&] { check(rf_rope_apply(rope.get(), &args)); },
                         [&] { check(rf_rope_apply(rope.get(), &in_place)); }});
  const double gigabytes = 2.0 * static_cast<double>(count * sizeof(float)) * 1e-9;
  emit({{"case", "rope"},
        {"positions", tokens},
        {"heads", kHeads},
        {"head_dim", kHeadDim},
        {"dtype", "float32"},
        {"layout", "pairs"},
        {"copy_gb_per_s", gigabytes / copy},
        {"out_of_place_gb_per_s", gigabytes / out},
        {"in_place_gb_per_s", gigabytes / in},
        {"out_of_place_to_copy", copy / out},
        {"in_place_to_copy", copy / in}});
}

int run(const Options& options) {
  const bool rope = std::string("rope").find(options.filter) != std::string::npos;
  const bool pretrain = options.filter == "pretrain-step";  // reads stdin, so only when it is named
  if (!rope && !pretrain)
    fail("bench", "the filter must match a case (rope, pretrain-step), got \"{}\"", options.filter);
  if (rope) {
    for (const int64_t tokens : {4096, 32768}) bench_rope(tokens, options.seed);
  }
  if (pretrain) {
    if (options.pretrain.model_dir.empty() || options.pretrain.ids_path.empty() ||
        options.pretrain.labels_path.empty()) {
      fail("bench", "pretrain-step must be given --model, --ids and --labels, got {}",
           options.pretrain.model_dir.empty() ? "no --model" : "no --ids or no --labels");
    }
    train::bench_pretrain_steps(
        options.pretrain, [](std::string& line) { return static_cast<bool>(std::getline(std::cin, line)); }, emit_line);
  }
  return kOk;
}

}  // namespace

std::function<int()> configure_bench(CLI::App& app, const Common& common) {
  auto options = std::make_shared<Options>();
  app.add_option("--filter", options->filter, "Part of a case's name: rope; pretrain-step only by its whole name");
  app.add_option("--model", options->pretrain.model_dir, "pretrain-step: model directory to start from");
  app.add_option("--ids", options->pretrain.ids_path, "pretrain-step: .npy of integers [N,B,T], masked");
  app.add_option("--labels", options->pretrain.labels_path, "pretrain-step: .npy like the ids, -100 where not masked");
  app.add_flag_callback(
      "--float32", [options] { options->pretrain.precision = train::Precision::kFloat32; },
      "pretrain-step: no bfloat16 autocast");
  return [options, &common] {
    options->seed = common.seed.value_or(options->seed);
    return run(*options);
  };
}

}  // namespace rf::cli
