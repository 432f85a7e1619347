// Run-time choice of kernels: Highway's dispatch, which the environment or a test may override.
#include "common/target.h"

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "common/cpu_features.h"
#include "common/error.h"
#include "common/simd_targets.h"
// Highway after the list of targets, which its macros read.
#include "hwy/highway.h"

namespace rf::core {
namespace {

bool environment_asks_for_reference() {
  const char* kernel = std::getenv("RF_KERNEL");
  if (kernel == nullptr || *kernel == 0) return false;
  require(std::strcmp(kernel, "ref") == 0, "target", "RF_KERNEL must be ref, empty or not set, got ", kernel);
  return true;
}

// Throws InvalidArgument at every use while the environment requests an unknown target.
std::atomic<bool>& reference_switch() {
  static std::atomic<bool> value{environment_asks_for_reference()};
  return value;
}

// The instruction sets compiled here that this machine has, best first (a lower bit is a better one).
int64_t usable_targets() { return hwy::SupportedTargets() & HWY_TARGETS; }

int64_t find_best_target() {
  const int64_t targets = usable_targets();
  return targets == 0 ? HWY_STATIC_TARGET : targets & -targets;
}

// Cached, because Highway queries the processor at every call, which takes tens of microseconds on a virtual machine.
std::atomic<int64_t>& best_target() {
  static std::atomic<int64_t> target{find_best_target()};
  return target;
}

// AVX-512 with AMX tiles is a target of that name, which comes before AVX-512 alone.
constexpr const char* kAmxName = "AVX3_AMX";

std::atomic<bool>& amx_switch() {
  static std::atomic<bool> value{true};
  return value;
}

void restrict_targets(int64_t targets) {
  hwy::SetSupportedTargetsForTest(targets);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  best_target() = find_best_target();
}

// The target of that name; for "" and "ref" 0, which removes every restriction.
int64_t target_named(const std::string& name) {
  static const int64_t unrestricted = usable_targets();
  if (name.empty() || name == "ref") return 0;
  std::string known;
  if (may_use_amx() && (unrestricted & HWY_AVX3) != 0) {
    if (name == kAmxName) return HWY_AVX3;
    known = kAmxName;
  }
  for (int64_t rest = unrestricted; rest != 0; rest &= rest - 1) {
    const int64_t target = rest & -rest;
    if (name == hwy::TargetName(target)) return target;
    known += std::string(known.empty() ? "" : " ") + hwy::TargetName(target);
  }
  refuse("target", "name must be one that this machine has (", known, ") or ref, got ", name);
}

void set_target(const std::string& name) {
  const int64_t target = target_named(name);
  reference_switch() = name == "ref";
  amx_switch() = target == 0 || name == kAmxName;
  restrict_targets(target);
}

const char* target_name() {
  if (use_reference()) return "ref";
  return use_amx() ? kAmxName : hwy::TargetName(best_target());
}

const char* target_description() {
  if (use_reference()) return "plain loops in float64";
  if (use_amx()) return "AVX-512 with AMX tiles for bf16 products";
  switch (best_target()) {
    case HWY_AVX3: return has_bf16_instruction() ? "AVX-512 with bf16 products" : "AVX-512";
    case HWY_AVX2: return "AVX2 with FMA";
    case HWY_SSE4: return "SSE4.2";
    case HWY_NEON: return "NEON";
    default: return "no vectors";
  }
}

}  // namespace

bool use_reference() { return reference_switch(); }

bool use_amx() { return amx_switch() && best_target() == HWY_AVX3 && may_use_amx(); }

}  // namespace rf::core

extern "C" const char* rf_target(void) {
  const char* name = "";
  rf::core::guarded("target", [&] { name = rf::core::target_name(); });
  return name;
}

extern "C" const char* rf_target_description(void) {
  const char* description = "";
  rf::core::guarded("target", [&] { description = rf::core::target_description(); });
  return description;
}

extern "C" rf_status rf_set_target(const char* name) {
  return rf::core::guarded("target", [&] { rf::core::set_target(name == nullptr ? "" : name); });
}
