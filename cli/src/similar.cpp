// roformer similar: the lines of files that are most similar to a text, by the cosine of their vectors.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "command.h"
#include "embedder_options.h"
#include "embedding_run.h"
#include "read_options.h"
#include "rf/io/error.h"
#include "rf/io/half.h"
#include "rf/io/npy.h"

namespace rf::cli {

namespace {

struct SimilarOptions {
  EmbedderArguments embedder;
  data::ReadOptions read;
  std::string query, embeddings;
  std::optional<std::string> query_prompt;
  int64_t top_k = 10;
};

struct Match {
  double score = 0;
  int64_t row = 0;  // from 0
  int64_t line = 0;
  std::string source, text;
};

// The best matches so far; of equal ones the first.
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

double cosine(const std::vector<float>& query, const float* x) {
  double product = 0, query_square = 0, square = 0;
  for (size_t i = 0; i < query.size(); ++i) {
    product += static_cast<double>(query[i]) * x[i];
    query_square += static_cast<double>(query[i]) * query[i];
    square += static_cast<double>(x[i]) * x[i];
  }
  const double lengths = std::sqrt(query_square) * std::sqrt(square);
  return lengths > 0 ? product / lengths : 0;  // a vector of zeros is like no other
}

// The rows of a .npy that roformer embed or another program wrote.
class StoredVectors {
 public:
  explicit StoredVectors(const std::string& path) : file_(path) {
    const std::vector<int64_t>& shape = file_.shape();
    const bool is_float = file_.dtype() == io::DType::kF32 || file_.dtype() == io::DType::kF16;
    if (shape.size() != 2 || !is_float) {
      fail(path, "embeddings must be a float32 or float16 array of two dimensions, got {} of ({})",
           io::safetensors_name(file_.dtype()), fmt::join(shape, ", "));
    }
    row_.resize(static_cast<size_t>(shape[1]));
  }
  int64_t rows() const { return file_.shape()[0]; }
  int64_t dimensions() const { return file_.shape()[1]; }
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
    return row_.data();
  }

 private:
  io::MappedNpy file_;
  std::vector<float> row_;
};

// The prompt for lines or queries by sentence-transformers' names, if the model has one.
void use_first_prompt(engine::Embedder& embedder, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const auto found = embedder.info().prompts.find(name);
    if (found != embedder.info().prompts.end()) return embedder.use_prompt(found->second);
  }
}

std::vector<float> query_vector(const SimilarOptions& options, engine::Embedder& embedder) {
  const std::string prompt_of_lines = embedder.info().prompt;
  if (options.query_prompt) {
    embedder.use_prompt(*options.query_prompt);
  } else {
    use_first_prompt(embedder, {"query"});
  }
  std::vector<float> vector(static_cast<size_t>(embedder.info().dimensions));
  const std::string_view query = options.query;
  embedder.embed({&query, 1}, vector.data());
  embedder.use_prompt(prompt_of_lines);
  const bool chosen = options.embedder.options.prompt || options.embedder.options.prompt_name;
  if (!chosen) use_first_prompt(embedder, {"document", "passage", "corpus"});
  return vector;
}

std::vector<Match> search_texts(const SimilarOptions& options, const engine::Embedder& embedder,
                                const std::vector<float>& query) {
  Best best(options.top_k);
  data::TextReader reader(options.read);
  const EmbeddingRun run{.embedder = embedder, .reader = reader, .token_budget = options.embedder.options.token_budget};
  const EmbeddingCounts counts = embed_texts(run, [&](const EmbeddedRows& rows) {
    for (size_t i = rows.begin; i < rows.end; ++i) {
      const TextBlock::Text& text = rows.block.texts[i];
      const double score = cosine(query, rows.vectors.data() + (i - rows.begin) * query.size());
      if (!best.wants(score)) continue;
      best.add({score, rows.block.first + static_cast<int64_t>(i), text.line, *text.source,
                std::string(rows.block.text(i))});
    }
  });
  say_about_texts(counts.full_texts, embedder.info().max_length, counts.replaced_bytes);
  return best.take();
}

// Fills in the lines of the matches' rows.
void find_lines(const SimilarOptions& options, int64_t rows, std::vector<Match>& matches) {
  data::TextReader reader(options.read);
  int64_t row = 0;
  reader.read([&](const data::SourceText& text) {
    for (Match& match : matches) {
      if (match.row != row) continue;
      match.line = text.line;
      match.source = text.source;
      match.text = text.text;
    }
    ++row;
  });
  if (row != rows) fail("similar", "--input must have the {} texts of --embeddings, got {}", rows, row);
}

std::vector<Match> search_vectors(const SimilarOptions& options, StoredVectors& stored,
                                  const std::vector<float>& query) {
  Best best(options.top_k);
  for (int64_t row = 0; row < stored.rows(); ++row) {
    const double score = cosine(query, stored.row(row));
    if (best.wants(score)) best.add({score, row, row + 1, "", ""});
  }
  std::vector<Match> matches = best.take();
  if (!options.read.inputs.empty()) find_lines(options, stored.rows(), matches);
  return matches;
}

void show(const SimilarOptions& options, const std::vector<Match>& matches) {
  for (const Match& match : matches) {
    nlohmann::ordered_json line = {{"score", match.score}, {"line", match.line}};
    if (!options.read.inputs.empty()) {
      line["file"] = match.source;
      line["text"] = match.text;
    }
    emit_line(line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  }
}

int run_similar(SimilarOptions& options, const Common& common) {
  if (options.read.inputs.empty() && options.embeddings.empty()) {
    fail_usage("similar", "--input or --embeddings must be given, got neither");
  }
  if (options.top_k < 1) fail_usage("similar", "--top-k must be at least 1, got {}", options.top_k);
  std::optional<StoredVectors> stored;
  if (!options.embeddings.empty()) {
    stored.emplace(options.embeddings);
    if (options.embedder.options.dimensions == 0) options.embedder.options.dimensions = stored->dimensions();
    if (options.embedder.options.dimensions != stored->dimensions()) {
      fail_usage("similar", "--dimensions must be those of --embeddings, {}, got {}", stored->dimensions(),
                 options.embedder.options.dimensions);
    }
  }
  engine::Embedder embedder = open_embedder(options.embedder, common);
  const std::vector<float> query = query_vector(options, embedder);
  show(options, stored ? search_vectors(options, *stored, query) : search_texts(options, embedder, query));
  return kOk;
}

std::function<int()> configure_similar(CLI::App& app, const Common& common) {
  auto options = std::make_shared<SimilarOptions>();
  app.add_option("--query", options->query, "Text to compare with")->required();
  add_embedder_options(app, options->embedder);
  app.add_option_function<std::string>(
      "--query-prompt", [options](const std::string& text) { options->query_prompt = text; },
      "Text before the query; default: the model's prompt \"query\". That of the lines is --prompt, by default the "
      "model's \"document\"");
  add_text_inputs(app, options->read)->required(false);
  app.add_option("--embeddings", options->embeddings,
                 ".npy that roformer embed wrote for --input, which is then not computed again; without --input the "
                 "lines are shown by their numbers");
  app.add_option("--top-k", options->top_k, "Lines to show, the most similar first")->capture_default_str();
  return [options, &common] { return run_similar(*options, common); };
}

}  // namespace

Command similar_command() {
  return {"similar", "The lines that are most similar to a text, by the cosine of their vectors",
          "roformer similar --model DIR --query 'How are RoFormers trained?' --input texts.txt --top-k 5",
          Command::Seed::kNotUsed, configure_similar};
}

}  // namespace rf::cli
