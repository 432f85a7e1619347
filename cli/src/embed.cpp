// roformer embed: the vectors of any number of texts, in constant memory.
#define XXH_INLINE_ALL
#include <fmt/ranges.h>
#include <semaphore.h>
#include <unistd.h>
#include <xxhash.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "command.h"
#include "command_line.h"
#include "embedder_options.h"
#include "embedding_output.h"
#include "embedding_run.h"
#include "read_options.h"
#include "rf/engine/quantization.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/half.h"
#include "rf/io/npy.h"
#include "rf/status.h"
#include "vector_lines.h"

namespace rf::cli {

namespace {

using nlohmann::json;
namespace fs = std::filesystem;

struct EmbedOptions {
  EmbedderArguments embedder;
  data::ReadOptions read;
  std::vector<std::string> texts;
  std::string output;
  io::DType dtype = io::DType::kF32;
  engine::Quantization quantization = engine::Quantization::kNone;
  std::string ranges;
  bool token_names = false, restart = false, overwrite = false;
  bool dense = false, sparse = false, multi = false;  // kinds of vectors; none: dense
};

const std::map<std::string, engine::Quantization> kQuantizations = {{"int8", engine::Quantization::kInt8},
                                                                    {"uint8", engine::Quantization::kUint8},
                                                                    {"binary", engine::Quantization::kBinary},
                                                                    {"ubinary", engine::Quantization::kUbinary}};

constexpr std::array kSignals = {SIGINT, SIGTERM};

// A handler may use these: sem_post is async-signal-safe.
sem_t wake_up;
volatile std::sig_atomic_t received_signal = 0;

extern "C" void on_signal(int number) {
  received_signal = number;
  sem_post(&wake_up);
}

// While it exists, the first SIGINT or SIGTERM immediately calls `keep` in a separate thread, even if other threads are
// waiting. If `keep` returns true, the process exits with 128 + the signal's number. A second signal has its usual
// effect. A signal that the parent process ignores (nohup) stays ignored. Only one may exist at a time.
class InterruptWatch {
 public:
  explicit InterruptWatch(std::function<bool()> keep) : keep_(std::move(keep)) {
    received_signal = 0;
    sem_init(&wake_up, 0, 0);
    thread_ = std::thread([this] { wait(); });
    for (size_t i = 0; i < kSignals.size(); ++i) {
      sigaction(kSignals[i], nullptr, &earlier_[i]);
      if (earlier_[i].sa_handler == SIG_IGN) continue;
      struct sigaction action {};
      action.sa_handler = on_signal;
      action.sa_flags = SA_RESETHAND | SA_RESTART;
      sigaction(kSignals[i], &action, nullptr);
    }
  }

  ~InterruptWatch() {
    for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &earlier_[i], nullptr);
    sem_post(&wake_up);
    thread_.join();
    sem_destroy(&wake_up);
  }

  InterruptWatch(const InterruptWatch&) = delete;
  InterruptWatch& operator=(const InterruptWatch&) = delete;

 private:
  void wait() {
    while (sem_wait(&wake_up) != 0) {  // interrupted
    }
    if (received_signal == 0 || !keep_()) return;
    std::fflush(nullptr);
    ::_exit(kSignalBase + received_signal);  // other threads are busy or wait for input
  }

