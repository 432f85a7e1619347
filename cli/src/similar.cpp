// roformer similar: the lines of files that are most similar to a text, by the model's similarity of vectors.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "command.h"
#include "embedder_options.h"
#include "embedding_run.h"
#include "read_options.h"
#include "rf/engine/names.h"
#include "rf/io/error.h"
#include "rf/io/half.h"
#include "rf/io/npy.h"

namespace rf::cli {

namespace {

using engine::Similarity;

const std::map<std::string, Similarity> kSimilarities(engine::kSimilarityNames.begin(), engine::kSimilarityNames.end());

struct SimilarOptions {
  EmbedderArguments embedder;
  data::ReadOptions read;
  std::vector<std::string> queries;
  std::string embeddings;
  Similarity similarity{};
  bool own_similarity = true;  // of the model
  std::optional<std::string> query_prompt;
  int64_t top_k = 10;
};

struct Match {
  double score = 0;
  int64_t row = 0;  // from 0
  int64_t line = 0;
  std::string source, text, id;  // id: data::SourceText::id
};

// The best matches so far; among equal matches, the first.
class Best {
 public:
  explicit Best(int64_t size) : size_(static_cast<size_t>(size)) {}

  bool wants(double score) const { return matches_.size() < size_ || score > matches_.front().score; }
  void add(Match match) {
    if (matches_.size() == size_) {
      std::ranges::pop_heap(matches_, is_better);
      matches_.pop_back();
    }
    matches_.push_back(std::move(match));
    std::ranges::push_heap(matches_, is_better);
  }
  std::vector<Match> take() {
    std::ranges::sort(matches_, is_better);
    return std::move(matches_);
  }

 private:
  static bool is_better(const Match& a, const Match& b) {
    return a.score != b.score ? a.score > b.score : a.row < b.row;
  }

  size_t size_;
  std::vector<Match> matches_;  // a heap with the worst in front
};

// The queries' vectors, and the best matches of each so far.
struct Search {
  Similarity similarity;
  size_t dimensions;
  std::vector<float> queries;  // [queries, dimensions]
  std::vector<Best> best;

  // make_match(score): called for each query that wants the vector.
  template <typename MakeMatch>
  void add(const float* vector, const MakeMatch& make_match) {
    for (size_t i = 0; i < best.size(); ++i) {
      const std::span<const float> query(queries.data() + i * dimensions, dimensions);
      const double score = engine::similarity(similarity, query, {vector, dimensions});
      if (best[i].wants(score)) best[i].add(make_match(score));
    }
  }
};

// The rows of a .npy that roformer embed or another program wrote.
class StoredVectors {
 public:
  explicit StoredVectors(const std::string& path) : path_(path), file_(path) {
    const std::vector<int64_t>& shape = file_.shape();
    const bool is_float = file_.dtype() == io::DType::kF32 || file_.dtype() == io::DType::kF16;
    if (shape.size() != 2 || !is_float) {
      fail(path, "embeddings must be a float32 or float16 array of two dimensions, got {} of ({})",
           io::safetensors_name(file_.dtype()), fmt::join(shape, ", "));
    }
    if (shape[1] == 0) fail(path, "embeddings must have at least one column, got ({})", fmt::join(shape, ", "));
    row_.resize(static_cast<size_t>(shape[1]));
  }
  int64_t rows() const { return file_.shape()[0]; }
  int64_t dimensions() const { return file_.shape()[1]; }
  // Throws Error for a row that is not finite.
  const float* row(int64_t index) {
    const std::byte* from = file_.data().data() + static_cast<size_t>(index) * row_.size() * io::size_of(file_.dtype());
    if (file_.dtype() == io::DType::kF32) {
      std::memcpy(row_.data(), from, row_.size() * sizeof(float));
    } else {
      for (size_t i = 0; i < row_.size(); ++i) {
        uint16_t half = 0;
        std::memcpy(&half, from + i * sizeof half, sizeof half);
        row_[i] = io::float_of_half(half);
      }
    }
    for (const float x : row_) {
      if (!std::isfinite(x)) fail(path_, "embeddings must be finite, got {} in row {}", x, index);
    }
    return row_.data();
  }

