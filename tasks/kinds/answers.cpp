// Extracts the part of a context that answers a question (SQuAD), as in transformers' run_qa. Rows are [CLS] question
// [SEP] window of the context [SEP]. The loss is the mean of the cross-entropies of first and last token, which are
// [CLS] in a window without the whole answer (unlike run_qa, padding is not among the choices). Of the pairs of the 20
// best first and last tokens, the pairs with the best sums are kept. Scores: [null score], then (first byte, last byte
// + 1, score) for each candidate, best first. Targets: first and last token in each row.
#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "classes.h"
#include "input_rows.h"
#include "losses.h"
#include "rf/io/error.h"
#include "rf/io/printable.h"
#include "rf/io/utf8.h"
#include "rf/tasks/metrics.h"

namespace rf::tasks {

namespace {

constexpr size_t kBest = 20;             // number of first and last tokens tried, and of candidates kept
constexpr size_t kMaxAnswerTokens = 30;  // of an answer
constexpr int64_t kClsPosition = 0;      // means "no answer in this row"
constexpr std::array<int32_t, 2> kNoSpan = {-1, -1};

// The byte at which a character begins, counted in code points; the size of the text for one past the last.
std::optional<size_t> byte_of_character(const std::string& text, int64_t character) {
  int64_t seen = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (begins_character(text[i]) && seen++ == character) return i;
  }
  return character == seen ? std::optional(text.size()) : std::nullopt;
}

struct Answer {
  std::string text;
  size_t begin, end;  // bytes of the context
};

// SQuAD's {"text": [..], "answer_start": [..]}, or a text with its start in another column; starts are in code points.
// Empty without an answer.
std::vector<Answer> answers_of(const data::Record& record, const TaskSettings& settings, const std::string& context) {
  const std::string &column = settings.columns.at("answers"), &start_column = settings.columns.at("start");
  const nlohmann::json& value = record.at(column);
  nlohmann::json texts, starts;
  if (value.is_object()) {
    texts = value.value("text", nlohmann::json());
    starts = value.value("answer_start", nlohmann::json());
  } else if (const std::string text = record.text(column); !text.empty()) {
    texts = {text};
    starts = nlohmann::json::array({record.number(start_column)});
  } else {
    return {};
  }
  if (!texts.is_array() || !starts.is_array() || texts.size() != starts.size()) {
    fail("input", "{} must have lists text and answer_start of one size in {}, got {}", record.place(), column,
         io::shown(value));
  }
  std::vector<Answer> answers;
  for (size_t i = 0; i < texts.size(); ++i) {
    const double start = starts[i].is_number() ? starts[i].get<double>() : NAN;
    if (!texts[i].is_string() || !(std::abs(start) <= INT32_MAX) || std::trunc(start) != start) {
      fail("input", "{} must have texts and integers in {}, got {} and {}", record.place(), column, io::shown(texts[i]),
           starts[i].dump());
    }
    const auto text = texts[i].get<std::string>();
    const std::optional<size_t> begin = byte_of_character(context, static_cast<int64_t>(start));
    if (!begin || text.empty() || context.compare(*begin, text.size(), text) != 0) {
      fail("input", "{} must have its answer at character {} of the context, got {} where the context has {}",
           record.place(), starts[i].dump(), io::printable(text),
           begin ? io::printable(context.substr(*begin, text.size())) : "its end");
    }
    answers.push_back({text, *begin, *begin + text.size()});
  }
  return answers;
}

// First and last token of a row that cover the answer's bytes; both are kClsPosition if the row lacks any of its bytes.
std::array<int64_t, 2> span_in(std::span<const std::array<int32_t, 2>> places, const Answer& answer) {
  std::array<int64_t, 2> span = {-1, -1};
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i] == kNoSpan) continue;
    if (places[i][0] <= static_cast<int32_t>(answer.begin)) span[0] = static_cast<int64_t>(i);
    if (span[1] < 0 && places[i][1] >= static_cast<int32_t>(answer.end)) span[1] = static_cast<int64_t>(i);
  }
  const bool covers = span[0] >= 0 && span[1] >= span[0] &&
                      places[static_cast<size_t>(span[0])][1] > static_cast<int32_t>(answer.begin);
  return covers ? span : std::array{kClsPosition, kClsPosition};
}

