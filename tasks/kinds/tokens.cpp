// A label for each word of a list: the first piece of a word has the label, as in transformers' examples for token
// classification. A text that is too long is read in windows, and each word in the window where it is furthest from an
// end. A word without tokens is left out of the loss, and gets the label O, or the first label if O is not a label.
// Scores: [words, labels]. Targets: a label for each word.
#include <algorithm>
#include <limits>

#include "classes.h"
#include "input_rows.h"
#include "losses.h"
#include "rf/io/error.h"
#include "rf/tasks/metrics.h"

namespace rf::tasks {

namespace {

// Whether labels are entities in the scheme IOB2.
bool are_entities(const std::vector<std::string>& labels) {
  const auto is_part = [](const std::string& label) { return label.starts_with("B-") || label.starts_with("I-"); };
  return std::any_of(labels.begin(), labels.end(), is_part) &&
         std::all_of(labels.begin(), labels.end(), [&](const auto& label) { return label == "O" || is_part(label); });
}

constexpr std::array<int32_t, 2> kNoPlace = {-1, -1};
constexpr size_t kNoLine = std::numeric_limits<size_t>::max();

class Tokens : public RowTask {
 public:
  Tokens(const TaskSettings& settings, std::shared_ptr<const text::Tokenizer> tokenizer)
      : RowTask(settings, std::move(tokenizer), text::Overflow::kRows),
        labels_(settings.labels, settings.ids_are_labels ? Labels::Ids::kTaken : Labels::Ids::kRefused) {
    check_labels(settings.labels, "tokens");
    if (settings.windows > 1) fail("task", "tokens are always read in windows, got a limit of {}", settings.windows);
    if (settings.keep == Keep::kHeadTail) fail("task", "tokens go with keep head or tail, got head-tail");
    without_piece_.assign(labels_.size(), 0);
    const auto outside = std::find(settings.labels.begin(), settings.labels.end(), "O");
    without_piece_[outside == settings.labels.end() ? 0 : static_cast<size_t>(outside - settings.labels.begin())] = 1;
  }

  Head head() const override { return Head::kTokenClassification; }
  void set_outputs(ModelConfig& config) const override {
    labels_.set_outputs(config);
    config.problem_type.clear();
  }

  Example example(const data::Record& record, Targets targets) override;
  // A term for each word that has a piece.
  Loss loss(const Example& example, const Logits& logits, double label_smoothing) const override {
    Loss loss{.gradient = std::vector<double>(logits.values.size())};
    const std::vector<size_t> lines = lines_of(example);
    for (size_t word = 0; word < lines.size(); ++word) {
      if (lines[word] == kNoLine) continue;
      const auto target = static_cast<size_t>(example.targets[word]);
      const CrossEntropy cost = cross_entropy(logits.line(lines[word]), target, label_smoothing);
      loss.sum += cost.value;
      ++loss.terms;
      std::copy(cost.gradient.begin(), cost.gradient.end(),
                loss.gradient.begin() + static_cast<ptrdiff_t>(logits.index(lines[word], 0)));
    }
    return loss;
  }
  Scores scores(const Example& example, const Logits& logits) const override {
    Scores scores;
    for (const size_t line : lines_of(example)) {
      const Scores of_word = line == kNoLine ? without_piece_ : logits.line(line);
      scores.insert(scores.end(), of_word.begin(), of_word.end());
    }
    return scores;
  }
  nlohmann::json prediction(const data::Record&, const Scores& scores) const override {
    return {{"labels", names_of(classes_of(scores))}};
  }
  nlohmann::json metrics(std::span<const Scored> scored) const override;
  std::vector<Scores> baseline(std::span<const Example> train, std::span<const Example> examples) const override {
    Scores counts(labels_.size(), 0);
    for (const Example& one : train) {
      for (const int64_t target : one.targets) ++counts[static_cast<size_t>(target)];
    }
    std::vector<Scores> scores(examples.size());
    for (size_t i = 0; i < examples.size(); ++i) {
      for (size_t word = 0; word < examples[i].places.size(); ++word) {
        scores[i].insert(scores[i].end(), counts.begin(), counts.end());
      }
    }
    return scores;
  }
  std::vector<std::vector<int64_t>> confusion(std::span<const Scored> scored) const override {
    std::vector<int64_t> gold, predicted;
    for (const Scored& one : scored) {
      const std::vector<int64_t> classes = classes_of(one.scores);
      gold.insert(gold.end(), one.example->targets.begin(), one.example->targets.end());
      predicted.insert(predicted.end(), classes.begin(), classes.end());
    }
    return confusion_matrix(gold, predicted, static_cast<int64_t>(labels_.size()));
  }

