// Splits logits of several examples by example (rf/tasks/task.h).
#include "rf/tasks/task.h"

#include <algorithm>

namespace rf::tasks {

namespace {

// Calls visit(example, its logits) for each in order.
template <typename Visit>
void for_each_example(const Task& task, std::span<const Example* const> examples, const Logits& logits,
                      const Visit& visit) {
  const bool of_tokens = reads_tokens(task.head());
  size_t begin = 0;
  for (const Example* example : examples) {
    const int64_t lines = of_tokens ? example->tokens() : std::ssize(example->rows);
    const auto count = static_cast<size_t>(lines * logits.columns);
    visit(*example, Logits{logits.values.subspan(begin, count), logits.columns});
    begin += count;
  }
}

}  // namespace

int64_t Example::longest_row() const {
  size_t longest = 0;
  for (const TokenRow& row : rows) longest = std::max(longest, row.ids.size());
  return static_cast<int64_t>(longest);
}

int64_t Example::tokens() const {
  size_t tokens = 0;
  for (const TokenRow& row : rows) tokens += row.ids.size();
  return static_cast<int64_t>(tokens);
}

Scores Logits::line(size_t i) const {
  const auto line = values.subspan(index(i, 0), static_cast<size_t>(columns));
  return {line.begin(), line.end()};
}

bool is_head_of_task(Head head) {
  return head == Head::kSequenceClassification || head == Head::kTokenClassification ||
         head == Head::kQuestionAnswering || head == Head::kMultipleChoice;
}

std::vector<Scores> scores_of(const Task& task, std::span<const Example* const> examples, const Logits& logits) {
  std::vector<Scores> scores;
  for_each_example(task, examples, logits, [&](const Example& example, const Logits& of_example) {
    scores.push_back(task.scores(example, of_example));
  });
  return scores;
}

Loss loss_of(const Task& task, std::span<const Example* const> examples, const Logits& logits, double label_smoothing) {
  Loss all;
  for_each_example(task, examples, logits, [&](const Example& example, const Logits& of_example) {
    const Loss loss = task.loss(example, of_example, label_smoothing);
    all.sum += loss.sum;
    all.sum_of_example.push_back(loss.sum);
    all.terms += loss.terms;
    all.gradient.insert(all.gradient.end(), loss.gradient.begin(), loss.gradient.end());
  });
  return all;
}

}  // namespace rf::tasks
