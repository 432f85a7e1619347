// The processes of a training job, which torch.distributed calls ranks: 0, 1, .. size - 1. The process group is made by
// Python (python/roformer_cpp/distributed.py) under torchrun, Slurm or Ray, and looked up here by its name, so this
// project needs neither a transport nor a launcher. One process is a job of one rank without communication.
//
// Every rank must make the same calls in the same order. If another rank ends or does not answer within the time limit
// of the group, the calls throw LostRank; no call waits forever.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <array>
#include <bit>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "rf/io/error.h"

namespace c10d {
class ProcessGroup;
class Work;
}  // namespace c10d

namespace rf::train {

// Another rank has ended or did not answer in time.
struct LostRank : Error {
  using Error::Error;
};

class Ranks {
 public:
  // A job of one process.
  static const Ranks& alone();
  // group: the name of a process group of this process; "" for one process. Throws Error if the group does not exist.
  explicit Ranks(const std::string& group);
  ~Ranks();
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  int64_t index() const { return index_; }
  int64_t size() const { return size_; }
  bool is_first() const { return index_ == 0; }
  // Whether this rank has that numbered part of the work: each rank takes every size-th part.
  bool has(int64_t part) const { return part % size_ == index_; }

  // The values of every rank, in the order of ranks; all ranks must pass the same number.
  std::vector<std::vector<int64_t>> gather(std::span<const int64_t> values) const;
  std::vector<std::vector<double>> gather(std::span<const double> values) const;
  std::vector<std::string> gather(const std::string& text) const;
  int64_t largest(int64_t value) const;
  // The same at the end of work that takes ranks different times: waits as long as the other ranks are alive.
  int64_t largest_at_end(int64_t value) const;

  // Starts the sum over ranks of a contiguous tensor, in place; the same bits on every rank.
  c10::intrusive_ptr<c10d::Work> start_sum(at::Tensor& tensor) const;
  // Waits for the started sum.
  void wait(c10d::Work& work) const;
  // all[size * N]: `own` [N] of every rank, in order; both contiguous.
  void gather_into(const at::Tensor& own, at::Tensor& all) const;

  // Calls `action` on every rank. If it throws on some ranks, all ranks throw like fail_on_all: the error of the lowest
  // such rank, naming that rank unless all had the same error.
  void together(const std::function<void()>& action) const;
  // Called on every rank, for an error that all ranks have: the first rank throws FailedOnAll with this message,
  // "[where] ..", the others SaidByFirstRank (rf/train/job.h).
  [[noreturn]] void fail_on_all(const std::string& message) const;
  // Throws Error, naming the rank and the difference, unless `facts` equal the facts of the first rank.
  void require_same(const char* what, const nlohmann::json& facts) const;

 private:
  at::Tensor gathered(const at::Tensor& own) const;

  c10::intrusive_ptr<c10d::ProcessGroup> group_;  // null: one process
  int64_t index_ = 0, size_ = 1;
};

// The sum of the numbered parts of the work (Ranks::has), added in their order. Sums: a struct of doubles.
template <typename Sums>
Sums sum_of_parts(const Ranks& ranks, const std::vector<Sums>& own, int64_t parts) {
  using Numbers = std::array<double, sizeof(Sums) / sizeof(double)>;
  std::vector<double> numbers;
  for (const Sums& sums : own) {
    const auto of_part = std::bit_cast<Numbers>(sums);
    numbers.insert(numbers.end(), of_part.begin(), of_part.end());
  }
  const int64_t size = ranks.size();
  Numbers total = {};
  numbers.resize(total.size() * static_cast<size_t>((parts + size - 1) / size));
  const std::vector<std::vector<double>> all = ranks.gather(numbers);
  for (int64_t part = 0; part < parts; ++part) {
    const double* const of_part =
        &all[static_cast<size_t>(part % size)][total.size() * static_cast<size_t>(part / size)];
    for (size_t i = 0; i < total.size(); ++i) total[i] += of_part[i];
  }
  return std::bit_cast<Sums>(total);
}

}  // namespace rf::train
