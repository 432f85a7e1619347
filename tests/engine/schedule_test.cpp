// The schedule of computations (rf/engine/schedule.h), with computations that are no model: batches, equal sequences,
// and the queue under several threads. The columns of a row are the sum of its ids and the tokens of its call.
#include "rf/engine/schedule.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <list>
#include <numeric>
#include <random>
#include <stdexcept>
#include <thread>

#include "engine/model_directory.h"
#include "rf/engine/interrupt.h"

namespace rf::tests {
namespace {

using engine::Computation;
using engine::RequestCancelled;
using engine::RequestQueue;
using engine::Tokens;
using Rows = Computation::Rows;
using WhenFull = RequestQueue::WhenFull;

constexpr auto kLong = std::chrono::seconds(60);

std::vector<int64_t> offsets_of(const std::vector<int64_t>& lengths) {
  std::vector<int64_t> offsets{0};
  for (const int64_t length : lengths) offsets.push_back(offsets.back() + length);
  return offsets;
}

// A row per sequence or token: the sum of the sequence's ids.
void sum_ids(const Tokens& tokens, Rows rows, float* out) {
  for (size_t i = 1; i < tokens.offsets.size(); ++i) {
    const auto begin = tokens.ids.begin() + tokens.offsets[i - 1], end = tokens.ids.begin() + tokens.offsets[i];
    out = std::fill_n(out, rows == Rows::kTokens ? end - begin : 1, std::accumulate(begin, end, 0.0f));
  }
}

int64_t nonempty(const Tokens& tokens) {
  std::vector<int64_t> offsets(tokens.offsets.begin(), tokens.offsets.end());
  return std::unique(offsets.begin(), offsets.end()) - offsets.begin() - 1;
}

// A request with random ids, and what it must give.
struct Case {
  std::vector<int32_t> ids;
  std::vector<int64_t> offsets;
  std::vector<float> out, expected;