 private:
  std::string path_;
  io::MappedNpy file_;
  std::vector<float> row_;
};

// Their prompt is --query-prompt, else the model's "query", else that of --prompt.
std::vector<float> query_vectors(const SimilarOptions& options, const engine::Embedder& embedder) {
  const engine::EmbedderInfo& info = embedder.info();
  const engine::EmbedderOptions& given = options.embedder.options;
  std::optional<std::string> prompt = options.query_prompt;
  if (const auto own = info.prompts.find("query"); !prompt && own != info.prompts.end()) prompt = own->second;
  if (!prompt) prompt = engine::prompt_of({info.prompts, std::nullopt}, given.prompt, given.prompt_name, "similar");
  const std::vector<std::string_view> queries(options.queries.begin(), options.queries.end());
  std::vector<float> vectors(queries.size() * static_cast<size_t>(info.dimensions));
  embedder.embed(queries, vectors.data(), prompt);
  return vectors;
}

// The embedder of the lines, and the queries' vectors, which need another embedder for some models.
engine::Embedder embed_queries(SimilarOptions& options, const Common& common, std::vector<float>& vectors) {
  EmbedderArguments& arguments = options.embedder;
  arguments.options.role = engine::TextRole::kDocument;
  engine::Embedder embedder = open_embedder(arguments, common);
  if (!embedder.info().by_role) {
    vectors = query_vectors(options, embedder);
    return embedder;
  }
  arguments.options.role = engine::TextRole::kQuery;
  const engine::Embedder of_queries = open_embedder(arguments, common);
  if (embedder.info().dimensions != of_queries.info().dimensions) {
    fail("similar", "queries and documents must have as many dimensions, got {} and {}", of_queries.info().dimensions,
         embedder.info().dimensions);
  }
  vectors = query_vectors(options, of_queries);
  return embedder;
}

void search_texts(const SimilarOptions& options, const engine::Embedder& embedder, Search& search) {
  data::TextReader reader(options.read);
  const EmbeddingRun run{.embedder = embedder, .reader = reader, .token_budget = options.embedder.options.token_budget};
  const EmbeddingCounts counts = embed_texts(run, [&](const EmbeddedRows& rows) {
    for (size_t i = rows.begin; i < rows.end; ++i) {
      const TextBlock::Text& text = rows.block.texts[i];
      search.add(rows.block.vector(i).data(), [&](double score) {
        return Match{score,
                     rows.block.first + static_cast<int64_t>(i),
                     text.line,
                     *text.source,
                     std::string(rows.block.text(i)),
                     text.id};
      });
    }
  });
  say_about_texts(counts.full_texts, embedder.info().max_length, counts.replaced_bytes);
}

// Fills in the lines of the matches' rows.
void find_lines(const SimilarOptions& options, int64_t rows, std::vector<std::vector<Match>>& matches) {
  std::vector<Match*> by_row;
  for (std::vector<Match>& of_query : matches) {
    for (Match& match : of_query) by_row.push_back(&match);
  }
  std::ranges::sort(by_row, {}, &Match::row);
  auto next = by_row.begin();
  data::TextReader reader(options.read);
  int64_t row = 0;
  reader.read([&](const data::SourceText& text) {
    for (; next != by_row.end() && (*next)->row == row; ++next) {
      (*next)->line = text.line;
      (*next)->source = text.source;
      (*next)->text = text.text;
      (*next)->id = text.id;
    }
    ++row;
  });
  if (row != rows) fail("similar", "--input must have the {} texts of --embeddings, got {}", rows, row);
}

void show(const SimilarOptions& options, const std::vector<std::vector<Match>>& matches) {
  for (size_t i = 0; i < matches.size(); ++i) {
    for (const Match& match : matches[i]) {
      nlohmann::ordered_json line;
      if (matches.size() > 1) line["query"] = options.queries[i];
      line["index"] = match.row;
      line["score"] = match.score;
      if (!match.id.empty()) line["id"] = nlohmann::ordered_json::parse(match.id);
      line["line"] = match.line;
      if (!options.read.inputs.empty()) {
        line["file"] = match.source;
        line["text"] = match.text;
      }
      emit_line(line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
    }
  }
}

int run_similar(SimilarOptions& options, const Common& common) {
  if (options.read.inputs.empty() && options.embeddings.empty()) {
    fail_usage("similar", "--input or --embeddings must be given, got neither");
  }
  if (options.top_k < 1) fail_usage("similar", "--top-k must be at least 1, got {}", options.top_k);
  std::optional<StoredVectors> stored;
  if (!options.embeddings.empty()) {
    check_outputs({}, {options.embeddings}, "");
    stored.emplace(options.embeddings);
  }
  std::vector<float> queries;
  const engine::Embedder embedder = embed_queries(options, common, queries);
  if (stored && stored->dimensions() != embedder.info().dimensions) {
    fail_usage("similar", "--embeddings must have the {} columns of the model's vectors, got {}{}",
               embedder.info().dimensions, stored->dimensions(),
               stored->dimensions() < embedder.info().dimensions ? " (--dimensions shortens vectors)" : "");
  }
  Search search{.similarity = options.own_similarity ? embedder.info().similarity : options.similarity,
                .dimensions = static_cast<size_t>(embedder.info().dimensions),
                .queries = std::move(queries),
                .best = std::vector<Best>(options.queries.size(), Best(options.top_k))};
  if (stored) {
    for (int64_t row = 0; row < stored->rows(); ++row) {
      search.add(stored->row(row), [&](double score) { return Match{score, row, row + 1, "", "", ""}; });
    }
  } else {
    search_texts(options, embedder, search);
  }
  std::vector<std::vector<Match>> matches;
  for (Best& best : search.best) matches.push_back(best.take());
  if (stored && !options.read.inputs.empty()) find_lines(options, stored->rows(), matches);
  show(options, matches);
  return kOk;
}

std::function<int()> configure_similar(CLI::App& app, const Common& common) {
  auto options = std::make_shared<SimilarOptions>();
  app.add_option("--query", options->queries, "Text to compare with; may be given several times")
      ->required()
      ->allow_extra_args(false);
  add_embedder_options(app, options->embedder);
  app.remove_option(app.get_option("--role"));  // queries and lines have theirs
  add_text(app, "--query-prompt", options->query_prompt,
           "Text before the query; default: the model's prompt \"query\", else --prompt, which is put before the lines "
           "(default: the model's \"document\", \"passage\" or \"corpus\")");
  add_text_inputs(app, options->read)->required(false);
  add_id_field(app, options->read);
  app.add_option("--embeddings", options->embeddings,
                 ".npy that roformer embed wrote for --input, which is then not computed again; without --input the "
                 "lines are shown by their numbers");
  add_default(app, "--top-k", options->top_k, "Lines to show for each query, the most similar first");
  add_choice<Similarity>(app, "--similarity", options->similarity, "",
                         "What lines are ranked by: cosine, dot, euclidean or manhattan, of which the last two are "
                         "negative distances; default: the model's, else cosine",
                         kSimilarities);
  return [options, &common, &app] {
    options->own_similarity = app.count("--similarity") == 0;
    return run_similar(*options, common);
  };
}

}  // namespace

Command similar_command() {
  return {"similar", "Search lines by embedding similarity",
          "roformer similar --model DIR --query 'How are RoFormers trained?' --input texts.txt --top-k 5",
          Command::Seed::kNotUsed, configure_similar};
}

}  // namespace rf::cli
