// Speed of rotary embedding beside an out-of-place copy of the same bytes (glibc memcpy, one share a thread).
//
// Each case is first held to the float64 reference loops. Then copy and all sides take turns in one process, in short
// windows; a side's ratio is the median over rounds of (copy's time / its own time) within a round, so that what else
// the machine does at that moment falls on both. Steady state: the tables are there.
//
// Calls take pairs of buffers in turn: by default as many as make the results alone 128 MiB, so that the data come from
// memory as activations do. sets = 1 uses one pair, which for small cases stays in the last-level cache.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace rf::bench {

struct RopeOptions {
  int64_t heads = 12;
  int64_t head_dim = 64;
  int64_t sets = 0;  // pairs of buffers; 0: as many as make 128 MiB
  int64_t rounds = 41;
  double window_ms = 4;
  std::vector<int64_t> positions = {4096, 32768};
};

struct RopeResult {
  int64_t positions = 0;
  std::string dtype;  // "float32" or "bfloat16"
  std::string side;   // "copy", "[T,H,D] pairs out of place", ...
  int64_t sets = 0;
  double median_us = 0;             // of one call
  double gigabytes_per_second = 0;  // bytes read and written, tables not counted
  double ratio_to_copy = 0;         // above 1: faster than the copy
};

// Calls `result` for each side of each case. Throws Error for extents that the kernel refuses, and when the kernel and
// the reference loops differ by more than their tolerance.
void bench_rope(const RopeOptions& options, const std::function<void(const RopeResult&)>& result);

}  // namespace rf::bench
