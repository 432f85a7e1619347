// Models draw their initial weights from torch's default generator, which belongs to the caller.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace rf::nn {

// While this lives, torch's default generator of the CPU starts from `seed`; then it goes on as if nothing had been
// drawn. One at a time in the process: a second one waits for the first, so a thread must not make one inside another.
class SeedScope {
 public:
  explicit SeedScope(uint64_t seed);
  ~SeedScope();
  SeedScope(const SeedScope&) = delete;
  SeedScope& operator=(const SeedScope&) = delete;

 private:
  at::Generator generator_;
  at::Tensor before_;
};

}  // namespace rf::nn
