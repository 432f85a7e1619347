// Models draw their initial weights from torch's default generator, which belongs to the caller.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace rf::nn {

// While this exists, torch's default generator of the CPU starts from `seed`; afterwards it continues as if nothing had
// been drawn. A process has one at a time: a second one waits for the first, so a thread must not nest two.
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
