// CSV and Markdown of a comparison (compare_table.h).
#include "compare_table.h"

#include <fmt/format.h>

#include <algorithm>

namespace rf::train {

namespace {

constexpr double kMiB = 1024.0 * 1024.0;

// Consecutive runs of one arm.
using Runs = std::vector<const CompareRun*>;
std::vector<Runs> by_arm(const CompareReport& report) {
  std::vector<Runs> arms;
  for (const CompareRun& run : report.runs) {
    if (arms.empty() || arms.back().front()->arm != run.arm) arms.emplace_back();
    arms.back().push_back(&run);
  }
  return arms;
}

template <typename F>
std::vector<double> values(const Runs& runs, F value) {
  std::vector<double> found;
  for (const CompareRun* run : runs) {
    if (const std::optional<double> one = value(*run)) found.push_back(*one);
  }
  std::sort(found.begin(), found.end());
  return found;
}

double median(const std::vector<double>& sorted) {
  const size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

// "3.412 (3.398 to 3.431)", the mean and the range over the seeds; "-" if no run has a value. "1 diverged" where runs
// did.
std::string with_spread(const std::vector<double>& sorted, int64_t diverged) {
  if (diverged > 0) {
    const std::string others = sorted.empty() ? "" : with_spread(sorted, 0) + ", ";
    return fmt::format("{}{} diverged", others, diverged);
  }
  if (sorted.empty()) return "-";
  double sum = 0;
  for (const double value : sorted) sum += value;
  const std::string mean = fmt::format("{:.3f}", sum / static_cast<double>(sorted.size()));
  if (sorted.size() == 1) return mean;
  return fmt::format("{} ({:.3f} to {:.3f})", mean, sorted.front(), sorted.back());
}

// Nothing for a run that diverged before its first line of metrics.
std::optional<double> tokens_per_second(const CompareRun& run) {
  return run.seconds > 0 ? std::optional(static_cast<double>(run.tokens) / run.seconds) : std::nullopt;
}

std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

}  // namespace

std::string csv_table(const CompareReport& report) {
  std::string out = "encoding,seed,parameters,step_ms,peak_bytes,seconds,tokens_per_second,diverged_at_step";
  for (const int64_t length : report.lengths) out += fmt::format(",loss_{}", length);
  for (size_t i = 0; i < report.unigram_losses.size(); ++i) out += fmt::format(",unigram_loss_{}", report.lengths[i]);
  out += "\n";
  for (const CompareRun& run : report.runs) {
    out += fmt::format("{},{},{},{:.3f},{},{:.3f},{:.1f},", quoted(run.arm), run.seed, run.parameters, run.step_ms,
                       run.peak_bytes, run.seconds, tokens_per_second(run).value_or(0));
    if (run.diverged_at > 0) out += std::to_string(run.diverged_at);
    for (const std::optional<double>& loss : run.losses) {
      out += loss ? fmt::format(",{:.6f}", *loss) : run.diverged_at > 0 ? ",nan" : ",";
    }
    for (const std::optional<double>& loss : report.unigram_losses) out += loss ? fmt::format(",{:.6f}", *loss) : ",";
    out += "\n";
  }
  return out;
}

std::string markdown_table(const CompareReport& report) {
  std::string out = "| encoding | parameters | ms per step | tokens/s | peak MiB |";
  std::string rule = "|---|---:|---:|---:|---:|";
  for (const int64_t length : report.lengths) {
    out += fmt::format(" loss at {} tokens |", length);
    rule += "---|";
  }
  out += "\n" + rule + "\n";
  for (const Runs& runs : by_arm(report)) {
    const auto time = values(runs, [](const CompareRun& run) { return std::optional(run.step_ms); });
    const auto speed = values(runs, tokens_per_second);
    const auto peak =
        values(runs, [](const CompareRun& run) { return std::optional(static_cast<double>(run.peak_bytes) / kMiB); });
    out += fmt::format("| {} | {} | {:.1f} | {:.0f} | {:.0f} |", runs.front()->arm, runs.front()->parameters,
                       median(time), speed.empty() ? 0 : median(speed), peak.back());
    const auto diverged = std::count_if(runs.begin(), runs.end(), [](const auto* run) { return run->diverged_at > 0; });
    for (size_t i = 0; i < report.lengths.size(); ++i) {
      const auto losses = values(runs, [i](const CompareRun& run) { return run.losses[i]; });
      out += fmt::format(" {} |", with_spread(losses, diverged));
    }
    out += "\n";
  }
  if (report.unigram_losses.empty()) return out;
  out += "| (token frequencies) | - | - | - | - |";
  for (const std::optional<double>& loss : report.unigram_losses)
    out += loss ? fmt::format(" {:.3f} |", *loss) : " - |";
  return out + "\n";
}

}  // namespace rf::train