  Case(const std::vector<int64_t>& lengths, uint32_t seed, Rows rows = Rows::kSequences)
      : offsets(offsets_of(lengths)) {
    std::minstd_rand random(seed + 1);
    for (int64_t i = 0; i < offsets.back(); ++i) ids.push_back(static_cast<int32_t>(random() % 1000));
    expected.resize(rows == Rows::kTokens ? ids.size() : lengths.size());
    sum_ids(tokens(), rows, expected.data());
    out.assign(expected.size(), -1);
  }
  Tokens tokens() const { return {.ids = ids, .offsets = offsets}; }
};

// Submits, and gives the end of the request.
std::future<int64_t> submit(RequestQueue& queue, const Computation& computation, Case& given,
                            std::optional<uint64_t>* number = nullptr) {
  auto end = std::make_shared<std::promise<int64_t>>();
  std::future<int64_t> result = end->get_future();
  const auto tell = [end, sequences = std::ssize(given.offsets) - 1](int64_t done, const std::exception_ptr& error) {
    if (error) {
      end->set_exception(error);
    } else if (done == sequences) {
      end->set_value(done);
    }
  };
  const auto submitted = queue.submit(computation, given.tokens(), given.out.data(), tell);
  if (number != nullptr) *number = submitted;
  return result;
}

// A computation that the test lets go on; it notes what it gets.
struct Gate {
  std::promise<void> entered, opened;
  std::atomic<int> calls = 0;
  std::vector<std::vector<int64_t>> batches;  // lengths
  Computation computation{.run =
                              [this, open = opened.get_future().share()](const Tokens& tokens, float* out) {
                                if (calls++ == 0) entered.set_value();
                                open.wait();
                                std::vector<int64_t>& batch = batches.emplace_back();
                                for (size_t i = 1; i < tokens.offsets.size(); ++i)
                                  batch.push_back(tokens.offsets[i] - tokens.offsets[i - 1]);
                                sum_ids(tokens, Rows::kSequences, out);
                              },
                          .columns = 1};
};

TEST(Schedule, BatchesCoverAllInOrderWithinTheBudget) {
  std::minstd_rand random(3);
  for (const int64_t budget : {1, 7, 24, 1000}) {
    std::vector<int64_t> lengths;
    for (int i = 0; i < 200; ++i) lengths.push_back(static_cast<int64_t>(random() % 30));
    const std::vector<int64_t> offsets = offsets_of(lengths);
    int64_t next = 0, left = 0;
    engine::for_batches(offsets, budget, [&](int64_t first, int64_t count) {
      ASSERT_EQ(first, next);
      ASSERT_GE(count, 1);
      const int64_t tokens = offsets[first + count] - offsets[first];
      const int64_t before_last = offsets[first + count - 1] - offsets[first];
      EXPECT_TRUE(tokens <= budget || before_last == 0) << "budget " << budget << " at " << first;
      EXPECT_TRUE(first == 0 || left + lengths[first] > budget) << "the batch before " << first << " had room";
      next = first + count;
      left = tokens;
    });
    EXPECT_EQ(next, std::ssize(lengths));
  }
  engine::for_batches(std::vector<int64_t>{0}, 5, [](int64_t, int64_t) { FAIL() << "a batch of nothing"; });
}

TEST(Schedule, SliceKeepsAllFields) {
  const Batch batch = batch_of({3, 1, 4});
  const std::vector<uint8_t> attend(8, 1), pooled{0, 1, 1, 0, 1, 1, 1, 0};
  const std::vector<int64_t> positions{5, 6, 7, 0, 2, 3, 4, 5};
  Tokens all = batch.tokens();
  all.attend = attend;
  all.pooled = pooled;
  all.positions = positions;
  std::vector<int64_t> offsets;
  const Tokens part = engine::slice(all, 1, 2, offsets);
  EXPECT_EQ(offsets, (std::vector<int64_t>{0, 1, 5}));
  EXPECT_TRUE(std::ranges::equal(part.ids, std::span(batch.ids).subspan(3)));
  EXPECT_TRUE(std::ranges::equal(part.types, std::span(batch.types).subspan(3)));
  EXPECT_TRUE(std::ranges::equal(part.pooled, std::span(pooled).subspan(3)));
  EXPECT_TRUE(std::ranges::equal(part.positions, std::span(positions).subspan(3)));
  EXPECT_EQ(part.attend.size(), 5U);
  EXPECT_TRUE(engine::slice(batch.tokens(), 0, 1, offsets).attend.empty());
}

TEST(Schedule, EqualSequencesAreComputedOnce) {
  const std::vector<std::vector<int32_t>> ids = {{1, 2}, {3}, {1, 2}, {1, 2}, {3}, {1, 2, 3}};
  const std::vector<std::vector<uint8_t>> types = {{0, 0}, {0}, {0, 0}, {0, 1}, {0}, {0, 0, 0}};
  engine::DistinctSequences sequences;
  for (size_t i = 0; i < ids.size(); ++i) sequences.add(ids[i], types[i]);
  EXPECT_TRUE(std::ranges::equal(sequences.tokens().offsets, std::vector<int64_t>{0, 2, 3, 5, 8}));
  for (const Rows rows : {Rows::kSequences, Rows::kTokens}) {
    int calls = 0;
    // Rows by where they were computed, which tells equal ones from others.
    const std::vector<float> out = sequences.compute({.run =
                                                          [&](const Tokens& tokens, float* to) {
                                                            ++calls;
                                                            const size_t count = rows == Rows::kTokens ? 8 : 4;
                                                            EXPECT_EQ(tokens.ids.size(), 8U);
                                                            for (size_t i = 0; i < 2 * count; ++i)
                                                              to[i] = static_cast<float>(i);
                                                          },
                                                      .columns = 2,
                                                      .rows = rows});
    EXPECT_EQ(calls, 1);
    std::vector<float> expected = {0, 1, 2, 3, 0, 1, 4, 5, 2, 3, 6, 7};
    if (rows == Rows::kTokens) expected = {0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 6, 7, 8, 9, 4, 5, 10, 11, 12, 13, 14, 15};
    EXPECT_EQ(out, expected);
  }
}

TEST(Schedule, SequencesThatDifferInAFieldAreDistinct) {
  const std::vector<int32_t> ids = {4, 5, 4, 5, 4, 5}, types = {0, 0, 0, 1, 0, 0};
  const std::vector<int64_t> offsets = {0, 2, 4, 6};
  const std::vector<uint8_t> pooled = {1, 1, 1, 1, 0, 1}, all(6, 1);
  engine::DistinctSequences sequences;
  sequences.add(Tokens{.ids = ids, .offsets = offsets, .types = types, .pooled = pooled});
  EXPECT_EQ(sequences.tokens().ids.size(), 6U);
  EXPECT_TRUE(std::ranges::equal(sequences.tokens().types, types));
  EXPECT_TRUE(std::ranges::equal(sequences.tokens().pooled, pooled));
  sequences.add({.ids = ids, .offsets = offsets});  // no types: 0; pooled: all
  EXPECT_EQ(sequences.tokens().ids.size(), 6U);
  engine::DistinctSequences plain;
  plain.add({.ids = ids, .offsets = offsets, .pooled = all});
  EXPECT_TRUE(plain.tokens().types.empty() && plain.tokens().pooled.empty());
}

TEST(RequestQueue, SeveralThreadsGetTheirOwnRows) {
  std::atomic<int64_t> calls = 0;
  const auto counted = [&calls](Rows rows) {
    return Computation{.run =
                           [&calls, rows](const Tokens& tokens, float* out) {
                             ++calls;
                             EXPECT_TRUE(tokens.ids.size() <= 50 || nonempty(tokens) == 1) << tokens.ids.size();
                             sum_ids(tokens, rows, out);
                           },
                       .columns = 1,
                       .rows = rows};
  };
  const Computation kinds[] = {counted(Rows::kSequences), counted(Rows::kTokens)};
  RequestQueue queue({.token_budget = 50, .max_tokens = 200});
  std::vector<std::thread> threads;
  for (uint32_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      std::minstd_rand random(thread + 1);
      for (uint32_t i = 0; i < 60; ++i) {
        std::vector<int64_t> lengths(random() % 12);
        for (int64_t& length : lengths) length = static_cast<int64_t>(random() % (i % 10 == 0 ? 90 : 9));
        const Computation& kind = kinds[random() % 2];
        Case given(lengths, thread * 100 + i, kind.rows);
        EXPECT_EQ(submit(queue, kind, given).get(), std::ssize(lengths));
        EXPECT_EQ(given.out, given.expected);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(calls, 0);
}

TEST(RequestQueue, WaitingRequestsShareBatches) {
  Gate gate;
  Case first({1}, 0), large({6, 6, 6, 6}, 1), small({2, 2}, 2), beyond({30}, 3);
  RequestQueue queue({.token_budget = 16});
  std::vector<std::future<int64_t>> ends;
  ends.push_back(submit(queue, gate.computation, first));
  gate.entered.get_future().wait();
  for (Case* each : {&large, &small, &beyond}) ends.push_back(submit(queue, gate.computation, *each));
  gate.opened.set_value();
  for (std::future<int64_t>& end : ends) end.get();
  for (const Case* each : {&first, &large, &small, &beyond}) EXPECT_EQ(each->out, each->expected);
  // The short request is done with the first batch after it came; the one beyond the budget is alone.
  EXPECT_EQ(gate.batches, (std::vector<std::vector<int64_t>>{{1}, {6, 6, 2, 2}, {30}, {6, 6}}));
}

TEST(RequestQueue, RequestsInTheGivenOrder) {
  Gate gate;
  Case first({1}, 0), large({6, 6, 6, 6}, 1), small({2, 2, 5}, 2);
  RequestQueue queue({.token_budget = 16, .order = RequestQueue::Options::Order::kGiven});
  std::vector<std::future<int64_t>> ends;
  ends.push_back(submit(queue, gate.computation, first));
  gate.entered.get_future().wait();
  for (Case* each : {&large, &small}) ends.push_back(submit(queue, gate.computation, *each));
  gate.opened.set_value();
  for (std::future<int64_t>& end : ends) end.get();
  for (const Case* each : {&first, &large, &small}) EXPECT_EQ(each->out, each->expected);
  EXPECT_EQ(gate.batches, (std::vector<std::vector<int64_t>>{{1}, {6, 6}, {6, 6, 2, 2}, {5}}));
}

TEST(RequestQueue, AnErrorReachesItsCallerOnly) {
  Gate gate;
  const auto sum = gate.computation.run;
  gate.computation.run = [&](const Tokens& tokens, float* out) {
    if (std::ranges::count(tokens.ids, -7) > 0) throw std::domain_error("an id of -7");
    sum(tokens, out);
  };
  Case first({1}, 0), good({3, 2}, 1), bad({2, 2}, 2), other({1, 4}, 3);
  bad.ids.back() = -7;
  RequestQueue queue({.token_budget = 100});
  std::future<int64_t> end_of_first = submit(queue, gate.computation, first);
  gate.entered.get_future().wait();
  std::future<int64_t> end = submit(queue, gate.computation, good), end_of_bad = submit(queue, gate.computation, bad),
                       end_of_other = submit(queue, gate.computation, other);
  gate.opened.set_value();
  EXPECT_EQ(end.get(), 2);
  EXPECT_EQ(end_of_other.get(), 2);
  EXPECT_THROW(end_of_bad.get(), std::domain_error);
  EXPECT_EQ(good.out, good.expected);
  EXPECT_EQ(other.out, other.expected);
  good.offsets[1] = 9;
  testing::expect_error([&] { submit(queue, gate.computation, good); }, {"[input]", "at least 0 tokens, got -4"});
}

TEST(RequestQueue, AFullQueueRefusesOrWaits) {
  Gate gate;
  Case first({8}, 0), second({2}, 1), third({3}, 2);
  RequestQueue queue({.token_budget = 4, .max_tokens = 10});
  std::future<int64_t> end = submit(queue, gate.computation, first);
  gate.entered.get_future().wait();
  std::future<int64_t> end_of_second = submit(queue, gate.computation, second);
  const auto never = [](int64_t, const std::exception_ptr&) { FAIL() << "of a refused request"; };
  EXPECT_FALSE(queue.submit(gate.computation, third.tokens(), third.out.data(), never, WhenFull::kRefuse));
  std::thread waits([&] { EXPECT_EQ(submit(queue, gate.computation, third).get(), 1); });
  gate.opened.set_value();
  waits.join();
  EXPECT_EQ(third.out, third.expected);
  end.get();
  end_of_second.get();
}

TEST(RequestQueue, ALongRequestIsNotOvertakenWhileItWaits) {
  Gate gate;
  Case first({4}, 0), second({4}, 1), late({8}, 2);
  RequestQueue queue({.token_budget = 4, .max_tokens = 9});
  std::future<int64_t> end = submit(queue, gate.computation, first);
  gate.entered.get_future().wait();
  std::future<int64_t> end_of_second = submit(queue, gate.computation, second);
  std::thread waits([&] { EXPECT_EQ(submit(queue, gate.computation, late).get(), 1); });
  const auto any = [](int64_t, const std::exception_ptr&) {};
  const auto limit = std::chrono::steady_clock::now() + kLong;
  std::list<Case> taken;  // until the long one waits
  while (std::chrono::steady_clock::now() < limit) {
    Case& next = taken.emplace_back(std::vector<int64_t>{0}, 3);
    if (!queue.submit(gate.computation, next.tokens(), next.out.data(), any, WhenFull::kRefuse)) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_LT(std::chrono::steady_clock::now(), limit);
  gate.opened.set_value();
  waits.join();
  EXPECT_EQ(late.out, late.expected);
  end.get();
  end_of_second.get();
}

// A computation that only an interruption ends, as a model asks before each layer.
struct Endless {
  std::promise<void> entered;
  Computation computation{.run =
                              [this](const Tokens&, float*) {
                                entered.set_value();
                                const auto limit = std::chrono::steady_clock::now() + kLong;
                                while (std::chrono::steady_clock::now() < limit) engine::check_interrupt();
                              },
                          .columns = 1};
};

// A sequence of 1,000 tokens has so many layers, each of 2 ms; others take no time.
struct Layered {
  static constexpr int kLayers = 40;
  std::promise<void> entered;
  std::vector<int64_t> finished;  // lengths, in order
  Computation computation{.run =
                              [this](const Tokens& tokens, float* out) {
                                const bool is_long = tokens.ids.size() >= 1000;
                                if (is_long && finished.empty()) entered.set_value();
                                for (int layer = 0; is_long && layer < kLayers; ++layer) {
                                  engine::check_interrupt();
                                  std::this_thread::sleep_for(std::chrono::milliseconds(2));
                                }
                                finished.push_back(std::ssize(tokens.ids));
                                sum_ids(tokens, Rows::kSequences, out);
                              },
                          .columns = 1};
};

TEST(RequestQueue, ALongSequenceIsPausedForShortOnes) {
  Layered layered;
  Layered other;
  Case first({1000}, 0), second({1000}, 1), small({2, 3}, 2), of_other({4}, 3);
  RequestQueue queue({.batch_s = 0.01});
  std::optional<uint64_t> number;
  std::future<int64_t> end = submit(queue, layered.computation, first, &number);
  layered.entered.get_future().wait();
  std::future<int64_t> end_of_second = submit(queue, layered.computation, second),
                       end_of_small = submit(queue, layered.computation, small),
                       end_of_other = submit(queue, other.computation, of_other);
  EXPECT_EQ(end_of_small.get(), 2);
  EXPECT_EQ(end_of_other.get(), 1);
  EXPECT_EQ(end.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  queue.cancel(*number);  // of the batch that was paused
  EXPECT_THROW(end.get(), RequestCancelled);
  end_of_second.get();
  EXPECT_EQ(layered.finished, (std::vector<int64_t>{5, 1000}));
  for (const Case* each : {&second, &small, &of_other}) EXPECT_EQ(each->out, each->expected);
}

TEST(RequestQueue, ComputationsTakeTurns) {
  Gate gate;
  Case first({1}, 0);
  std::vector<int> turns;
  const auto noted = [&turns](int kind, const void* turn) {
    return Computation{.run =
                           [&turns, kind](const Tokens& tokens, float* out) {
                             turns.push_back(kind);
                             sum_ids(tokens, Rows::kSequences, out);
                           },
                       .columns = 1,
                       .turn = turn};
  };
  const Computation one = noted(1, nullptr);
  const int together = 0;
  const Computation others[] = {noted(2, &together), noted(3, &together)};
  std::list<Case> cases;
  RequestQueue queue({.token_budget = 4});
  std::vector<std::future<int64_t>> ends;
  ends.push_back(submit(queue, gate.computation, first));
  gate.entered.get_future().wait();
  for (uint32_t i = 0; i < 3; ++i)
    ends.push_back(submit(queue, one, cases.emplace_back(std::vector<int64_t>{4, 4}, i)));
  for (const Computation& each : others)
    ends.push_back(submit(queue, each, cases.emplace_back(std::vector<int64_t>{4, 4}, 9)));
  gate.opened.set_value();
  for (std::future<int64_t>& end : ends) end.get();
  EXPECT_EQ(turns, (std::vector<int>{1, 2, 1, 3, 1, 2, 1, 3, 1, 1}));
}

// Computations that run together note how many each call of theirs has.
struct Joined : Computation {
  static inline std::vector<size_t> calls{};
  explicit Joined(const void* of) {
    turn = of;
    run_together = [](std::span<const Computation* const> all) {
      calls.push_back(all.size());
      for (const Computation* each : all) ++static_cast<const Joined*>(each)->runs;
    };
  }
  mutable int runs = 0;
};

TEST(RequestQueue, ComputationsOfATurnRunTogether) {
  Gate gate;
  Case first({1}, 0), one({1}, 1), long_one({7}, 2), of_other({1}, 3);
  const int turn = 0, other = 0;
  const Joined joined[] = {Joined(&turn), Joined(&turn), Joined(&turn)}, alone(&other);
  Joined::calls.clear();
  RequestQueue queue({.token_budget = 8});
  std::vector<std::future<int64_t>> ends;
  ends.push_back(submit(queue, gate.computation, first));
  gate.entered.get_future().wait();
  ends.push_back(submit(queue, joined[0], one));
  ends.push_back(submit(queue, alone, of_other));
  ends.push_back(submit(queue, joined[1], long_one));
  std::optional<uint64_t> number;
  std::future<int64_t> cancelled = submit(queue, joined[2], one, &number);
  queue.cancel(*number);
  gate.opened.set_value();
  for (std::future<int64_t>& end : ends) end.get();
  EXPECT_THROW(cancelled.get(), RequestCancelled);
  EXPECT_EQ(Joined::calls, (std::vector<size_t>{2, 1}));
  EXPECT_EQ(joined[0].runs, 1);
  EXPECT_EQ(joined[1].runs, 1);
  EXPECT_EQ(joined[2].runs, 0);
  EXPECT_EQ(alone.runs, 1);
}

// The first to come back for its next step does not run without the others.
TEST(RequestQueue, RequestsThatRanTogetherAreAwaited) {
  const int turn = 0;
  Joined::calls.clear();
  struct Slow : Computation {
    explicit Slow(const void* of) {
      turn = of;
      run_together = [](std::span<const Computation* const> all) {
        std::this_thread::sleep_for(std::chrono::seconds(1));
        Joined::calls.push_back(all.size());
      };
    }
  };
  const Slow slow[] = {Slow(&turn), Slow(&turn)};
  Gate gate;
  Case first({1}, 0), one({1}, 1);
  RequestQueue queue({});
  std::future<int64_t> begin = submit(queue, gate.computation, first);
  gate.entered.get_future().wait();
  std::vector<std::future<int64_t>> ends;
  for (int step = 0; step < 2; ++step) {
    for (const Slow& each : slow) {
      ends.push_back(submit(queue, each, one));
      if (step > 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    if (step == 0) gate.opened.set_value();
    for (std::future<int64_t>& end : ends) end.get();
    ends.clear();
  }
  begin.get();
  EXPECT_EQ(Joined::calls, (std::vector<size_t>{2, 2}));
}

TEST(RequestQueue, CancelledRequestsEndAtOnce) {
  Endless endless;
  Gate gate;
  gate.opened.set_value();
  Case running({3}, 0), waiting({2}, 1), other({2}, 2);
  RequestQueue queue({});
  std::optional<uint64_t> number, number_of_waiting;
  std::future<int64_t> end = submit(queue, endless.computation, running, &number);
  endless.entered.get_future().wait();
  std::future<int64_t> end_of_waiting = submit(queue, gate.computation, waiting, &number_of_waiting),
                       end_of_other = submit(queue, gate.computation, other);
  queue.cancel(*number_of_waiting);
  EXPECT_EQ(end_of_other.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  queue.cancel(*number);
  EXPECT_THROW(end.get(), RequestCancelled);
  EXPECT_THROW(end_of_waiting.get(), RequestCancelled);
  EXPECT_EQ(end_of_other.get(), 1);
  EXPECT_EQ(other.out, other.expected);
  EXPECT_EQ(gate.calls, 1);
}

TEST(RequestQueue, DestructionEndsAllRequests) {
  Endless endless;
  Gate gate;
  Case running({3}, 0), waiting({2}, 1);
  std::future<int64_t> end, end_of_waiting;
  {
    RequestQueue queue({});
    end = submit(queue, endless.computation, running);
    endless.entered.get_future().wait();
    end_of_waiting = submit(queue, gate.computation, waiting);
  }
  EXPECT_THROW(end.get(), RequestCancelled);
  EXPECT_THROW(end_of_waiting.get(), RequestCancelled);
  EXPECT_EQ(gate.calls, 0);
  RequestQueue stopped({});
  stopped.stop();
  EXPECT_THROW(submit(stopped, gate.computation, waiting), RequestCancelled);
}

TEST(RequestQueue, ProgressTellsWhatIsInPlace) {
  Gate gate;
  gate.opened.set_value();
  Case given({3, 3, 3, 3, 3}, 0);
  std::vector<int64_t> told;
  std::promise<void> end;
  RequestQueue queue({.token_budget = 6});
  queue.submit(gate.computation, given.tokens(), given.out.data(), [&](int64_t done, const std::exception_ptr&) {
    for (int64_t i = 0; i < done; ++i) EXPECT_EQ(given.out[i], given.expected[i]);
    told.push_back(done);
    if (done == 5) end.set_value();
  });
  end.get_future().wait();
  EXPECT_EQ(told, (std::vector<int64_t>{2, 4, 5}));
}

// Requests of a model: the same bits as alone.
TEST(RequestQueue, ResultsOfAModelKeepTheirBits) {
  const ModelDirectory directory(small_config("roformer", "RoFormerForSequenceClassification"));
  const engine::Model model(directory.path());
  const Computation logits = engine::logits_of(model);
  const Batch batches[] = {batch_of({16, 3}), batch_of({5, 1, 9}), batch_of({7})};
  RequestQueue queue({.token_budget = 20});
  std::vector<std::vector<float>> joined(3), alone(3);
  std::vector<std::promise<void>> ends(3);
  for (size_t i = 0; i < 3; ++i) {
    const Tokens tokens = batches[i].tokens();
    joined[i].resize(static_cast<size_t>(logits.rows_of(tokens) * logits.columns));
    alone[i].resize(joined[i].size());
    model.logits(tokens, alone[i].data());
    queue.submit(logits, tokens, joined[i].data(), [&, i](int64_t done, const std::exception_ptr& error) {
      EXPECT_EQ(error, nullptr);
      if (done == std::ssize(batches[i].offsets) - 1) ends[i].set_value();
    });
  }
  for (std::promise<void>& end : ends) end.get_future().wait();
  EXPECT_EQ(joined, alone);
}

}  // namespace
}  // namespace rf::tests
