// Threads and facts of torch, and the table of encodings (runtime.h).
#include "rf/train/runtime.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <omp.h>
#include <torch/version.h>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "rf/nn/attention.h"
#include "rf/nn/encoding_info.h"
#include "rf/nn/linear_attention.h"
#include "rf/nn/linear_backend.h"
#include "rf/ops/openmp.h"

namespace rf::train {

namespace {

class NotedWarnings : public c10::WarningHandler {
 public:
  std::function<void(const std::string&)> note;
  void process(const c10::Warning& warning) override { note(warning.msg()); }
};

}  // namespace

void give_warnings_to(std::function<void(const std::string&)> note) {
  static NotedWarnings handler;
  handler.note = std::move(note);
  c10::WarningUtils::set_warning_handler(&handler);
}

void set_threads(int threads) {
  at::set_num_threads(threads);
  omp_set_num_threads(threads);
}

int threads() { return at::get_num_threads(); }

std::string openmp_warning() { return ops::openmp_warning(); }

void keep_freed_memory() {
#ifdef __GLIBC__
  mallopt(M_MMAP_MAX, 0);  // M_MMAP_THRESHOLD may not exceed 32 MB
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
#endif
}

// torch's CPU allocator throws no specific exception type.
bool is_out_of_memory(const std::exception& error) {
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) return true;
  return std::string_view(error.what()).find("DefaultCPUAllocator: ") != std::string_view::npos;
}

std::optional<Error> error_to_tell(const std::exception& error) {
  if (const auto* failure = dynamic_cast<const c10::AcceleratorError*>(&error)) {
    const std::string_view text = failure->what_without_backtrace();  // advice on debugging follows in further lines
    return Error("device", fmt::format("the GPU must work until the command ends, got: {}; training continues from its "
                                       "newest checkpoint (pretrain: with --resume)",
                                       text.substr(0, text.find('\n'))));
  }
  const auto* refusal = dynamic_cast<const c10::ValueError*>(&error);
  if (refusal == nullptr) return std::nullopt;
  const std::string_view text = refusal->what_without_backtrace();
  const size_t end = text.find("] ");
  if (!text.starts_with('[') || end == std::string_view::npos) return std::nullopt;
  return Error(text.substr(1, end - 1), text.substr(end + 2));
}

RuntimeFacts runtime_facts() {
  RuntimeFacts facts{TORCH_VERSION, at::get_cpu_capability(), {}, {}};
  for (const auto& [name, dtype] : {std::pair{"float32", at::kFloat},
                                    {"bfloat16", at::kBFloat16},
                                    {"float16", at::kHalf},
                                    {"float64", at::kDouble}}) {
    facts.attention.emplace_back(name, nn::name_of(nn::automatic_kernel(dtype)));
    facts.linear.emplace_back(name, nn::linear_backend(dtype, nn::kMinKernelRows));
  }
  facts.attention.emplace_back("linear", nn::name_of(nn::automatic_linear_kernel(at::kFloat)));
  facts.linear.emplace_back("few_rows", nn::linear_backend(at::kFloat, 1));
  return facts;
}

nlohmann::json encodings() { return nn::encodings_json(); }

}  // namespace rf::train
