// metrics.jsonl of a run: one JSON object per line, in step order, each with "type" and "step".
//
//   {"type":"train","step":..,"stage":..,"loss":..,"learning_rate":..,"gradient_norm":..,"tokens":..,
//    "predicted_tokens":..,"seconds":..,"tokens_per_second":..}
//   {"type":"evaluation","step":..,"stage":..,"loss":..,"perplexity":..,"bits":..,"accuracy":..,"unigram_loss":..,
//    "predicted_tokens":..,"seconds":..}
//   {"type":"length","length":.., and the keys of an evaluation; if the model cannot read that length, loss and
//    accuracy are null and the rest is left out}
//
// With pairs of sentences a train line also has "pair_loss" and "pair_accuracy" of the interval, and an evaluation
// these and "pairs", their number.
//
// In a job of several processes a train line also has their number, "processes", and of the interval
// "communication_seconds", in which gradients were in transit, and "exposed_seconds", the part that the backward pass
// did not hide (means over the processes), "slowest_rank" and "slowest_seconds", of its passes.
//
// loss: nats per predicted token, of the interval since the last line; learning_rate and gradient_norm (before
// clipping): of the step itself; tokens: of the interval, without padding; perplexity: e^loss; bits: loss / ln 2. Only
// seconds and tokens_per_second differ between a run that was interrupted and one that was not.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace rf::train {

class MetricsLog {
 public:
  // Opens the file for appending, after removing every line of a step past last_step and an incomplete last line, which
  // a killed process may leave. If other lines are damaged, they are removed too, the original file is kept as
  // metrics.jsonl.damaged-<n>, and `note`, unless it is empty, gets a message.
  MetricsLog(std::string path, int64_t last_step, const std::function<void(const std::string&)>& note);
  ~MetricsLog();
  MetricsLog(const MetricsLog&) = delete;
  MetricsLog& operator=(const MetricsLog&) = delete;

  void append(const nlohmann::json& line);
  void sync();  // to the disk

 private:
  std::string path_;
  int fd_ = -1;
};

// The training curve of a run; damaged lines are skipped.
struct TrainingCurve {  // one entry per line
  std::vector<int64_t> steps;
  std::vector<double> losses, seconds;
  int64_t tokens = 0;  // of all lines; 0 where lines do not count them
};

// In step order. Throws Error, naming the key, for a line without one of the three.
TrainingCurve training_curve(const std::string& run_dir);

}  // namespace rf::train
