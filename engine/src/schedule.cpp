// Batches, equal sequences and the queue of requests (rf/engine/schedule.h).
#include "rf/engine/schedule.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <list>
#include <mutex>
#include <thread>
#include <utility>

#include "rf/engine/interrupt.h"
#include "rf/io/error.h"

namespace rf::engine {

namespace {

constexpr const char* kTokensWhere = "input";

template <typename T>
void check_size(const std::span<T>& values, size_t tokens, const char* name) {
  if (values.empty() || values.size() == tokens) return;
  fail(kTokensWhere, "{} must be one for each of the {} tokens, got {}", name, tokens, values.size());
}

}  // namespace

Tokens slice(const Tokens& tokens, int64_t first, int64_t count, std::vector<int64_t>& offsets) {
  const int64_t begin = tokens.offsets[first];
  const auto size = static_cast<size_t>(tokens.offsets[first + count] - begin);
  offsets.resize(static_cast<size_t>(count) + 1);
  for (int64_t i = 0; i <= count; ++i) offsets[i] = tokens.offsets[first + i] - begin;
  const auto part = [&](auto values) { return values.empty() ? values : values.subspan(begin, size); };
  return {.ids = part(tokens.ids),
          .offsets = offsets,
          .types = part(tokens.types),
          .attend = part(tokens.attend),
          .positions = part(tokens.positions),
          .pooled = part(tokens.pooled)};
}

Tokens without_empty(const Tokens& tokens, std::vector<int64_t>& offsets) {
  offsets.clear();
  std::ranges::unique_copy(tokens.offsets, std::back_inserter(offsets));
  Tokens input = tokens;
  input.offsets = offsets;
  return input;
}

void check_tokens(const Tokens& tokens, int64_t shortest) {
  const std::span<const int64_t> offsets = tokens.offsets;
  if (offsets.empty() || offsets.front() != 0 || offsets.back() != static_cast<int64_t>(tokens.ids.size()))
    fail(kTokensWhere, "offsets must go from 0 to the {} token ids, got {} of them", tokens.ids.size(), offsets.size());
  for (size_t i = 1; i < offsets.size(); ++i) {
    if (offsets[i] - offsets[i - 1] < shortest) {
      fail(kTokensWhere, "a sequence must have at least {}, got {} in sequence {}",
           shortest == 1 ? "one token" : "0 tokens", offsets[i] - offsets[i - 1], i - 1);
    }
  }
  check_size(tokens.types, tokens.ids.size(), "types");
  check_size(tokens.attend, tokens.ids.size(), "attend");
  check_size(tokens.positions, tokens.ids.size(), "positions");
  check_size(tokens.pooled, tokens.ids.size(), "pooled");
}

Computation logits_of(const Model& model) {
  return {.run = [&model](const Tokens& tokens, float* out) { model.logits(tokens, out); },
          .columns = model.logits_per_row(),
          .rows = model.logits_of_tokens() ? Computation::Rows::kTokens : Computation::Rows::kSequences};
}

void DistinctSequences::add(const Tokens& tokens) {
  std::vector<int64_t> offsets;
  for (int64_t i = 0; i + 1 < std::ssize(tokens.offsets); ++i) {
    const Tokens one = slice(tokens, i, 1, offsets);
    add(one.ids, {one.types.begin(), one.types.end()}, {one.attend.begin(), one.attend.end()},
        {one.pooled.begin(), one.pooled.end()});
  }
}

void DistinctSequences::add(std::span<const int32_t> ids, std::vector<int32_t> types, std::vector<uint8_t> attend,
                            std::vector<uint8_t> pooled) {
  types.resize(ids.size());
  attend.resize(ids.size(), 1);
  if (pooled.empty()) pooled = attend;
  const auto [found, is_new] =
      numbers_.emplace(Sequence{{ids.begin(), ids.end()}, types, attend, pooled}, numbers_.size());
  places_.push_back(found->second);
  if (!is_new) return;
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  types_.insert(types_.end(), types.begin(), types.end());
  attend_.insert(attend_.end(), attend.begin(), attend.end());
  pooled_.insert(pooled_.end(), pooled.begin(), pooled.end());
  offsets_.push_back(std::ssize(ids_));
}

Tokens DistinctSequences::tokens() const {
  Tokens all{.ids = ids_, .offsets = offsets_};
  if (std::ranges::any_of(types_, [](int32_t type) { return type != 0; })) all.types = types_;
  if (std::ranges::find(attend_, 0) != attend_.end()) all.attend = attend_;
  if (pooled_ != attend_) all.pooled = pooled_;
  return all;
}

std::vector<float> DistinctSequences::compute(const Computation& computation) const {
  std::vector<float> distinct(static_cast<size_t>(computation.rows_of(tokens()) * computation.columns));
  computation.run(tokens(), distinct.data());
  return rows_of_all(computation, std::move(distinct));
}

std::vector<float> DistinctSequences::rows_of_all(const Computation& computation, std::vector<float> distinct) const {
  if (places_.size() == numbers_.size()) return distinct;
  std::vector<float> rows;
  for (const int64_t place : places_) {
    const std::span<const float> own = computation.of_sequence(distinct, offsets_, place);
    rows.insert(rows.end(), own.begin(), own.end());
  }
  return rows;
}

struct RequestQueue::Impl {
  using Clock = std::chrono::steady_clock;
  static constexpr size_t kLevels = 2;  // a batch, and one while it pauses
  // Shares of the time of a batch: its run before a pause, the batch in the pause, and its whole time if few requests
  // wait. Its layers are short then, so a pause comes soon.
  static constexpr double kPauseShare = 1.0 / 24, kPausedShare = 1.0 / 12, kAloneShare = 1.0 / 8;
  // Of the time of a batch that ran together: the longest wait for its requests to return.
  static constexpr double kReturnShare = 1.0 / 4;

