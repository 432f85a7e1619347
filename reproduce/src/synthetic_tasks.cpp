// Rows of the synthetic tasks (synthetic_tasks.h).
#include "synthetic_tasks.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <numeric>
#include <stdexcept>

#include "rf/data/random.h"

namespace rf::reproduce {

namespace {

using Answer = SyntheticTask::Answer;

constexpr int64_t kFirstSymbol = 1, kFirstHeader = kFirstSymbol + kAlphabet;
constexpr uint64_t kHeldOutSeed = 0;  // seeds of runs are above
constexpr int64_t kHeldOutStep = 0;   // as are their steps

// Whole numbers that belong to a row of a step.
class RowDraws {
 public:
  RowDraws(uint64_t seed, int64_t step, int64_t row) : seed_(seed), step_(step), row_(row) {}
  // 0 <= number < n
  int64_t below(int64_t n) {
    if (used_ == block_.size()) {
      block_ = data::draw(seed_, data::Stream::kSyntheticRows, blocks_++, step_, row_);
      used_ = 0;
    }
    return data::scale_to(block_[used_++], n);
  }

 private:
  uint64_t seed_;
  int64_t step_, row_;
  uint32_t blocks_ = 0;
  data::PhiloxBlock block_ = {};
  size_t used_ = block_.size();
};

struct Row {
  std::vector<int64_t> ids, labels;
};

Row copy_row(const SyntheticTask& task, RowDraws& draws, int64_t tokens) {
  Row row{.ids = std::vector<int64_t>(static_cast<size_t>(tokens)),
          .labels = std::vector<int64_t>(static_cast<size_t>(tokens), train::LabelledRows::kNoLabel)};
  const int64_t which = draws.below(std::ssize(task.offsets));
  const int64_t offset = task.offsets[static_cast<size_t>(which)];
  row.ids[0] = kFirstHeader + which;
  for (int64_t i = 1; i < tokens; ++i) {
    row.ids[static_cast<size_t>(i)] = kFirstSymbol + draws.below(kAlphabet);
    if (i > offset) row.labels[static_cast<size_t>(i)] = row.ids[static_cast<size_t>(i - offset)];
  }
  return row;
}

// kPlaces of the places 1 to tokens - 1, rising: the first of a shuffle.
std::vector<int64_t> drawn_places(RowDraws& draws, int64_t tokens) {
  std::vector<int64_t> places(static_cast<size_t>(tokens - 1));
  std::iota(places.begin(), places.end(), 1);
  for (int64_t i = 0; i < kPlaces; ++i) {
    std::swap(places[static_cast<size_t>(i)], places[static_cast<size_t>(i + draws.below(tokens - 1 - i))]);
  }
  places.resize(kPlaces);
  std::sort(places.begin(), places.end());
  return places;
}

Row letters_row(const SyntheticTask& task, RowDraws& draws, int64_t tokens) {
  Row row{.ids = {kFirstHeader}, .labels = std::vector<int64_t>(static_cast<size_t>(tokens), -1)};
  const std::vector<int64_t> places = drawn_places(draws, tokens);
  for (int64_t i = 1; i < tokens; ++i) {
    row.ids.push_back(kFirstSymbol + task.letters + draws.below(kAlphabet - task.letters));
  }
  std::array<int64_t, kAlphabet> seen = {};
  for (const int64_t place : places) {
    const int64_t letter = draws.below(task.letters);
    row.ids[static_cast<size_t>(place)] = kFirstSymbol + letter;
    const int64_t before = seen[static_cast<size_t>(letter)]++;
    const int64_t answer = task.answer == Answer::kIsFirst ? int64_t{before == 0} : std::min(before, kMaxCount);
    row.labels[static_cast<size_t>(place)] = kFirstSymbol + answer;
  }
  return row;
}

}  // namespace

void to_json(nlohmann::json& json, const SyntheticTask& task) {
  json = {{"name", task.name}};
  if (task.answer == Answer::kCopy) {
    json["offsets"] = task.offsets;
    return;
  }
  json["letters"] = task.letters;
  json["places"] = kPlaces;
}

const std::vector<SyntheticTask>& synthetic_tasks() {
  static const std::vector<SyntheticTask> kTasks = {
      {.name = "copy back", .answer = Answer::kCopy, .offsets = {1, 2, 4, 8, 16}},
      {.name = "first occurrence", .answer = Answer::kIsFirst, .letters = 16},
      {.name = "count", .answer = Answer::kCount, .letters = 8}};
  return kTasks;
}

int64_t vocabulary_size(const SyntheticTask& task) {
  return kFirstHeader + std::max<int64_t>(1, std::ssize(task.offsets));
}

train::LabelledRows synthetic_rows(const SyntheticTask& task, uint64_t seed, int64_t step, int64_t rows,
                                   int64_t tokens) {
  const int64_t longest = task.offsets.empty() ? 0 : task.offsets.back();
  if (tokens <= std::max(kPlaces, longest)) throw std::logic_error("rows of a synthetic task are too short");
  train::LabelledRows made{.rows = rows, .tokens = tokens, .ids = {}, .labels = {}};
  for (int64_t i = 0; i < rows; ++i) {
    RowDraws draws(seed, step, i);
    const Row row = task.answer == Answer::kCopy ? copy_row(task, draws, tokens) : letters_row(task, draws, tokens);
    made.ids.insert(made.ids.end(), row.ids.begin(), row.ids.end());
    made.labels.insert(made.labels.end(), row.labels.begin(), row.labels.end());
  }
  return made;
}

train::LabelledRows held_out_synthetic_rows(const SyntheticTask& task, int64_t rows, int64_t tokens) {
  train::LabelledRows made = synthetic_rows(task, kHeldOutSeed, kHeldOutStep, rows, tokens);
  for (int64_t i = 0; i < rows * tokens; ++i) {
    if (i % tokens < tokens / 2) made.labels[static_cast<size_t>(i)] = train::LabelledRows::kNoLabel;
  }
  return made;
}

}  // namespace rf::reproduce