  std::function<bool()> keep_;
  std::array<struct sigaction, 2> earlier_{};
  std::thread thread_;
};

// The inputs by name, with size and modification time, which show that a file has changed.
json facts_of(const std::vector<std::string>& files) {
  json facts = json::object();
  for (const std::string& file : files) {
    std::error_code error;
    const bool regular = fs::is_regular_file(file, error);
    const auto time = regular ? fs::last_write_time(file, error).time_since_epoch().count() : 0;
    facts[file] = {{"bytes", regular ? fs::file_size(file, error) : 0}, {"modified", time}};
  }
  return facts;
}

bool is_quantized(const EmbedOptions& options) { return options.quantization != engine::Quantization::kNone; }

// The least and the greatest value of each element, the rows of an array.
engine::ElementRanges read_ranges(const EmbedOptions& options, const engine::Embedder& embedder) {
  if (options.ranges.empty()) return {};
  const int64_t dimensions = embedder.info().dimensions;
  const io::NpyArray array = io::read_npy(options.ranges);
  if (array.dtype != io::DType::kF32 || array.shape != std::vector<int64_t>{2, dimensions}) {
    fail(options.ranges, "ranges must be float32 of shape (2, {}), got {} of shape ({})", dimensions,
         io::safetensors_name(array.dtype), fmt::join(array.shape, ", "));
  }
  const auto* const values = reinterpret_cast<const float*>(array.data.data());
  return {{values, values + dimensions}, {values + dimensions, values + 2 * dimensions}};
}

// Lines need the ranges as they are written; a .npy needs them only at its end.
std::string state_of_ranges(const EmbedOptions& options) {
  if (options.ranges.empty() || vector_format_of(options.output) == VectorFormat::kNpy) return "";
  const std::string bytes = io::read_file(options.ranges);
  return fmt::format("{} ({:016x})", options.ranges, XXH3_64bits(bytes.data(), bytes.size()));
}

VectorLines lines_of(const EmbedOptions& options, const engine::Embedder& embedder,
                     const engine::ElementRanges& ranges) {
  const bool is_one = embedder.info().vectors != engine::VectorKind::kAll;
  return {embedder,
          {.token_names = options.token_names,
           .dense = is_one || options.dense,
           .sparse = is_one || options.sparse,
           .tokens = is_one || options.multi,
           .quantization = options.quantization,
           .ranges = ranges}};
}

json settings_of(const EmbedOptions& options, const engine::Embedder& embedder, const std::vector<std::string>& files) {
  const engine::EmbedderInfo& info = embedder.info();
  json poolings = json::array();
  for (const engine::Pooling pooling : info.poolings) poolings.push_back(name_of(pooling));
  return {{"version", ROFORMER_VERSION},
          {"model", embedder.identity()},
          {"kernels", rf_target()},
          {"precision", name_of(options.embedder.options.precision)},
          {"vectors", name_of(info.vectors)},
          {"kinds", {options.dense, options.sparse, options.multi}},
          {"role", name_of(info.role)},
          {"max-active", info.max_active},
          {"token-names", options.token_names},
          {"quantize", is_quantized(options) ? name_in(kQuantizations, options.quantization) : "none"},
          {"ranges", state_of_ranges(options)},
          {"pooling", poolings},
          {"normalize", info.normalized},
          {"dimensions", info.dimensions},
          {"max-length", info.max_length},
          {"prompt", info.prompt},
          {"dtype", options.dtype == io::DType::kF16 ? "float16" : "float32"},
          {"input", files},
          {"format", data::format_name(options.read.format)},
          {"field", options.read.field},
          {"id-field", options.read.ids == data::Ids::kNotRead ? json() : json(options.read.id_field)},
          {"quotes", options.read.quotes == data::Quotes::kRead}};
}

json report_of(const engine::Embedder& embedder, const EmbeddingCounts& counts, int64_t rows) {
  const double seconds = std::max(1e-9, counts.seconds);
  return {{"rows", rows},
          {"dimensions", embedder.info().dimensions},
          {"texts", counts.texts},
          {"tokens", counts.tokens},
          {"full_texts", counts.full_texts},
          {"replaced_bytes", counts.replaced_bytes},
          {"seconds", counts.seconds},
          {"texts_per_second", static_cast<double>(counts.texts) / seconds},
          {"tokens_per_second", static_cast<double>(counts.tokens) / seconds}};
}

// When a signal ends the command.
bool keep_finished(EmbeddingOutput& output) {
  try {
    if (!output.keep_finished()) return false;
  } catch (const Error&) {  // the disk is full: the last checkpoint counts
  }
  say(fmt::format("interrupted; what is finished is kept in {}; the same command continues there",
                  output.partial_path()));
  return true;
}

std::string line_of(const VectorLines& lines, const engine::Embedder& embedder, const TextBlock& block, size_t i) {
  return lines.line(fmt::format("\"index\":{}", block.first + static_cast<int64_t>(i)), block.texts[i].id,
                    embedder.vectors(block.tokens, block.tokens.sequence_of_text[i], block.vector(i)));
}

// Embeds into the output, as lines if there are any. After an error finished rows are kept.
EmbeddingCounts write_vectors(const EmbeddingRun& run, const VectorLines* lines, EmbeddingOutput& output) {
  try {
    return embed_texts(run, [&](const EmbeddedRows& rows) {
      const std::string& digest = rows.block.texts[rows.end - 1].digest;
      if (lines != nullptr) {
        std::string text;
        for (size_t i = rows.begin; i < rows.end; ++i) text += line_of(*lines, run.embedder, rows.block, i) + '\n';
        return output.write_lines(text, static_cast<int64_t>(rows.end - rows.begin), digest);
      }
      std::vector<data::VectorRow> written;
      for (size_t i = rows.begin; i < rows.end; ++i)
        written.push_back({rows.block.vector(i).data(), rows.block.texts[i].id});
      output.write(written, digest);
    });
  } catch (const OtherTexts& other) {
    const std::string changed = output.changed_inputs();
    fail("input", "the first {} texts must be those with which {} was begun, got others{} (--restart begins anew)",
         other.finished, output.partial_path(), changed.empty() ? "" : "; changed since: " + changed);
  } catch (const Error&) {
    try {
      output.checkpoint();
    } catch (const Error&) {  // the disk is full: the last checkpoint counts
    }
    say(fmt::format("what is finished is kept in {}; the same command continues there", output.partial_path()));
    throw;
  }
}

int run_to_file(const EmbedOptions& options, const engine::Embedder& embedder, data::TextReader& reader) {
  using Restart = OutputSettings::Restart;
  const bool is_lines = vector_format_of(options.output) == VectorFormat::kJsonLines;
  const engine::ElementRanges ranges = read_ranges(options, embedder);
  const VectorLines lines = lines_of(options, embedder, ranges);
  EmbeddingOutput output({.path = options.output,
                          .dtype = options.dtype,
                          .quantization = options.quantization,
                          .ranges = ranges,
                          .dimensions = embedder.info().dimensions,
                          .settings = settings_of(options, embedder, reader.files()),
                          .inputs = facts_of(reader.files()),
                          .restart = options.restart ? Restart::kYes : Restart::kNo});
  const InterruptWatch watch([&output] { return keep_finished(output); });
  if (output.rows() > 0) say(fmt::format("continues {} after {} texts", output.partial_path(), output.rows()));
  EmbeddingRun run{.embedder = embedder,
                   .reader = reader,
                   .token_budget = options.embedder.options.token_budget,
                   .finished = output.rows(),
                   .finished_digest = output.digest()};
  if (options.dtype == io::DType::kF16) run.largest = io::kLargestHalf;
  const EmbeddingCounts counts = write_vectors(run, is_lines ? &lines : nullptr, output);
  output.commit();
  say_about_texts(counts.full_texts, embedder.info().max_length, counts.replaced_bytes);
  json report = report_of(embedder, counts, output.rows());
  report["output"] = options.output;
  emit(report);
  return kOk;
}

int run_to_stdout(const EmbedOptions& options, const engine::Embedder& embedder, data::TextReader& reader) {
  const VectorLines lines = lines_of(options, embedder, read_ranges(options, embedder));
  const EmbeddingRun run{.embedder = embedder, .reader = reader, .token_budget = options.embedder.options.token_budget};
  const EmbeddingCounts counts = embed_texts(run, [&](const EmbeddedRows& rows) {
    for (size_t i = rows.begin; i < rows.end; ++i) emit_line(line_of(lines, embedder, rows.block, i));
  });
  say_about_texts(counts.full_texts, embedder.info().max_length, counts.replaced_bytes);
  return kOk;
}

int run_texts(const EmbedOptions& options, const engine::Embedder& embedder) {
  const VectorLines lines = lines_of(options, embedder, read_ranges(options, embedder));
  const std::vector<std::string_view> texts(options.texts.begin(), options.texts.end());
  const std::vector<engine::TextVectors> vectors = embedder.vectors(texts);
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::string quoted = json(texts[i]).dump(-1, ' ', false, json::error_handler_t::replace);
    emit_line(lines.line(fmt::format("\"text\":{},\"index\":{}", quoted, i), "", vectors[i]));
  }
  return kOk;
}

