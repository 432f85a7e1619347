// Speed of the kernels of core through their C interface, compared with the same work in torch eager (peers).
//
// A case is a kernel at one size, type and variant; filters match its name, for example
// attention/t5/2x512/bfloat16/forward. Every side is first compared with float64, which torch computes from the
// formula. Then the sides take turns in one process, in short windows; a speed-up is the median over rounds of the
// quotient of their times within a round, so other load on the machine affects both sides.
//
// Our side writes into existing memory; torch allocates its results. This costs little if the C library keeps freed
// memory, and does not put more of it in the cache than our side. A backward includes the forward before it, and
// computes gradients of every input except tables by distance.
//
// Calls take sets of arrays in turn. Cases counted in bytes have enough sets for 256 MiB of traffic, so their data come
// from memory, like activations; cases counted in operations have one set.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace rf::bench {

enum class Sizes { kFull, kTiny };  // kTiny: to see every case work, not to learn speeds
enum class Peers { kNo, kYes };

struct Options {
  // A regular expression (ECMAScript without back-references, at most 512 bytes) that some part of a case's name
  // matches; empty: all cases.
  std::string filter;
  Sizes sizes = Sizes::kFull;
  Peers peers = Peers::kNo;
  int64_t sets = 0;  // 0: as said above
  int64_t rounds = 15;
  double window_ms = 4;
  uint64_t seed = 1;  // of the inputs
};

struct Result {
  std::string name;  // of the case
  std::string side;  // "ours", "torch"; for rope also "copy", memcpy of the same bytes by all threads
  int64_t sets = 0;
  double error_eps = 0;  // largest difference from float64 in eps of the type and of the largest element
  double median_us = 0;  // of one call
  double gflop_per_s = 0, gigabytes_per_s = 0;  // one is set; the other is 0
  double ours_times_as_fast = 0;                // as this side
};

// Names of the cases that match the filter, in the order in which they run. Throws Error for a filter that is not such
// a regular expression, or without a match.
std::vector<std::string> case_names(const Options& options);

// Calls `result` for each side of each case. Throws std::runtime_error if a result is wrong, and Error if a kernel
// refuses (RF_KERNEL=ref, if its loops support only float64).
void run(const Options& options, const std::function<void(const Result&)>& result);

}  // namespace rf::bench
