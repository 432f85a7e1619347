// Seeds torch's generator while a model is created (rf/nn/seed_scope.h).
#include "rf/nn/seed_scope.h"

#include <ATen/CPUGeneratorImpl.h>

#include <mutex>

namespace rf::nn {

namespace {

std::mutex one_at_a_time;

}  // namespace

SeedScope::SeedScope(uint64_t seed) : generator_(at::detail::getDefaultCPUGenerator()) {
  one_at_a_time.lock();
  const std::lock_guard lock(generator_.mutex());
  before_ = generator_.get_state();
  generator_.set_current_seed(seed);
}

SeedScope::~SeedScope() {
  {
    const std::lock_guard lock(generator_.mutex());
    generator_.set_state(before_);
  }
  one_at_a_time.unlock();
}

}  // namespace rf::nn
