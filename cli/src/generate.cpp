// roformer generate: a causal language model continues prompts.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "command.h"
#include "read_options.h"
#include "rf/data/reader.h"
#include "rf/engine/generator.h"
#include "rf/io/error.h"
#include "rf/model/run_checkpoints.h"
#include "rf/tasks/continuation.h"

namespace rf::cli {

namespace {

constexpr const char* kGenerateWhere = "generate";

struct GenerateOptions {
  std::string model_dir;
  std::vector<std::string> prompts, stops;
  data::ReadOptions read;
  text::LoadOptions load;
  engine::Precision precision = engine::Precision::kFloat32;
  engine::GenerationOptions generation;
  bool sample = false, no_stop = false, stream = false;
};

tasks::Stops stops_of(const GenerateOptions& options, const tasks::Continuer& continuer) {
  if (options.no_stop) return {};
  return options.stops.empty() ? continuer.default_stops() : continuer.stops_of(options.stops, "--stop");
}

// Continues prompts and writes their results, in order.
class Writer {
 public:
  Writer(const GenerateOptions& options, const tasks::Continuer& continuer)
      : generation_(options.generation),
        continuer_(continuer),
        stops_(stops_of(options, continuer)),
        empty_(options.read.inputs.empty() ? tasks::EmptyPrompts::kRefused : tasks::EmptyPrompts::kWithoutResult) {}

  void add(std::string prompt) { hold({.text = std::move(prompt)}); }
  // A prompt of an input: one line or record, unchanged. A prompt without tokens or a bad record gets an error as its
  // result, so that the others still get theirs.
  void add(const data::SourceText& source) {
    Prompt prompt{.text = std::string(source.text), .place = fmt::format("{} line {}", source.source, source.line)};
    if (!source.id.empty()) prompt.id = nlohmann::json::parse(source.id);
    if (!source.problem.empty()) prompt.problem = fmt::format("[input] {} {}", prompt.place, source.problem);
    hold(std::move(prompt));
  }

  void finish() {
    std::vector<std::string> asked;
    for (const Prompt& each : prompts_) {
      if (each.problem.empty()) asked.push_back(each.text);
    }
    const auto results = continuer_.continue_prompts(asked, generation_, stops_, empty_);
    auto result = results.begin();
    for (Prompt& each : prompts_) {
      if (each.problem.empty()) {
        if (result->empty()) {
          each.problem = fmt::format("[input] {} must have a prompt of at least one token, got none", each.place);
        }
        for (size_t r = 0; r < result->size(); ++r) write(each, r, (*result)[r]);
        ++result;
      }
      if (!each.problem.empty()) {
        nlohmann::json line = {{"index", index_}, {"prompt", each.text}, {"error", each.problem}};
        if (!each.id.is_null()) line["id"] = each.id;
        emit(line);
        ++refused_;
      }
      ++index_;
    }
    prompts_.clear();
  }
  int64_t refused() const { return refused_; }

 private:
  struct Prompt {
    std::string text;
    std::string place{};    // of an input
    std::string problem{};  // why the prompt is missing; empty if it exists
    nlohmann::json id{};    // of its record; null if absent
  };

  void hold(Prompt prompt) {
    prompts_.push_back(std::move(prompt));
    // Holds several batches, so that the next prompt takes the place of a finished one.
    if (std::ssize(prompts_) / 4 >= generation_.batch) finish();
  }

  void write(const Prompt& prompt, size_t sequence, const tasks::Continuation& result) const {
    nlohmann::json line = {{"index", index_},          {"sequence", sequence},
                           {"prompt", prompt.text},    {"text", result.text},
                           {"ids", result.ids},        {"log_probability", result.log_probability},
                           {"stopped", result.stopped}};
    if (!prompt.id.is_null()) line["id"] = prompt.id;
    if (generation_.search == engine::Search::kBeams) line["score"] = result.score;
    emit(line);
  }