  struct Request {
    const uint64_t number;
    const Computation& computation;
    const Tokens tokens;
    float* const out;
    const Progress progress;
    int64_t done = 0, taken = 0;  // sequences; taken: by a running batch
    size_t level = 0;             // of that batch
    bool is_cancelled = false;
    std::exception_ptr error{};

    int64_t sequences() const { return std::ssize(tokens.offsets) - 1; }
    bool is_over() const { return error != nullptr || done == sequences(); }
    const void* turn() const { return computation.turn != nullptr ? computation.turn : &computation; }
    // Whether a batch may have both.
    bool joins(const Request& other) const {
      const auto together = computation.run_together;
      return &computation == &other.computation ||
             (together != nullptr && together == other.computation.run_together && turn() == other.turn());
    }
    int64_t tokens_left() const { return tokens.offsets.back() - tokens.offsets[done]; }
    // Adds the next sequence to the batch, if there is one and it fits.
    bool take_next(TokenBudget& budget) {
      const int64_t next = done + taken;
      if (next == sequences() || !budget.take(tokens.offsets[next + 1] - tokens.offsets[next])) return false;
      ++taken;
      return true;
    }
  };
  using Batch = std::vector<Request*>;

  explicit Impl(const Options& given)
      : options(given), worker([this, threads = omp_get_max_threads()] {
          omp_set_num_threads(threads);
          work();
        }) {}