void check_kind(const EmbedOptions& options) {
  const engine::EmbedderOptions& embedder = options.embedder.options;
  const bool is_dense = embedder.vectors == engine::VectorKind::kDense, is_sparse = options.sparse;
  const char* const kind = is_sparse ? "--sparse" : "--multi";
  const bool is_lines = options.output.empty() || vector_format_of(options.output) == VectorFormat::kJsonLines;
  if (!is_dense && !is_lines)
    fail_usage("embed", "{} goes with an --output named .jsonl, or without one, got {}", kind, options.output);
  if (!is_dense && is_quantized(options))
    fail_usage("embed", "--quantize goes with one vector for a text, got {}", kind);
  if (!is_sparse && (options.token_names || embedder.max_active > 0))
    fail_usage("embed", "{} goes with --sparse, got none", options.token_names ? "--token-names" : "--max-active");
  if (is_sparse && (embedder.dimensions > 0 || embedder.normalize))
    fail_usage("embed", "{} goes without --sparse",
               embedder.dimensions > 0 ? "--dimensions"
               : *embedder.normalize   ? "--normalize"
                                       : "--no-normalize");
  if (!options.ranges.empty() && !engine::needs_ranges(options.quantization))
    fail_usage("embed", "--ranges goes with --quantize int8 or uint8, got none of them");
  if (engine::needs_ranges(options.quantization) && options.ranges.empty() && is_lines) {
    fail_usage("embed",
               "--quantize int8 or uint8 needs --ranges, or the ranges of all vectors of an --output named .npy");
  }
  if (is_quantized(options) && !is_lines && vector_format_of(options.output) != VectorFormat::kNpy)
    fail_usage("embed", "--quantize goes with an --output named .npy or .jsonl, got {}", options.output);
  if (is_quantized(options) && options.dtype != io::DType::kF32)
    fail_usage("embed", "--quantize goes without --dtype float16");
}

