// roformer embed: the vectors of texts, of any number of them in constant memory.
#include <fmt/format.h>
#include <semaphore.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <thread>
#include <utility>

#include "command.h"
#include "embedder_options.h"
#include "embedding_output.h"
#include "embedding_run.h"
#include "read_options.h"
#include "rf/io/error.h"
#include "rf/io/half.h"
#include "rf/status.h"

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
  bool restart = false, overwrite = false;
};

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

// The inputs by name, with what tells that one has changed.
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

json settings_of(const EmbedOptions& options, const engine::Embedder& embedder, const std::vector<std::string>& files) {
  const engine::EmbedderInfo& info = embedder.info();
  json poolings = json::array();
  for (const engine::Pooling pooling : info.poolings) poolings.push_back(name_of(pooling));
  return {{"version", ROFORMER_VERSION},
          {"model", embedder.identity()},
          {"kernels", rf_target()},
          {"precision", name_of(options.embedder.options.precision)},
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

// Embeds into the output. After an error what is finished is kept.
EmbeddingCounts write_vectors(const EmbeddingRun& run, EmbeddingOutput& output) {
  try {
    return embed_texts(run, [&](const EmbeddedRows& rows) {
      std::vector<data::VectorRow> written;
      for (size_t i = rows.begin; i < rows.end; ++i)
        written.push_back({rows.block.vector(i).data(), rows.block.texts[i].id});
      output.write(written, rows.block.texts[rows.end - 1].digest);
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
  EmbeddingOutput output({.path = options.output,
                          .dtype = options.dtype,
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
  const EmbeddingCounts counts = write_vectors(run, output);
  output.commit();
  say_about_texts(counts.full_texts, embedder.info().max_length, counts.replaced_bytes);
  json report = report_of(embedder, counts, output.rows());
  report["output"] = options.output;
  emit(report);
  return kOk;
}

int run_to_stdout(const EmbedOptions& options, const engine::Embedder& embedder, data::TextReader& reader) {
  const EmbeddingRun run{.embedder = embedder, .reader = reader, .token_budget = options.embedder.options.token_budget};
  const EmbeddingCounts counts = embed_texts(run, [&](const EmbeddedRows& rows) {
    for (size_t i = rows.begin; i < rows.end; ++i) {
      const int64_t index = rows.block.first + static_cast<int64_t>(i);
      emit_line(vector_line(index, rows.block.texts[i].id, rows.block.vector(i)));
    }
  });
  say_about_texts(counts.full_texts, embedder.info().max_length, counts.replaced_bytes);
  return kOk;
}

int run_texts(const EmbedOptions& options, const engine::Embedder& embedder) {
  const auto dimensions = static_cast<size_t>(embedder.info().dimensions);
  const std::vector<std::string_view> texts(options.texts.begin(), options.texts.end());
  std::vector<float> vectors(texts.size() * dimensions);
  embedder.embed(texts, vectors.data());
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::string quoted = json(texts[i]).dump(-1, ' ', false, json::error_handler_t::replace);
    const auto vector = std::span(vectors).subspan(i * dimensions, dimensions);
    emit_line("{\"text\":" + quoted + "," + vector_line(static_cast<int64_t>(i), "", vector).substr(1));
  }
  return kOk;
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
  if (!options.texts.empty()) return run_texts(options, open_embedder(options.embedder, common));
  if (!options.output.empty()) {
    options.read.outputs = EmbeddingOutput::paths_of(options.output);
    options.read.replaced = options.output;
    if (!holds_ids(vector_format_of(options.output))) options.read.ids = data::Ids::kNotRead;
  }
  data::TextReader reader(options.read);
  check_outputs(options.read.outputs, {}, options.embedder.model_dir);
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
  return {"embed", "The vectors of texts", "roformer embed --model DIR --input texts.txt --output vectors.npy",
          Command::Seed::kNotUsed, configure_embed};
}

}  // namespace rf::cli