  void work() {
    const InterruptScope scope([this] { check(); });
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return !requests.empty() || is_stopped; });
      if (requests.empty()) return;
      await_returns(lock);
      run_next(lock);
    }
  }

  // Most requests of a batch that ran together return with their next steps immediately. Without a wait, the first to
  // return would be computed without the others.
  void await_returns(std::unique_lock<std::mutex>& lock) {
    const auto are_there = [this] {
      const auto is_other = [this](const Request& each) { return each.turn() != together.turn; };
      return is_stopped || std::ssize(requests) >= together.requests || std::ranges::any_of(requests, is_other);
    };
    changed.wait_for(lock, std::chrono::duration<double>(kReturnShare * together.seconds), are_there);
    together = {};
  }

  void run_next(std::unique_lock<std::mutex>& lock) {
    const size_t level = depth;
    is_interrupted[level] = false;
    const Batch batch = take();
    ++depth;
    lock.unlock();
    const Clock::time_point start = begun = Clock::now();
    const double paused_before = paused_s;
    if (!batch.empty()) compute(batch);
    const double seconds = seconds_since(start);
    if (level > 0) paused_s += seconds;
    lock.lock();
    depth = level;
    if (!batch.empty() && batch[0]->computation.run_together != nullptr)
      together = {batch[0]->turn(), std::ssize(batch), seconds};
    note_speed(batch, seconds - (level > 0 ? 0 : paused_s - paused_before));
    finish(lock);
    begun = Clock::now();  // of the batch that paused
  }

  static double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  // Before each layer of a batch: ends it, or lets short requests in between.
  void check() {
    if (is_interrupted[depth - 1]) throw RequestCancelled();
    if (depth == kLevels || options.batch_s == 0) return;
    const double seconds = seconds_since(begun);
    if (seconds < options.batch_s * kPauseShare) return;
    std::unique_lock lock(mutex);
    const bool is_asked = std::ranges::any_of(
        requests, [this](const Request& each) { return each.taken == 0 && (each.is_cancelled || may_go(each)); });
    if (is_asked && (seconds >= options.batch_s || !is_crowded())) run_next(lock);
  }

  // Whether more requests wait than fit into a pause, not counting requests too long for one batch: then large
  // batches serve all requests sooner.
  bool is_crowded() const {
    int64_t waiting = 0, room = 0;  // tokens
    for (const Request& each : requests) {
      if (each.taken > 0 || each.is_cancelled || each.tokens_left() > budget_of(each.turn(), 1)) continue;
      waiting += each.tokens_left();
      room = std::max(room, budget_of(each.turn(), kPausedShare));
    }
    return waiting > room;
  }

  // Whether a request may be taken now. While another batch is paused, only short ones are.
  bool may_go(const Request& each) const {
    if (each.is_cancelled || (each.taken > 0 && each.level != depth)) return false;
    return depth == 0 || each.taken > 0 || each.tokens_left() <= budget_of(each.turn(), kPausedShare);
  }

  // Tokens that take this share of the time of a batch.
  int64_t budget_of(const void* turn, double share) const {
    constexpr double kLeast = 128;  // products of fewer rows are much slower
    if (options.batch_s == 0) return options.token_budget;
    const auto speed = speeds.find(turn);
    const double tokens_of_batch = speed == speeds.end() ? 0 : speed->second * options.batch_s * share;
    return std::min(options.token_budget, static_cast<int64_t>(std::max(kLeast, tokens_of_batch)));
  }

  void note_speed(const Batch& batch, double seconds) {
    constexpr size_t kMostSpeeds = 64;  // some are of computations that have ended; others are measured again
    constexpr double kWeight = 0.25;
    constexpr int64_t kLeast = 64;
    int64_t count = 0;
    for (const Request* each : batch)
      count += each->tokens.offsets[each->done + each->taken] - each->tokens.offsets[each->done];
    if (count < kLeast) return;
    if (speeds.size() > kMostSpeeds) speeds.clear();
    const double speed = static_cast<double>(count) / std::max(seconds, 1e-9);
    double& known = speeds.emplace(batch[0]->turn(), speed).first->second;
    known += kWeight * (speed - known);
  }

  // The next batch: a sequence of each request in turn while one fits, or all of the first request, then the next. With
  // equal shares, the requests with the same turn then move to the end of the line, the first request last: so each
  // becomes the first eventually, and then its next sequence fits.
  Batch take() {
    const bool is_shared = options.order == Options::Order::kShared;
    Batch batch;
    const auto first = std::ranges::find_if(requests, [this](const Request& each) { return may_go(each); });
    if (first == requests.end()) return batch;
    const double share = depth > 0 ? kPausedShare : is_crowded() ? 1 : kAloneShare;
    TokenBudget budget(budget_of(first->turn(), share));
    for (bool takes = true; takes;) {
      takes = false;
      for (Request& each : requests) {
        if (!may_go(each) || !each.joins(*first)) continue;
        while (each.take_next(budget)) {
          each.level = depth;
          if (each.taken == 1) batch.push_back(&each);
          takes = true;
          if (is_shared) break;
        }
        if (!is_shared && each.done + each.taken < each.sequences()) break;
      }
    }
    if (is_shared) rotate(first);
    return batch;
  }

  void rotate(std::list<Request>::iterator first) {
    std::list<Request> same;
    for (auto next = requests.begin(); next != requests.end();) {
      const auto each = next++;
      if (each->turn() == first->turn()) same.splice(same.end(), requests, each);
    }
    same.splice(same.end(), same, first);
    requests.splice(requests.end(), same);
  }

  // After an error each request is computed alone, so that only the request that caused it gets the error.
  static void compute(const Batch& batch) {
    try {
      run(batch);
    } catch (...) {
      if (batch.size() == 1) {
        batch[0]->error = std::current_exception();
        return;
      }
      for (Request* each : batch) compute({each});
    }
  }

  static void run(const Batch& batch) {
    const Computation& computation = batch[0]->computation;
    if (computation.run_together != nullptr) {
      std::vector<const Computation*> all;
      for (const Request* each : batch) all.push_back(&each->computation);
      return computation.run_together(all);
    }
    std::vector<int64_t> offsets;
    const auto part = [&](const Request& each) { return slice(each.tokens, each.done, each.taken, offsets); };
    const auto out = [&](const Request& each) {
      return each.out + computation.row_of(each.tokens.offsets, each.done) * computation.columns;
    };
    if (batch.size() == 1) return computation.run(part(*batch[0]), out(*batch[0]));
    DistinctSequences joined;
    for (const Request* each : batch) joined.add(part(*each));
    const std::vector<float> rows = joined.compute(computation);
    const float* from = rows.data();
    for (const Request* each : batch) {
      const int64_t size = computation.rows_of(part(*each)) * computation.columns;
      std::copy_n(from, size, out(*each));
      from += size;
    }
  }

  // Reports the progress of the batch and the finished requests, without the lock.
  void finish(std::unique_lock<std::mutex>& lock) {
    std::list<Request> over;
    Batch told;
    for (auto next = requests.begin(); next != requests.end();) {
      const auto each = next++;
      if (each->taken > 0 && each->level != depth) continue;  // of the batch that paused
      const int64_t taken = std::exchange(each->taken, 0);
      if (each->error == nullptr) each->done += taken;
      if (each->is_cancelled && !each->is_over()) each->error = std::make_exception_ptr(RequestCancelled());
      if (taken > 0 || each->is_over()) told.push_back(&*each);
      if (!each->is_over()) continue;
      tokens -= std::ssize(each->tokens.ids);
      over.splice(over.end(), requests, each);
    }
    lock.unlock();
    changed.notify_all();
    for (const Request* each : told) each->progress(each->done, each->error);
    over.clear();
    lock.lock();
  }

  const Options options;
  std::mutex mutex;  // guards the members below, except `done` and `error` of requests, which only the worker uses
  std::condition_variable changed;
  std::list<Request> requests;
  int64_t tokens = 0;  // of all requests
  uint64_t next_number = 0;
  uint64_t turn = 0, next_turn = 0;  // of waiting submit() calls: a long request keeps its place before short ones
  bool is_stopped = false;
  std::array<std::atomic<bool>, kLevels> is_interrupted{};  // of the batch of each level
  // Of the worker alone.
  size_t depth = 0;           // batches that run
  Clock::time_point begun{};  // when the running batch began, or resumed
  double paused_s = 0;        // of all batches
  struct {
    const void* turn = nullptr;
    int64_t requests = 0;
    double seconds = 0;
  } together;                            // the last batch that ran together
  std::map<const void*, double> speeds;  // tokens per second of computations, by their turn
  std::thread worker;
};

