// The rules of trained experiments (docs/reproduce.md, "Verdicts"): which measured values are compared, by what
// margins, and what must hold before a comparison says anything. They are data, fixed before a run; register.json and
// the report print them, and a result holds those that it was judged by.
//
// Values that are compared are of the same seed: arms share data order, masks and initial weights but for the encoding,
// so their differences are paired. A difference is judged by Student's t over the seeds.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace rf::reproduce {

// The probability of error of each one-sided test: a region that holds contains the whole 95 % interval.
inline constexpr double kSignificance = 0.025;
inline constexpr double kConfidence = 1 - 2 * kSignificance;

// The names of measures say their units.
namespace measures {
inline constexpr const char* kHeldOutLoss = "held-out loss, nats per token";
inline constexpr const char* kLateLoss = "late training loss, nats per token";
inline constexpr const char* kStepsOfLearned = "steps to the loss that both reach, of those of learned";
inline constexpr const char* kStepsOfSinusoidal = "steps to the loss that both reach, of those of sinusoidal";
inline constexpr const char* kBleu = "BLEU";
inline constexpr const char* kSimilarity = "Chinese STS-B test, Spearman's correlation";
inline constexpr const char* kBleuAboveFloor = "BLEU above the least of the scale";
inline constexpr const char* kLossAtTwice =
    "loss of the last tokens at twice the length less that at it, nats per token";
}  // namespace measures

// The arm of Vaswani's sinusoids, added as he adds them.
inline constexpr const char* kScaledSinusoids = "sinusoidal:scale_embedding=true";

// Of the synthetic tasks: rows have these lengths, of which the first is trained on.
inline constexpr int64_t kSyntheticLengths[] = {64, 128, 256};
inline constexpr double kCanDo = 0.95;        // accuracy above which an encoding can do a task
inline constexpr double kCarriesOver = 0.02;  // accuracy that it may lose in longer rows
inline constexpr double kSaysNothing = 0.02;  // a task in which `none` is as good says nothing about an encoding
std::string accuracy_measure(const std::string& task, int64_t tokens);  // "count, accuracy at 64 tokens"
std::string accuracy_change_measure(const std::string& task, int64_t tokens, int64_t trained_on);

// The mean difference of two arms, or the mean of one, is in the open region (above, below).
struct Contrast {
  std::string measure, arm, against = {};  // against "": the measure itself
  double above = -std::numeric_limits<double>::infinity();
  double below = std::numeric_limits<double>::infinity();
  // It fails where the mean is shown to be at the other side of this; absent: outside of the region. "Lower by 0.02"
  // has 0: a difference between the two is neither.
  std::optional<double> opposite = {};
};
std::string text(const Contrast& contrast);  // "rope less learned, held-out loss, nats per token: below -0.02"
// What texts write after values of a measure of fractions, which they show times 100: "%", after differences "points".
// "" of other measures.
std::string unit_of(const Contrast& contrast);
void to_json(nlohmann::json& json, const Contrast& contrast);

// The verdict of one experiment on one claim.
struct Rule {
  std::string experiment, claim;  // a claim, or the experiment's own expectation, such as "X-05"
  std::vector<Contrast> parts;    // all must hold
  std::vector<Contrast> preconditions = {};
  std::vector<std::string> tuned = {};  // arms whose learning rate must be the best of a grid, and not at its edge
  // Results of the experiment's revisions before `sound_since` are inconclusive, for this reason.
  std::string withdrawn = {};
  int64_t sound_since = 2;
};
void to_json(nlohmann::json& json, const Rule& rule);

const std::vector<Rule>& rules();
// nullptr: the experiment decides the claim itself, by mathematics, counting or timing.
const Rule* rule_of(const std::string& experiment, const std::string& claim);

// Rules that were changed after there were results.
struct RuleChange {
  std::vector<std::string> claims;
  std::string change, reason;
};
const std::vector<RuleChange>& rule_changes();

}  // namespace rf::reproduce
