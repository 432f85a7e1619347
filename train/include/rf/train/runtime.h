// Facts and settings of what lies underneath, for programs that do not see torch.
#pragma once

#include <exception>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

namespace rf::train {

// Threads of every parallel part (torch's and the kernels' OpenMP teams). threads >= 1.
void set_threads(int threads);
int threads();

// A line to show at start where the OpenMP runtime makes torch's results wrong (rf/ops/openmp.h), empty elsewhere.
std::string openmp_warning();

// Gives the warnings of torch, and of models that are loaded, to `note` instead of writing them to stderr: those of the
// calling thread, for the rest of the process. For programs.
void give_warnings_to(std::function<void(const std::string&)> note);

// Tells the C library's allocator, for the rest of the process, to keep the memory that is freed: where every step
// makes tensors of the sizes of the step before, blocks above 32 MB otherwise go back to the system and are filled with
// zeros, page by page, again. Does nothing where the C library is not glibc. For programs that train; no function of
// this room calls it, because the process belongs to its caller.
void keep_freed_memory();

// Whether torch gave up because the system had no memory for a tensor.
bool is_out_of_memory(const std::exception& error);

struct RuntimeFacts {
  std::string torch_version;
  std::string cpu_capability;  // the instruction set torch dispatches to, for example "AVX512"
  // Who computes attention (rf/nn/attention.h): for data of a dtype, "float32", and where there is a gate; and linear
  // attention (rf/nn/linear_attention.h) of float32, "linear", and where a running maximum keeps it from the kernel.
  std::vector<std::pair<std::string, std::string>> attention;
  // Who computes linear layers (rf/linear.h), "torch" or a backend of the kernels: for data of a dtype, "float32", and
  // for products of few rows.
  std::vector<std::pair<std::string, std::string>> linear;
};
RuntimeFacts runtime_facts();

// The table of position encodings as a JSON array: objects with name, summary, equation, source, terms, parameters,
// cost, extrapolates, file, test, keys, needs_causal, shift_invariant and pairwise.
nlohmann::json encodings();

}  // namespace rf::train