  const engine::GenerationOptions& generation_;
  const tasks::Continuer& continuer_;
  const tasks::Stops stops_;
  const tasks::EmptyPrompts empty_;
  int64_t index_ = 0;  // of the first held prompt
  int64_t refused_ = 0;
  std::vector<Prompt> prompts_;
};

int run_generate(const GenerateOptions& options) {
  check_dictionaries(options.load);
  const tasks::Continuer continuer(model_of_run(options.model_dir, say),
                                   {.precision = options.precision, .load = options.load, .note = warn_user});
  if (options.stream) {
    auto stream = continuer.stream(options.prompts[0], options.generation, stops_of(options, continuer));
    while (const auto part = stream.next()) emit_lines(*part);
    emit_lines("\n");
    return kOk;
  }
  Writer writer(options, continuer);
  for (const std::string& prompt : options.prompts) writer.add(prompt);
  if (!options.read.inputs.empty()) {
    data::TextReader(options.read).read([&](const data::SourceText& source) { writer.add(source); });
  }
  writer.finish();
  if (writer.refused() > 0) {
    say(fmt::format("{} of the prompts have an error as their result: no token, or a bad record", writer.refused()));
  }
  return kOk;
}

void check_stream(const CLI::App& app, const GenerateOptions& options) {
  if (!options.stream) return;
  if (options.prompts.size() != 1) {
    fail_usage(kGenerateWhere, "--stream must be with one --prompt, got {}", options.prompts.size());
  }
  if (app.count("--beams") > 0 || options.generation.return_sequences != 1) {
    fail_usage(kGenerateWhere, "--stream must be without --beams and --num-return-sequences, got {}",
               app.count("--beams") > 0 ? "--beams" : "--num-return-sequences");
  }
}

// Selects the search from the options. Options that the selected search would ignore are refused.
engine::Search search_of(const CLI::App& app, const GenerateOptions& options) {
  const auto given = [&](const char* name) { return app.count(name) > 0; };
  const auto first_of = [&](std::initializer_list<const char*> names) {
    for (const char* name : names) {
      if (given(name)) return name;
    }
    return "";
  };
  const std::string sampling = first_of({"--sample", "--temperature", "--top-k", "--top-p"});
  if (given("--beams") && !sampling.empty()) {
    fail_usage(kGenerateWhere, "--beams must be without sampling, got {}", sampling);
  }
  if (const std::string of_beams = first_of({"--length-penalty"}); !given("--beams") && !of_beams.empty()) {
    fail_usage(kGenerateWhere, "{} must be with --beams, got none", of_beams);
  }
  if (sampling.empty() && given("--seed")) {
    fail_usage(kGenerateWhere, "--seed must be with sampling (--sample, --temperature, --top-k or --top-p), got none");
  }
  if (sampling.empty() && !given("--beams") && options.generation.return_sequences != 1) {
    fail_usage(kGenerateWhere, "--num-return-sequences must be 1 without sampling and --beams, got {}",
               options.generation.return_sequences);
  }
  if (!options.stops.empty() && options.no_stop)
    fail_usage(kGenerateWhere, "--no-stop must be without --stop, got both");
  return given("--beams")   ? engine::Search::kBeams
         : sampling.empty() ? engine::Search::kGreedy
                            : engine::Search::kSample;
}

void add_search_options(CLI::App& app, GenerateOptions& options) {
  engine::GenerationOptions& generation = options.generation;
  add_default(app, "--max-new-tokens", generation.max_new_tokens, "Tokens at most, up to 2^30");
  add_default(app, "--min-new-tokens", generation.min_new_tokens, "No end before so many tokens");
  app.add_flag("--sample", options.sample,
               "Draw each token from its distribution; so do the next three options. Without them, and without "
               "--beams, it is the most probable one");
  add_default(app, "--temperature", generation.temperature, "Divides the logits; below 1 probable tokens gain");
  add_default(app, "--top-k", generation.top_k, "Draw from the k most probable tokens only; 0: all");
  add_default(app, "--top-p", generation.top_p, "Draw from the fewest tokens whose probability is at least p");
  add_default(app, "--repetition-penalty", generation.repetition_penalty,
              "Above 1, tokens that occur already, in the prompt too, become less probable");
  app.add_option("--beams", generation.beams, "Beam search with so many beams");
  add_default(app, "--length-penalty", generation.length_penalty,
              "Beams are ranked by log-probability over tokens^penalty");
  add_default(app, "--num-return-sequences", generation.return_sequences, "Results for each prompt; beams: the best");
  app.add_option(
         "--stop", options.stops,
         "A string that ends a text, which keeps it, or a special token; may be given several times; default: what "
         "ends a text in the tokenizer, as [SEP]")
      ->allow_extra_args(false);
  app.add_flag("--no-stop", options.no_stop, "Nothing ends a text before --max-new-tokens");
  app.add_flag("--stream", options.stream, "Write the text of one --prompt as it is found, in place of a JSON line");
  add_default(app, "--batch", generation.batch, "Sequences that are computed at once; no result depends on it");
}

std::function<int()> configure_generate(CLI::App& app, const Common& common) {
  auto options = std::make_shared<GenerateOptions>();
  app.add_option("--model", options->model_dir, "Directory of a causal language model, or a GGUF file")->required();
  app.add_option("--prompt", options->prompts, "Text to continue; may be given several times")->allow_extra_args(false);
  add_read_options(app, options->read);
  app.get_option("--input")->required(false)->description(
      "Prompts, one per line or record, as they stand: files, directories, patterns, or - for standard input");
  app.get_option("--skip-bad-records")->description("Give a damaged record an error as its result, and go on");
  add_id_field(app, options->read);
  add_search_options(app, *options);
  add_precision(app, options->precision);
  add_dictionary(app, options->load);
  return [&app, &common, options] {
    if (options->prompts.empty() == options->read.inputs.empty()) {
      fail_usage(kGenerateWhere, "either --prompt or --input must be given, got {}",
                 options->prompts.empty() ? "none" : "both");
    }
    check_stream(app, *options);
    options->generation.search = search_of(app, *options);
    options->generation.seed = common.seed.value_or(0);
    return run_generate(*options);
  };
}

}  // namespace

Command generate_command() {
  return {"generate", "Texts that a causal language model continues",
          "roformer generate --model run --prompt 'The people' --temperature 0.8 --top-p 0.9 --seed 1",
          Command::Seed::kUsed, configure_generate};
}

}  // namespace rf::cli
