// Facts and settings of torch and the C library, for programs that do not include torch.
#pragma once

#include <exception>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rf/io/error.h"

namespace rf::train {

// Sets the number of threads of torch and of the kernels' OpenMP teams. threads >= 1.
void set_threads(int threads);
int threads();

// A warning to show at start if the OpenMP runtime makes torch's results wrong (rf/ops/openmp.h), otherwise empty.
std::string openmp_warning();

// Sends warnings of torch and of loaded models to `note` instead of stderr, for the calling thread and the rest of the
// process. For programs.
void give_warnings_to(std::function<void(const std::string&)> note);

// Tells the C library's allocator, for the rest of the process, to keep freed memory. Each training step makes tensors
// of the same sizes; blocks above 32 MB would otherwise be returned to the system and be filled with zeros, page by
// page, again. No effect if the C library is not glibc. For programs that train; no function of this module calls it,
// because the process belongs to its caller.
void keep_freed_memory();

// Whether torch failed because the system or a GPU had no memory for a tensor.
bool is_out_of_memory(const std::exception& error);

// The Error to show in place of one of torch: an operator of this product refused an argument (c10::ValueError), or a
// GPU failed. nullopt for any other error.
std::optional<Error> error_to_tell(const std::exception& error);

struct RuntimeFacts {
  std::string torch_version;
  std::string cpu_capability;  // the instruction set torch dispatches to, for example "AVX512"
  // The kernel of attention (rf/nn/attention.h) by dtype of the data, such as "float32", and with a gate; and the
  // kernel of linear attention (rf/nn/linear_attention.h) for float32, "linear", and with a running maximum, which
  // torch computes.
  std::vector<std::pair<std::string, std::string>> attention;
  // The backend of linear layers, "torch" or one of rf/linear.h: by dtype of the data, such as "float32", and for
  // products of few rows.
  std::vector<std::pair<std::string, std::string>> linear;
};
RuntimeFacts runtime_facts();

// The table of position encodings as a JSON array: objects with name, summary, equation, source, terms, parameters,
// cost, extrapolates, file, test, keys, needs_causal, shift_invariant and pairwise.
nlohmann::json encodings();

}  // namespace rf::train