 private:
  // The line of each word's logits, kNoLine for a word without a piece.
  static std::vector<size_t> lines_of(const Example& example) {
    std::vector<size_t> first_lines = {0}, lines;
    for (const TokenRow& row : example.rows) first_lines.push_back(first_lines.back() + row.ids.size());
    for (const auto& [row, token] : example.places) {
      lines.push_back(row < 0 ? kNoLine : first_lines[static_cast<size_t>(row)] + static_cast<size_t>(token));
    }
    return lines;
  }
  std::vector<int64_t> classes_of(const Scores& scores) const {
    std::vector<int64_t> classes;
    for (size_t begin = 0; begin < scores.size(); begin += labels_.size()) {
      classes.push_back(static_cast<int64_t>(greatest(std::span(scores).subspan(begin, labels_.size()))));
    }
    return classes;
  }
  std::vector<std::string> names_of(const std::vector<int64_t>& classes) const {
    std::vector<std::string> names;
    for (const int64_t id : classes) names.push_back(labels_.name(static_cast<size_t>(id)));
    return names;
  }

  Labels labels_;
  Scores without_piece_;
};

// The words with one space between them.
struct Joined {
  explicit Joined(const std::vector<std::string>& given) : text(fmt::format("{}", fmt::join(given, " "))) {
    const char* begin = text.data();
    for (const std::string& word : given) {
      words.emplace_back(begin, word.size());
      begin += word.size() + 1;
    }
  }
  // The word that a token belongs to.
  size_t word_of(int32_t byte_begin) const {
    const auto after = std::ranges::upper_bound(words, text.data() + byte_begin, {}, &std::string_view::data);
    return static_cast<size_t>(after - words.begin()) - 1;
  }

  std::string text;
  std::vector<std::string_view> words;
};

// The row and position of each word's first piece, in the row where it is furthest from an end.
std::vector<std::array<int32_t, 2>> places_of(const Joined& joined, std::span<const text::Row> rows) {
  std::vector<std::array<int32_t, 2>> places(joined.words.size(), kNoPlace);
  std::vector<int32_t> margins(joined.words.size(), -1);
  for (size_t r = 0; r < rows.size(); ++r) {
    for (size_t i = 0; i < rows[r].size(); ++i) {
      if (rows[r].text_index[i] < 0 || rows[r].tokens.starts_word[i] == 0) continue;
      const size_t word = joined.word_of(rows[r].tokens.byte_begin[i]);
      const auto margin = static_cast<int32_t>(std::min(i, rows[r].size() - 1 - i));
      if (margin <= margins[word]) continue;
      margins[word] = margin;
      places[word] = {static_cast<int32_t>(r), static_cast<int32_t>(i)};
    }
  }
  return places;
}

Example Tokens::example(const data::Record& record, Targets targets) {
  Example example;
  const std::vector<std::string> words = strings_of(record, settings_.columns.at("tokens"), Items::kTexts);
  const Joined text(words);
  const std::span<const text::Row> rows = rows_.rows(record.place(), {text.text, {}, text.words});
  add_input(rows, example);
  example.places = places_of(text, rows);
  if (targets == Targets::kIgnored) return example;
  const std::string& column = settings_.columns.at("labels");
  for (const std::string& label : strings_of(record, column, Items::kLabels)) {
    example.targets.push_back(labels_.id(record.place(), label));
  }
  if (example.targets.size() != words.size()) {
    fail("input", "{} must have a label in {} for each of the {} tokens, got {}", record.place(), column, words.size(),
         example.targets.size());
  }
  return example;
}

nlohmann::json Tokens::metrics(std::span<const Scored> scored) const {
  const ClassMetrics words = class_metrics(confusion(scored));
  nlohmann::json json = {{"accuracy", number_or_null(words.accuracy)}, {"macro_f1", number_or_null(words.macro_f1)}};
  if (!are_entities(settings_.labels)) return json;
  std::vector<std::vector<std::string>> gold, predicted;
  for (const Scored& one : scored) {
    gold.push_back(names_of(one.example->targets));
    predicted.push_back(names_of(classes_of(one.scores)));
  }
  const SpanMetrics entities = entity_metrics(gold, predicted);
  json.update({{"precision", entities.precision}, {"recall", entities.recall}, {"f1", entities.f1}});
  return json;
}

}  // namespace

TaskKind tokens_kind() {
  using Use = TaskColumn::Use;
  return {"tokens",
          "a label for each of a list of words",
          {{"tokens", Use::kInput}, {"labels", Use::kTarget}},
          {"f1", "accuracy", "macro_f1"},
          learn_label_lists,
          make_task<Tokens>};
}

}  // namespace rf::tasks