void check(const EmbedOptions& options) {
  if (options.texts.empty() == options.read.inputs.empty()) {
    fail_usage("embed", "texts must come from --input or --text, got {}", options.texts.empty() ? "neither" : "both");
  }
  if (!options.texts.empty() && !options.output.empty()) {
    fail_usage("embed", "--output goes with --input, got --text");
  }
  const bool is_npy = !options.output.empty() && vector_format_of(options.output) == VectorFormat::kNpy;
  if (options.dtype != io::DType::kF32 && !is_npy) {
    fail_usage("embed", "--dtype float16 goes with an --output named .npy, got {}",
               options.output.empty() ? "none" : options.output);
  }
  if (options.read.ids == data::Ids::kNamed && is_npy) {
    fail_usage("embed", "--id-field goes with an --output named .jsonl or .parquet, or without one, got {}",
               options.output);
  }
  if (options.read.ids == data::Ids::kNamed && !options.texts.empty()) {
    fail_usage("embed", "--id-field goes with --input, got --text");
  }
}

int run_embed(EmbedOptions& options, const Common& common) {
  check(options);
  using engine::VectorKind;
  options.embedder.options.vectors = options.sparse + options.multi + options.dense > 1 ? VectorKind::kAll
                                     : options.sparse                                   ? VectorKind::kSparse
                                     : options.multi                                    ? VectorKind::kTokens
                                                                                        : VectorKind::kDense;
  check_kind(options);
  if (!options.texts.empty()) return run_texts(options, open_embedder(options.embedder, common));
  if (!options.output.empty()) {
    options.read.outputs = EmbeddingOutput::paths_of(options.output);
    options.read.replaced = options.output;
    if (!holds_ids(vector_format_of(options.output))) options.read.ids = data::Ids::kNotRead;
  }
  data::TextReader reader(options.read);
  const std::vector<std::string> ranges(options.ranges.empty() ? 0 : 1, options.ranges);
  check_outputs(options.read.outputs, ranges, options.embedder.model_dir);
  if (!options.overwrite && !options.output.empty() && fs::is_regular_file(options.output)) {
    fail("output", "{} must not exist, got a file (--overwrite replaces it)", options.output);
  }
  say_left_out(reader.left_out());
  const engine::Embedder embedder = open_embedder(options.embedder, common);
  return options.output.empty() ? run_to_stdout(options, embedder, reader) : run_to_file(options, embedder, reader);
}

