// roformer rerank: sorts records by their score for a query, from a cross-encoder or from the MaxSim of token vectors.
#include <algorithm>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "command.h"
#include "command_line.h"
#include "embedder_options.h"
#include "read_options.h"
#include "rf/data/read_progress.h"
#include "rf/data/records.h"
#include "rf/engine/embedder.h"
#include "rf/io/error.h"
#include "rf/model/run_checkpoints.h"
#include "rf/tasks/cross_encoder.h"

namespace rf::cli {

namespace {

struct RerankOptions {
  tasks::CrossEncoderOptions model;
  data::RecordOptions input;
  std::vector<std::string> texts;
  std::string query, field = "text", id_field = "id";
  int64_t top_k = 0;  // 0: all
};

struct Ranked {
  float score = 0;
  int64_t index = 0;  // of the record, from 0
  std::shared_ptr<const std::string> source;
  int64_t line = 0;
  nlohmann::json id;  // null: none
  std::string text;

  // Equal scores keep the order of their records.
  bool is_before(const Ranked& other) const { return score != other.score ? score > other.score : index < other.index; }
};

// The scores of texts with the query. place(i): the source of text i, for messages.
using Score = std::function<std::vector<float>(std::span<const std::string_view> texts,
                                               const std::function<std::string(int64_t)>& place)>;

Score cross_encoder(const RerankOptions& options) {
  const auto model = std::make_shared<const tasks::CrossEncoder>(options.model);
  if (model->info().labels.size() != 1) {
    fail("rerank", "a model that ranks must have one score, got {} labels (roformer predict gives their probabilities)",
         model->info().labels.size());
  }
  return [model, &options](std::span<const std::string_view> texts, const std::function<std::string(int64_t)>& place) {
    std::vector<text::TextPair> pairs;
    for (const std::string_view text : texts) pairs.push_back({options.query, text});
    return model->scores(pairs, std::nullopt, place);
  };
}

Score late_interaction(const RerankOptions& options, const Common& common) {
  if (options.model.activation)
    fail_usage("rerank", "--activation goes with a cross-encoder, got a model of late interaction");
  EmbedderArguments arguments{.model_dir = options.model.model_dir, .options = {}};
  arguments.options.vectors = engine::VectorKind::kTokens;
  arguments.options.role = engine::TextRole::kDocument;
  arguments.options.adapter = options.model.adapter;
  arguments.options.precision = options.model.precision;
  arguments.options.token_budget = options.model.batch_tokens;
  arguments.options.max_length = options.model.max_length.value_or(0);
  const auto model = std::make_shared<const engine::Embedder>(open_embedder(arguments, common));
  // As encode_query of sentence-transformers: the default prompt is of texts without a role.
  engine::Prompts prompts{.by_name = model->info().prompts, .default_name = {}};
  if (prompts.by_name.contains("query")) prompts.default_name = "query";
  const std::string prompt = engine::prompt_of(prompts, options.model.prompt, options.model.prompt_name, "rerank");
  const std::string_view query = options.query;
  arguments.options.role = engine::TextRole::kQuery;
  std::optional<engine::Embedder> of_queries;
  if (model->info().by_role) of_queries.emplace(open_embedder(arguments, common));
  const std::vector<float> asked =
      (of_queries ? *of_queries : *model).vectors({&query, 1}, prompt, engine::TextRole::kQuery)[0].tokens;
  return [model, asked](std::span<const std::string_view> texts, const std::function<std::string(int64_t)>&) {
    std::vector<float> scores;
    for (const engine::TextVectors& document : model->vectors(texts))
      scores.push_back(static_cast<float>(engine::max_similarity(model->info(), asked, document.tokens)));
    return scores;
  };
}

// Scores records in blocks, and keeps the best top_k.
class Ranking {
 public:
  Ranking(const RerankOptions& options, Score score) : options_(options), score_(std::move(score)) {}

  void add(const data::Record& record) {
    const nlohmann::json* const id = record.find(options_.id_field);
    waiting_.push_back({.index = count_++,
                        .source = record.source,
                        .line = record.line,
                        .id = id == nullptr ? nlohmann::json() : *id,
                        .text = record.text(options_.field)});
    constexpr size_t kBlock = 512;
    if (waiting_.size() == kBlock) flush();
  }

  std::vector<Ranked> finish() {
    flush();
    shrink(options_.top_k > 0 ? static_cast<size_t>(options_.top_k) : ranked_.size());
    return std::move(ranked_);
  }

