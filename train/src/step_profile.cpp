// Starting and writing profiles (step_profile.h).
#include "step_profile.h"

#include <torch/csrc/autograd/profiler_kineto.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/printable.h"

// Declared in torch/csrc/profiler/kineto_shim.h, which includes a Kineto header that torch's include directories lack.
namespace torch::autograd::profiler {
TORCH_API void addMetadataJson(const std::string& key, const std::string& value);
}

namespace rf::train {

namespace {

namespace kineto = torch::autograd::profiler;
namespace profiling = torch::profiler::impl;

constexpr size_t kRows = 25;  // operators of the table

const std::set<profiling::ActivityType>& activities() {
  static const std::set<profiling::ActivityType> cpu = {profiling::ActivityType::CPU};
  return cpu;
}

profiling::ProfilerConfig profiler_config() { return profiling::ProfilerConfig(profiling::ProfilerState::KINETO); }

// An integer in decimal digits.
std::optional<int64_t> whole(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

struct Cost {
  double milliseconds = 0;
  int64_t calls = 0;
};
struct Costs {
  std::map<std::string, Cost> stages;     // whole
  std::map<std::string, Cost> operators;  // without the operators that they call
};

bool is_stage(const kineto::KinetoEvent& event) {
  return event.scope() == static_cast<uint8_t>(at::RecordScope::USER_SCOPE);
}

void add(std::map<std::string, Cost>& costs, const kineto::KinetoEvent& event, uint64_t nanoseconds) {
  Cost& cost = costs[event.name()];
  cost.milliseconds += 1e-6 * static_cast<double>(nanoseconds);
  ++cost.calls;
}

// An event that others of its thread lie in.
struct Open {
  const kineto::KinetoEvent* event;
  uint64_t inside;  // nanoseconds of the events directly in it
};

Costs costs_of(const kineto::ProfilerResult& result) {
  Costs costs;
  std::map<uint64_t, std::vector<const kineto::KinetoEvent*>> by_thread;
  for (const kineto::KinetoEvent& event : result.events()) {
    if (is_stage(event)) add(costs.stages, event, event.durationNs());
    if (!event.isAsync()) by_thread[event.startThreadId()].push_back(&event);
  }
  for (auto& [thread, events] : by_thread) {
    std::stable_sort(events.begin(), events.end(), [](const auto* a, const auto* b) {
      return a->startNs() != b->startNs() ? a->startNs() < b->startNs() : a->durationNs() > b->durationNs();
    });
    std::vector<Open> open;
    const auto close_until = [&](uint64_t now) {
      for (; !open.empty() && open.back().event->endNs() <= now; open.pop_back()) {
        const Open& last = open.back();
        const uint64_t duration = last.event->durationNs();
        if (!is_stage(*last.event)) add(costs.operators, *last.event, duration - std::min(last.inside, duration));
      }
    };
    for (const kineto::KinetoEvent* event : events) {
      close_until(event->startNs());
      if (!open.empty()) open.back().inside += event->durationNs();
      open.push_back({event, 0});
    }
    close_until(UINT64_MAX);
  }
  return costs;
}

std::vector<std::pair<std::string, Cost>> most_expensive_first(const std::map<std::string, Cost>& costs) {
  std::vector<std::pair<std::string, Cost>> rows(costs.begin(), costs.end());
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& a, const auto& b) { return a.second.milliseconds > b.second.milliseconds; });
  return rows;
}

std::string table(const Costs& costs, int64_t steps) {
  const double count = static_cast<double>(steps);
  const auto calls = [&](const Cost& cost) { return static_cast<double>(cost.calls) / count; };
  std::string text = fmt::format("{:>10}  {:>9}  stage\n", "ms", "times");
  for (const auto& [name, cost] : most_expensive_first(costs.stages)) {
    text += fmt::format("{:10.3f}  {:9.1f}  {}\n", cost.milliseconds / count, calls(cost), name);
  }
  double all = 0;
  for (const auto& [name, cost] : costs.operators) all += cost.milliseconds;
  text += fmt::format("\n{:>7}  {:>10}  {:>9}  operator, without those that it calls\n", "share", "ms", "calls");
  std::vector<std::pair<std::string, Cost>> rows = most_expensive_first(costs.operators);
  if (rows.size() > kRows) rows.resize(kRows);
  for (const auto& [name, cost] : rows) {
    text += fmt::format("{:6.1f}%  {:10.3f}  {:9.1f}  {}\n", 100 * cost.milliseconds / all, cost.milliseconds / count,
                        calls(cost), name);
  }
  return text;
}

// Whether a JSON object is complete: Kineto does not report failed writes.
bool is_complete(const std::string& path) {
  constexpr std::streamoff kTail = 16;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file || file.tellg() < kTail) return false;
  file.seekg(-kTail, std::ios::end);
  std::string tail(kTail, ' ');
  file.read(tail.data(), kTail);
  const size_t last = tail.find_last_not_of(" \n");
  return last != std::string::npos && tail[last] == '}';
}

}  // namespace

StepProfile::StepProfile(const std::string& steps, int64_t total_steps, std::string prefix, const Ranks& ranks)
    : prefix_(std::move(prefix)), ranks_(ranks) {
  if (steps.empty()) return;
  const size_t colon = steps.find(':');
  const std::string_view all = steps;
  const std::optional<int64_t> first = whole(all.substr(0, colon));
  const std::optional<int64_t> last = colon == std::string::npos ? first : whole(all.substr(colon + 1));
  if (!first || !last || *first < 1 || *last < *first || *last > total_steps) {
    fail("profile", "the steps must be one of the run's {} or two with a colon between them, as 20:25, got {}",
         total_steps, io::printable(steps));
  }
  first_ = *first;
  last_ = *last;
}

StepProfile::~StepProfile() {
  if (!is_running_) return;
  try {
    kineto::disableProfiler();
  } catch (const std::exception&) {  // the run ends with another error
  }
}

void StepProfile::begin(int64_t step) {
  if (!is_running_ && first_ <= step && step <= last_) {
    ::setenv("KINETO_LOG_LEVEL", "99", /*overwrite=*/0);  // Kineto would write to stderr when it starts and stops
    kineto::prepareProfiler(profiler_config(), activities());
    kineto::enableProfiler(profiler_config(), activities());
    // Tools for traces of several processes identify a process by this.
    const nlohmann::json job = {{"rank", ranks_.index()}, {"world_size", ranks_.size()}};
    if (ranks_.size() > 1) kineto::addMetadataJson("distributedInfo", job.dump());
    is_running_ = true;
    begun_ = step;
  }
  if (is_running_) steps_ = step - begun_ + 1;
}

std::string StepProfile::write() {
  is_running_ = false;
  const std::unique_ptr<kineto::ProfilerResult> result = kineto::disableProfiler();
  const std::string path = fmt::format("{}{}-{}.rank{}", prefix_, begun_, begun_ + steps_ - 1, ranks_.index());
  const std::string head = fmt::format(
      "Steps {} to {}, rank {} of {}: milliseconds and calls per step, with the cost of the profiler itself\n\n",
      begun_, begun_ + steps_ - 1, ranks_.index(), ranks_.size());
  io::write_file(path + ".txt", head + table(costs_of(*result), steps_));
  std::string trace = path + ".pt.trace.json";
  std::error_code ignored;
  std::filesystem::remove(trace, ignored);
  result->save(trace);
  if (!is_complete(trace)) fail("profile", "{} must be writable, got an incomplete file", trace);
  return trace;
}

}  // namespace rf::train