RequestQueue::RequestQueue(const Options& options) : impl_(std::make_unique<Impl>(options)) {}

RequestQueue::~RequestQueue() {
  stop();
  impl_->worker.join();
}

std::optional<uint64_t> RequestQueue::submit(const Computation& computation, const Tokens& tokens, float* out,
                                             Progress progress, WhenFull when_full) {
  check_tokens(tokens, 0);
  if (!tokens.positions.empty()) fail(kTokensWhere, "a request must have no positions, got some");
  const int64_t size = std::ssize(tokens.ids);
  std::unique_lock lock(impl_->mutex);
  const uint64_t turn = impl_->next_turn;
  const auto has_room = [&] {
    const bool fits = impl_->requests.empty() || size <= impl_->options.max_tokens - impl_->tokens;
    return impl_->is_stopped || (fits && turn == impl_->turn);
  };
  if (when_full == WhenFull::kRefuse && !has_room()) return std::nullopt;
  if (when_full != WhenFull::kTake) {
    ++impl_->next_turn;
    impl_->changed.wait(lock, has_room);
    ++impl_->turn;
  }
  if (impl_->is_stopped) throw RequestCancelled();
  impl_->requests.push_back({impl_->next_number, computation, tokens, out, std::move(progress)});
  impl_->tokens += size;
  impl_->changed.notify_all();
  return impl_->next_number++;
}

void RequestQueue::cancel(uint64_t request) {
  const std::lock_guard lock(impl_->mutex);
  std::array<bool, Impl::kLevels> is_needed{};  // the running batches
  for (Impl::Request& each : impl_->requests) {
    if (each.number == request) each.is_cancelled = true;
    is_needed[each.level] |= each.taken > 0 && !each.is_cancelled;
  }
  for (size_t level = 0; level < Impl::kLevels; ++level) impl_->is_interrupted[level] = !is_needed[level];
}

void RequestQueue::stop() {
  const std::lock_guard lock(impl_->mutex);
  impl_->is_stopped = true;
  for (Impl::Request& each : impl_->requests) each.is_cancelled = true;
  for (std::atomic<bool>& each : impl_->is_interrupted) each = true;
  impl_->changed.notify_all();
}

}  // namespace rf::engine
