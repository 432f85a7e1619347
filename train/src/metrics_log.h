// metrics.jsonl of a run: one JSON object a line, in step order, each with "type" and "step".
//
//   {"type":"train","step":..,"stage":..,"loss":..,"learning_rate":..,"gradient_norm":..,"tokens":..,
//    "predicted_tokens":..,"seconds":..,"tokens_per_second":..}
//   {"type":"evaluation","step":..,"stage":..,"loss":..,"perplexity":..,"bits":..,"accuracy":..,"unigram_loss":..,
//    "predicted_tokens":..,"seconds":..}
//   {"type":"length","length":.., and what an evaluation has; where the model cannot read that far, loss and accuracy
//    are null and the rest is left out}
//
// loss: nats a predicted token, of the interval since the last line; learning_rate and gradient_norm (before clipping):
// of the step itself; tokens: of the interval, padding excluded; perplexity: e^loss; bits: loss / ln 2. Only seconds
// and tokens_per_second differ between a run that was interrupted and one that was not.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace rf::train {

class MetricsLog {
 public:
  // Opens the file for appending after leaving out every line of a step past last_step, and a last line without its
  // end, as a killed process leaves one. Where other lines are damaged, they are left out, the file as it was is kept
  // beside as metrics.jsonl.damaged-<n>, and `note`, unless it is empty, is told so.
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

}  // namespace rf::train
