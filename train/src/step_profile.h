// A profile of some optimizer steps by torch's profiler (Kineto): for each rank a trace of every operator in Chrome's
// format, for ui.perfetto.dev, chrome://tracing and TensorBoard's plugin for torch, and a table of the operators that
// take most of the time.
//
//   <prefix>20-25.rank0.pt.trace.json    <prefix>20-25.rank0.txt
// (with the steps that were recorded, if the run began later or was stopped)
//
// The stages of a step are ranges of the trace: ProfilerStep#<step>, the name that tools for torch's traces look for,
// and in it data, forward, backward, sum of gradients (waiting for it), optimizer, evaluation and checkpoint (copying
// it). Outside a profile, marking a stage costs some nanoseconds.
#pragma once

#include <cstdint>
#include <string>

#include "ranks.h"

namespace rf::train {

class StepProfile {
 public:
  // steps: "" for none, "20", or "20:25" for the six from 20 to 25, of `total_steps`. prefix: of the files, with their
  // directory. Throws Error for steps that are not of this form or not of the run.
  StepProfile(const std::string& steps, int64_t total_steps, std::string prefix, const Ranks& ranks);
  // A profile that was not written is dropped.
  ~StepProfile();
  StepProfile(const StepProfile&) = delete;
  StepProfile& operator=(const StepProfile&) = delete;

  // Called before a step. Starts the profile if the step is one of `steps`.
  void begin(int64_t step);
  bool is_running() const { return is_running_; }
  int64_t last() const { return last_; }
  // Ends the profile and writes both files of this rank; the path of the trace. Throws Error if that cannot be done.
  std::string write();

 private:
  int64_t first_ = 1, last_ = 0;
  std::string prefix_;
  const Ranks& ranks_;
  bool is_running_ = false;
  int64_t begun_ = 0, steps_ = 0;  // the first step, and how many
};

}  // namespace rf::train