 private:
  void flush() {
    std::vector<std::string_view> texts;
    for (const Ranked& each : waiting_) texts.push_back(each.text);
    const auto place = [&](int64_t i) {
      const Ranked& each = waiting_[static_cast<size_t>(i)];
      return data::Record{each.source, each.line, {}}.place();
    };
    const std::vector<float> scores = score_(texts, place);
    for (size_t i = 0; i < waiting_.size(); ++i) {
      waiting_[i].score = scores[i];
      ranked_.push_back(std::move(waiting_[i]));
    }
    waiting_.clear();
    // Twice as many are kept, so that the work per record does not depend on their number.
    if (options_.top_k > 0 && ranked_.size() / 2 > static_cast<size_t>(options_.top_k)) {
      shrink(static_cast<size_t>(options_.top_k));
    }
  }

  void shrink(size_t size) {
    std::ranges::sort(ranked_, [](const Ranked& a, const Ranked& b) { return a.is_before(b); });
    if (ranked_.size() > size) ranked_.resize(size);
  }

  const RerankOptions& options_;
  Score score_;
  std::vector<Ranked> waiting_, ranked_;
  int64_t count_ = 0;
};

void read_records(const RerankOptions& options, Ranking& ranking) {
  if (!options.texts.empty()) {
    const auto source = std::make_shared<const std::string>("--text");
    int64_t line = 0;
    for (const std::string& text : options.texts) ranking.add({source, ++line, {{options.field, text}}});
    return;
  }
  data::RecordOptions input = options.input;
  input.text_field = options.field;
  data::RecordReader reader(input);
  data::ReadProgress reading(progress(), "scoring", reader.total_bytes());
  reader.read([&](const data::Record& record) {
    ranking.add(record);
    reading.update(reader.bytes_read());
  });
  reading.update(reader.bytes_read());
}

int run_rerank(RerankOptions& options, const Common& common) {
  check_dictionaries(options.model.load);
  options.model.model_dir = model_of_run(options.model.model_dir, say);
  options.model.note = warn_user;
  const bool is_late = engine::vectors_of(options.model.model_dir) == engine::VectorKind::kTokens;
  Ranking ranking(options, is_late ? late_interaction(options, common) : cross_encoder(options));
  read_records(options, ranking);
  std::vector<Ranked> ranked = ranking.finish();
  progress().finish();
  for (Ranked& each : ranked) {
    nlohmann::ordered_json line = {{"index", each.index}, {"score", each.score}};
    if (!each.id.is_null()) line["id"] = each.id;
    line["line"] = each.line;
    line["text"] = std::move(each.text);  // may be long
    emit_line(line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  }
  return kOk;
}

std::function<int()> configure_rerank(CLI::App& app, const Common& common) {
  auto options = std::make_shared<RerankOptions>();
  tasks::CrossEncoderOptions& model = options->model;
  app.add_option("--model", model.model_dir,
                 "Directory of a CrossEncoder or another sequence classifier with one label, or of a late-interaction "
                 "model: a MultiVectorEncoder, PyLate, ColBERT or bge-m3")
      ->required();
  app.add_option("--query", options->query, "First text of each pair")->required();
  CLI::Option_group* const what = app.add_option_group("what to rank");
  what->add_option("--input", options->input.inputs,
                   "Records: files, also .gz and .zst, directories, patterns, or - for standard input");
  what->add_option("--text", options->texts, "One or several texts");
  what->require_option(1);
  add_record_format(app, options->input.format, options->input.quotes, "jsonl, csv, tsv or text, one record per line");
  add_default(app, "--field", options->field, "Field with the text of a record");
  add_default(app, "--id-field", options->id_field, "Field with the id of a record, which its result has as \"id\"");
  app.add_option("--top-k", options->top_k, "Records to show, the best first; default: all")->check(integer_within(1));
  app.add_option_function<std::string>(
         "--activation",
         [&model](const std::string& name) {
           try {
             model.activation = tasks::score_activation(name);
           } catch (const Error& error) {
             throw CLI::ValidationError("--activation", error.what());
           }
         },
         "Activation of a cross-encoder's logit: identity, sigmoid, tanh or relu; default: the model's, else sigmoid")
      ->type_name("NAME");
  add_prompt(app, model, "Text before the query");
  app.add_option("--max-length", model.max_length,
                 "Maximum tokens of a query and a record together, or of each text with late interaction; default: the "
                 "model's max_seq_length, else the limit of its tokenizer and positions");
  add_adapter(app, model.adapter);
  add_precision(app, model.precision);
  add_batch_tokens(app, model.batch_tokens);
  add_dictionary(app, model.load);
  return [options, &common] { return run_rerank(*options, common); };
}

}  // namespace

Command rerank_command() {
  return {"rerank", "Rank records by relevance to a query",
          "roformer rerank --model DIR --query 'How are RoFormers trained?' --input texts.txt --top-k 5",
          Command::Seed::kNotUsed, configure_rerank};
}

}  // namespace rf::cli