struct Candidate {
  int32_t begin, end;
  double score;
};

// Indices of the greatest values, best first.
std::vector<size_t> best_of(std::span<const double> values) {
  std::vector<size_t> order(values.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  const size_t count = std::min(order.size(), kBest);
  std::partial_sort(order.begin(), order.begin() + static_cast<ptrdiff_t>(count), order.end(),
                    [&](size_t a, size_t b) { return values[a] != values[b] ? values[a] > values[b] : a < b; });
  order.resize(count);
  return order;
}

void add_candidates(std::span<const std::array<int32_t, 2>> places, std::span<const double> starts,
                    std::span<const double> ends, std::vector<Candidate>& candidates) {
  for (const size_t first : best_of(starts)) {
    for (const size_t last : best_of(ends)) {
      if (places[first] == kNoSpan || places[last] == kNoSpan || last < first || last - first + 1 > kMaxAnswerTokens)
        continue;
      candidates.push_back({places[first][0], places[last][1], starts[first] + ends[last]});
    }
  }
}

// Logits of first and last tokens: the columns of a row's lines.
constexpr std::array<size_t, 2> kEnds = {0, 1};

// The logits of one end of an answer, for the tokens of a row that starts at the given line.
Scores logits_of_end(const Logits& logits, size_t first, const TokenRow& row, size_t end) {
  Scores of_end;
  for (size_t i = 0; i < row.ids.size(); ++i) of_end.push_back(logits.values[logits.index(first + i, end)]);
  return of_end;
}

class Answers : public RowTask {
 public:
  Answers(const TaskSettings& settings, std::shared_ptr<const text::Tokenizer> tokenizer)
      : RowTask(with_windows(settings), std::move(tokenizer), text::Overflow::kRows) {
    if (settings.windows > 1) fail("task", "answers are always read in windows, got a limit of {}", settings.windows);
    if (settings.keep != Keep::kHead) fail("task", "answers go with keep head, got another");
  }

  Head head() const override { return Head::kQuestionAnswering; }
  void set_outputs(ModelConfig& config) const override { set_number_outputs(config, ModelConfig{}.num_labels, ""); }

  Example example(const data::Record& record, Targets targets) override {
    Example example;
    const std::string question = record.text(settings_.columns.at("question"));
    const std::string context = record.text(settings_.columns.at("context"));
    const std::span<const text::Row> rows = rows_.rows(record.place(), {question, context});
    add_input(rows, example);
    for (const text::Row& row : rows) {
      for (size_t i = 0; i < row.size(); ++i) {
        const bool is_context = row.text_index[i] == 1;
        example.places.push_back(is_context ? std::array{row.tokens.byte_begin[i], row.tokens.byte_end[i]} : kNoSpan);
      }
    }
    if (targets == Targets::kIgnored) return example;
    const std::vector<Answer> answers = answers_of(record, settings_, context);
    size_t first = 0;
    for (const text::Row& row : rows) {
      const auto places = std::span(example.places).subspan(first, row.size());
      const auto span = answers.empty() ? std::array{kClsPosition, kClsPosition} : span_in(places, answers.front());
      example.targets.insert(example.targets.end(), span.begin(), span.end());
      first += row.size();
    }
    return example;
  }

  // One term per row: the mean of the cross-entropies of both ends.
  Loss loss(const Example& example, const Logits& logits, double label_smoothing) const override {
    Loss loss{.terms = std::ssize(example.rows), .gradient = std::vector<double>(logits.values.size())};
    auto target = example.targets.begin();
    size_t first = 0;
    for (const TokenRow& row : example.rows) {
      for (const size_t end : kEnds) {
        const Scores of_end = logits_of_end(logits, first, row, end);
        const CrossEntropy cost = cross_entropy(of_end, static_cast<size_t>(*target++), label_smoothing);
        loss.sum += cost.value / 2;
        for (size_t i = 0; i < of_end.size(); ++i) loss.gradient[logits.index(first + i, end)] = cost.gradient[i] / 2;
      }
      first += row.ids.size();
    }
    return loss;
  }
  Scores scores(const Example& example, const Logits& logits) const override {
    double null_score = std::numeric_limits<double>::infinity();
    std::vector<Candidate> candidates;
    size_t first = 0;
    for (const TokenRow& row : example.rows) {
      const Scores starts = logits_of_end(logits, first, row, 0), ends = logits_of_end(logits, first, row, 1);
      null_score = std::min(null_score, starts[kClsPosition] + ends[kClsPosition]);
      add_candidates(std::span(example.places).subspan(first, row.ids.size()), starts, ends, candidates);
      first += row.ids.size();
    }
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const Candidate& a, const Candidate& b) { return a.score > b.score; });
    Scores scores = {null_score};
    std::set<std::array<int32_t, 2>> seen;  // two windows may contain the same part
    for (const Candidate& candidate : candidates) {
      if (seen.size() == kBest || !seen.insert({candidate.begin, candidate.end}).second) continue;
      scores.insert(scores.end(),
                    {static_cast<double>(candidate.begin), static_cast<double>(candidate.end), candidate.score});
    }
    return scores;
  }

  nlohmann::json prediction(const data::Record& record, const Scores& scores) const override {
    const std::string context = record.text(settings_.columns.at("context"));
    nlohmann::json candidates = nlohmann::json::array();
    for (size_t i = 1; i < scores.size(); i += 3) {
      const auto begin = static_cast<size_t>(scores[i]), end = static_cast<size_t>(scores[i + 1]);
      candidates.push_back({{"answer", context.substr(begin, end - begin)},
                            {"start", count_characters(std::string_view(context).substr(0, begin))},
                            {"score", scores[i + 2]}});
    }
    const std::string answer = answer_text(record, scores);
    nlohmann::json json = {{"answer", answer}, {"candidates", candidates}};
    if (!answer.empty()) json["start"] = candidates[0]["start"];
    if (settings_.no_answer) json["no_answer_score"] = scores[0];
    return json;
  }

  nlohmann::json metrics(std::span<const Scored> scored) const override {
    double exact = 0, f1 = 0;
    for (const Scored& one : scored) {
      std::vector<std::string> gold;
      const std::string context = one.record->text(settings_.columns.at("context"));
      for (const Answer& answer : answers_of(*one.record, settings_, context)) gold.push_back(answer.text);
      const std::string predicted = answer_text(*one.record, one.scores);
      exact += answer_exact(gold, predicted);
      f1 += answer_f1(gold, predicted);
    }
    const auto count = static_cast<double>(scored.size());
    return {{"f1", number_or_null(f1 / count)}, {"exact_match", number_or_null(exact / count)}};
  }

  // No answer.
  std::vector<Scores> baseline(std::span<const Example>, std::span<const Example> examples) const override {
    return std::vector<Scores>(examples.size(), {0});
  }

 private:
  // The question is never truncated.
  static TaskSettings with_windows(TaskSettings settings) {
    settings.truncation = text::Truncation::kOnlySecond;
    return settings;
  }
  // "" means no answer.
  std::string answer_text(const data::Record& record, const Scores& scores) const {
    const bool is_null = scores.size() == 1 || (settings_.no_answer && scores[0] > scores[3]);
    if (is_null) return "";
    const auto begin = static_cast<size_t>(scores[1]);
    return record.text(settings_.columns.at("context")).substr(begin, static_cast<size_t>(scores[2]) - begin);
  }
};

void learn_no_answer(std::span<const data::Record> records, TaskSettings& settings) {
  settings.no_answer = std::any_of(records.begin(), records.end(), [&](const data::Record& record) {
    return answers_of(record, settings, record.text(settings.columns.at("context"))).empty();
  });
}

}  // namespace

TaskKind answers_kind() {
  using Use = TaskColumn::Use;
  return {"answers",
          "the part of a context that answers a question",
          {{"question", Use::kInput}, {"context", Use::kInput}, {"answers", Use::kTarget}, {"start", Use::kTarget}},
          {"f1", "exact_match"},
          learn_no_answer,
          make_task<Answers>};
}

}  // namespace rf::tasks