std::function<int()> configure_embed(CLI::App& app, const Common& common) {
  auto options = std::make_shared<EmbedOptions>();
  add_embedder_options(app, options->embedder);
  add_text_inputs(app, options->read)->required(false);
  add_id_field(app, options->read);
  app.add_option("--text", options->texts, "One or several texts instead of --input");
  app.add_option(
      "--output", options->output,
      "File to write: .npy, .jsonl or .parquet; without it JSON lines go to standard output. All but .npy have "
      "the records' ids");
  add_choice<io::DType>(app, "--dtype", options->dtype, "float32", "Numbers in .npy: float32 or float16",
                        {{"float32", io::DType::kF32}, {"float16", io::DType::kF16}});
  engine::EmbedderOptions& embedder = options->embedder.options;
  app.add_flag("--sparse", options->sparse,
               "Sparse vectors over the vocabulary, of a SparseEncoder or a masked language model (SPLADE)");
  app.add_flag("--multi", options->multi, "A vector for each token, of a MultiVectorEncoder, PyLate or ColBERT");
  app.add_flag("--dense", options->dense,
               "One vector per text, the default; with --sparse or --multi: both outputs of one pass of bge-m3");
  app.add_flag("--token-names", options->token_names, "Sparse vectors have \"tokens\" in place of \"indices\"");
  app.add_option("--max-active", embedder.max_active,
                 "Number of largest weights to keep in each sparse vector; default: the model's")
      ->check(integer_within(1));
  add_choice<engine::Quantization>(
      app, "--quantize", options->quantization, "",
      "Quantize vectors to bytes (int8, uint8) or bits (binary, ubinary), as sentence-transformers does",
      kQuantizations);
  app.add_option("--ranges", options->ranges,
                 "float32 .npy [2, dimensions] with the minimum and maximum of each dimension, for int8 and uint8; "
                 "default: those of all vectors of the output");
  app.add_flag("--overwrite", options->overwrite, "Replace the file of an earlier run");
  app.add_flag("--restart", options->restart, "Begin anew where an earlier run left OUTPUT.part");
  app.description(
      app.get_description() +
      "\nA line of a text file is a text, also an empty one, and so is each record of the other formats: "
      "row i is text i.\nA run that was killed or interrupted continues when the same command is given again, and ends "
      "with the same bits");
  return [options, &common] { return run_embed(*options, common); };
}

}  // namespace

Command embed_command() {
  return {"embed", "Compute text embeddings", "roformer embed --model DIR --input texts.txt --output vectors.npy",
          Command::Seed::kNotUsed, configure_embed};
}

}  // namespace rf::cli
