// Collectives of a training job through c10d (ranks.h).
#include "ranks.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>
#include <nlohmann/json.hpp>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "rf/data/identity.h"
#include "rf/io/error.h"
#include "rf/train/job.h"

namespace rf::train {

namespace {

constexpr std::chrono::milliseconds kLongWait = std::chrono::hours(24 * 365);

// The first line of an error of torch, without its backtrace.
std::string first_line(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

// The errors that c10d throws if a rank is gone or late.
template <typename Action>
auto communicate(int64_t rank, Action action) {
  try {
    const c10::NoGradGuard no_grad;
    return action();
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    fail<LostRank>(
        "distributed",
        "every process of the job must take part, but rank {} lost another one, which ended or did not answer in time: "
        "{}",
        rank, first_line(error));
  }
}

}  // namespace

Ranks::~Ranks() = default;

const Ranks& Ranks::alone() {
  static const Ranks one("");
  return one;
}

Ranks::Ranks(const std::string& group) {
  if (group.empty()) return;
  try {
    group_ = c10d::resolve_process_group(group);
  } catch (const std::exception& error) {
    fail("distributed", "the process group must be one of this process, got {}: {}", group, first_line(error));
  }
  index_ = group_->getRank();
  size_ = group_->getSize();
  if (size_ == 1) group_.reset();
}

void Ranks::gather_into(const at::Tensor& own, at::Tensor& all) const {
  communicate(index_, [&] {
    std::vector<at::Tensor> from = {own};
    std::vector<std::vector<at::Tensor>> to = {all.view({size_, -1}).unbind(0)};
    group_->allgather(to, from)->wait();
  });
}

// [size, N]
at::Tensor Ranks::gathered(const at::Tensor& own) const {
  at::Tensor all = at::empty({size_, own.numel()}, own.options());
  gather_into(own, all);
  return all;
}

std::vector<std::vector<int64_t>> Ranks::gather(std::span<const int64_t> values) const {
  std::vector<int64_t> own(values.begin(), values.end());
  if (group_ == nullptr) return {own};
  const at::Tensor all = gathered(at::from_blob(own.data(), {std::ssize(own)}, at::kLong));
  std::vector<std::vector<int64_t>> each;
  for (int64_t i = 0; i < size_; ++i) {
    const auto* const row = all.const_data_ptr<int64_t>() + i * std::ssize(own);
    each.emplace_back(row, row + own.size());
  }
  return each;
}

std::vector<std::vector<double>> Ranks::gather(std::span<const double> values) const {
  std::vector<int64_t> bits(values.size());
  std::memcpy(bits.data(), values.data(), values.size_bytes());
  std::vector<std::vector<double>> each;
  for (const std::vector<int64_t>& row : gather(bits)) {
    each.emplace_back(row.size());
    std::memcpy(each.back().data(), row.data(), row.size() * sizeof(double));
  }
  return each;
}

std::vector<std::string> Ranks::gather(const std::string& text) const {
  if (group_ == nullptr) return {text};
  const int64_t own_size = std::ssize(text);
  const std::vector<std::vector<int64_t>> sizes = gather(std::span(&own_size, 1));
  const int64_t longest = std::max_element(sizes.begin(), sizes.end())->front();
  at::Tensor own = at::zeros({longest}, at::kByte);
  std::memcpy(own.data_ptr(), text.data(), text.size());
  const at::Tensor all = longest == 0 ? own : gathered(own);
  std::vector<std::string> texts;
  for (int64_t i = 0; i < size_; ++i) {
    const auto* const bytes = reinterpret_cast<const char*>(all.const_data_ptr<uint8_t>()) + i * longest;
    texts.emplace_back(bytes, static_cast<size_t>(sizes[static_cast<size_t>(i)].front()));
  }
  return texts;
}

int64_t Ranks::largest(int64_t value) const {
  if (group_ == nullptr) return value;
  const std::vector<std::vector<int64_t>> values = gather(std::span(&value, 1));
  return std::max_element(values.begin(), values.end())->front();
}

int64_t Ranks::largest_at_end(int64_t value) const {
  if (group_ == nullptr) return value;
  const at::Tensor own = at::from_blob(&value, {1}, at::kLong);
  const at::Tensor all = at::empty({size_}, at::kLong);
  communicate(index_, [&] {
    std::vector<at::Tensor> from = {own};
    std::vector<std::vector<at::Tensor>> to = {all.split(1)};
    group_->allgather(to, from, {.timeout = kLongWait})->wait();
  });
  const auto* const values = all.const_data_ptr<int64_t>();
  return *std::max_element(values, values + size_);
}

c10::intrusive_ptr<c10d::Work> Ranks::start_sum(at::Tensor& tensor) const {
  return communicate(index_, [&] {
    std::vector<at::Tensor> tensors = {tensor};
    return group_->allreduce(tensors);
  });
}

void Ranks::wait(c10d::Work& work) const {
  communicate(index_, [&] { work.wait(); });
}

void Ranks::fail_on_all(const std::string& message) const {
  const size_t end = std::min(message.find("] "), message.size());
  const std::string where = message.substr(1, end - 1), text = message.substr(std::min(end + 2, message.size()));
  if (is_first()) throw FailedOnAll(where, text);
  throw SaidByFirstRank(where, text);
}

void Ranks::together(const std::function<void()>& action) const {
  if (group_ == nullptr) return action();
  std::string message;
  try {
    action();
  } catch (const LostRank&) {
    throw;
  } catch (const Error& error) {
    message = error.what();
  } catch (const std::bad_alloc&) {
    message = "[memory] the work must fit into memory, got an allocation that failed";
  } catch (const std::exception& error) {  // of the file system, or of torch
    message = "[distributed] this must succeed, got: " + first_line(error);
  }
  const std::vector<std::string> messages = gather(message);
  const auto failed = std::find_if(messages.begin(), messages.end(), [](const auto& each) { return !each.empty(); });
  if (failed == messages.end()) return;
  std::string said = *failed;
  if (std::count(messages.begin(), messages.end(), said) < size_) {
    said.insert(std::min(said.find("] "), said.size()), fmt::format(", rank {}", failed - messages.begin()));
  }
  fail_on_all(said);
}

void Ranks::require_same(const char* what, const nlohmann::json& facts) const {
  const std::vector<std::string> texts = gather(facts.dump());
  for (size_t rank = 1; rank < texts.size(); ++rank) {
    if (texts[rank] == texts[0]) continue;
    const std::string difference =
        data::first_difference(nlohmann::json::parse(texts[0]), nlohmann::json::parse(texts[rank]));
    fail_on_all(fmt::format("[distributed] {} must be the same on every rank, got on rank {} {} of rank 0", what, rank,
                            difference));
  }
}

}  // namespace rf::train
