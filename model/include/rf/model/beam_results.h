// The results of a beam search as transformers' generate() keeps them: the best `beams`, ranked by the sum of
// log-probabilities over tokens^length_penalty.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

namespace rf {

template <typename Result>  // requires a number `score`
class BeamResults {
 public:
  BeamResults(int64_t beams, double length_penalty)
      : beams_(static_cast<size_t>(beams)), length_penalty_(length_penalty) {}

  float ranked(float sum, int64_t tokens) const {
    return sum / static_cast<float>(std::pow(static_cast<double>(tokens), length_penalty_));
  }
  bool is_full() const { return results_.size() == beams_; }
  bool wants(float score) const { return !is_full() || score > results_.back().score; }
  // Adds a result that is good enough; equal results keep their order.
  void add(Result result) {
    const auto is_above = [](double score, const Result& other) { return score > other.score; };
    if (is_full()) results_.pop_back();
    results_.insert(std::upper_bound(results_.begin(), results_.end(), result.score, is_above), std::move(result));
  }
  std::vector<Result> take() { return std::move(results_); }  // best first

 private:
  size_t beams_;
  double length_penalty_;
  std::vector<Result> results_;
};

}  // namespace rf
