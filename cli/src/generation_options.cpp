// Options of the commands that write text with a causal language model (see the header).
#include "generation_options.h"

#include <filesystem>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "read_options.h"
#include "rf/io/error.h"
#include "rf/model/run_checkpoints.h"

namespace rf::cli {

void add_text_options(CLI::App& app, TextOptions& options) {
  engine::GenerationOptions& generation = options.generation;
  app.add_option("--model", options.model_dir, "Directory of a causal language model, or a GGUF file")->required();
  add_default(app, "--min-new-tokens", generation.min_new_tokens, "Minimum number of new tokens");
  app.add_flag("--sample", options.sample,
               "Sample; implied by --temperature, --top-k and --top-p. Default: greedy search");
  add_default(app, "--temperature", generation.temperature, "Sampling temperature, which divides the logits");
  add_default(app, "--top-k", generation.top_k, "Draw from the k most probable tokens only; 0: all");
  add_default(app, "--top-p", generation.top_p,
              "Nucleus sampling: draw from the smallest set of tokens whose total probability is at least p; 1: all");
  add_default(app, "--repetition-penalty", generation.repetition_penalty,
              "Above 1, tokens that occur already, in the prompt too, become less probable");
  add_default(app, "--presence-penalty", generation.presence_penalty,
              "Subtracted once from the logit of each token that the new text has");
  add_default(app, "--frequency-penalty", generation.frequency_penalty, "The same, for each occurrence");
  app.add_option("--stop", options.stops,
                 "Stop string (kept in the text) or special token; may be given several times; default: the "
                 "tokenizer's end tokens, such as [SEP]")
      ->allow_extra_args(false);
  app.add_flag("--no-stop", options.no_stop, "Nothing ends a text before --max-new-tokens");
  app.add_option("--draft", options.draft,
                 "Draft model for speculative decoding: a directory or GGUF file with the same vocabulary; greedy "
                 "texts stay the same, sampled ones keep their distribution")
      ->type_name("DIR");
  add_default(app, "--draft-tokens", generation.draft_tokens, "Tokens that the draft model proposes at each step")
      ->needs("--draft");
  app.add_option("--prompt-cache", options.prompt_cache,
                 "File with the KV cache of a prompt's first tokens; read if it exists, then updated")
      ->type_name("FILE");
  add_precision(app, options.precision);
  add_cache_precision(app, options.cache_precision);
  add_dictionary(app, options.load);
}

void add_beam_options(CLI::App& app, TextOptions& options) {
  engine::GenerationOptions& generation = options.generation;
  app.add_option("--beams", generation.beams, "Beam search with so many beams");
  add_default(app, "--length-penalty", generation.length_penalty,
              "Beams are ranked by log-probability over tokens^penalty");
  add_default(app, "--num-return-sequences", generation.return_sequences,
              "Results per prompt: 1 for greedy search, at most --beams (the best) for beam search");
}

void finish_text_options(const CLI::App& app, const Common& common, TextOptions& options) {
  const std::string where = app.get_name();
  const auto given = [&](const char* name) {
    const CLI::Option* const option = app.get_option_no_throw(name);
    return option != nullptr && option->count() > 0;
  };
  std::string sampling;
  for (const char* name : {"--top-p", "--top-k", "--temperature", "--sample"}) {
    if (given(name)) sampling = name;
  }
  const bool has_beams = given("--beams");
  if (has_beams && !sampling.empty()) fail_usage(where, "--beams must be without sampling, got {}", sampling);
  if (!has_beams && given("--length-penalty")) fail_usage(where, "--length-penalty must be with --beams, got none");
  if (sampling.empty() && given("--seed"))
    fail_usage(where, "--seed must be with sampling (--sample, --temperature, --top-k or --top-p), got none");
  if (sampling.empty() && !has_beams && options.generation.return_sequences != 1) {
    fail_usage(where, "--num-return-sequences must be 1 without sampling and --beams, got {}",
               options.generation.return_sequences);
  }
  for (const auto& [name, path] : {std::pair("--draft", &options.draft), {"--prompt-cache", &options.prompt_cache}}) {
    if (given(name) && path->empty()) fail_usage(where, "{} must be a path, got \"\"", name);
  }
  if (!options.draft.empty() && (has_beams || options.generation.return_sequences != 1)) {
    fail_usage(where, "--draft must be without --beams and --num-return-sequences, got {}",
               has_beams ? "--beams" : "--num-return-sequences");
  }
  if (!options.stops.empty() && options.no_stop) fail_usage(where, "--no-stop must be without --stop, got both");
  options.generation.search = has_beams          ? engine::Search::kBeams
                              : sampling.empty() ? engine::Search::kGreedy
                                                 : engine::Search::kSample;
  options.generation.seed = common.seed.value_or(0);
  try {
    engine::check_options(options.generation, /*vocab_size=*/0);
  } catch (const Error& error) {
    const std::string_view message = error.what();
    fail_usage(where, "{}", message.substr(message.find(' ') + 1));
  }
}

std::string draft_text(const engine::Drafted& before, const engine::Drafted& after) {
  const int64_t proposed = after.proposed - before.proposed;
  return proposed == 0 ? ""
                       : fmt::format("draft: {} of {} tokens accepted", after.accepted - before.accepted, proposed);
}

std::string ShownAnswer::shown(const tasks::AnswerReader::Part& part) {
  reasoning_ += part.reasoning;
  const bool is_between = !reasoning_.empty() && content_.empty() && !part.content.empty();
  content_ += part.content;
  return part.reasoning + (is_between ? "\n\n" : "") + part.content;
}

tasks::Continuer open_continuer(const TextOptions& options) {
  check_dictionaries(options.load);
  const auto folder = std::filesystem::path(options.prompt_cache).parent_path();
  if (!folder.empty() && !std::filesystem::is_directory(folder))
    fail(options.prompt_cache, "a prompt cache must be in a folder that exists, got {}", folder.string());
  tasks::Continuer continuer(model_of_run(options.model_dir, say),
                             {.precision = options.precision,
                              .cache_precision = options.cache_precision,
                              .draft = options.draft.empty() ? "" : model_of_run(options.draft, say),
                              .load = options.load,
                              .note = warn_user});
  if (!options.prompt_cache.empty()) continuer.read_prompt_cache(options.prompt_cache);
  return continuer;
}

tasks::Stops stops_of(const TextOptions& options, const tasks::Continuer& continuer) {
  if (options.no_stop) return {};
  return options.stops.empty() ? continuer.default_stops() : continuer.stops_of(options.stops, "--stop");
}

}  // namespace rf::cli
