// Options of the commands that turn texts into vectors (embedder_options.h).
#include "embedder_options.h"

#include <map>

#include "command_line.h"
#include "read_options.h"
#include "rf/engine/names.h"
#include "rf/io/processors.h"
#include "rf/model/run_checkpoints.h"

namespace rf::cli {

namespace {

using engine::LongTexts;
using engine::Pooling;

const std::map<std::string, Pooling> kPoolings(engine::kPoolingNames.begin(), engine::kPoolingNames.end());
const std::map<std::string, engine::VectorKind> kVectors(engine::kVectorNames.begin(), engine::kVectorNames.end());
const std::map<std::string, engine::TextRole> kRoles(engine::kRoleNames.begin(), engine::kRoleNames.end());

void add_poolings(CLI::App& app, engine::EmbedderOptions& options) {
  app.add_option_function<std::vector<std::string>>(
         "--pooling",
         [&options](const std::vector<std::string>& names) {
           for (const std::string& name : names) {
             const auto found = kPoolings.find(name);
             if (found == kPoolings.end()) {
               throw CLI::ValidationError(
                   "--pooling",
                   fmt::format("must be cls, last, max, mean, mean-sqrt-len, pooler or weighted-mean, got {}",
                               io::printable(name)));
             }
             options.poolings.push_back(found->second);
           }
         },
         "Pooling of token vectors: cls, last, max, mean, mean-sqrt-len, pooler, weighted-mean; several, separated by "
         "commas, are concatenated; default: the model's, else mean (prefix language models: pooler)")
      ->type_name("NAMES")
      ->delimiter(',');
}

}  // namespace

void add_embedder_options(CLI::App& app, EmbedderArguments& arguments) {
  engine::EmbedderOptions& options = arguments.options;
  app.add_option("--model", arguments.model_dir, "Model directory, also one of sentence-transformers")->required();
  add_poolings(app, options);
  add_switch(app, "--normalize", options.normalize, true, "Vectors of length 1; default: as the model says");
  add_switch(app, "--no-normalize", options.normalize, false, "Vectors as they are")->excludes("--normalize");
  app.add_option("--dimensions", options.dimensions,
                 "Leading elements of each vector to keep (Matryoshka); normalized vectors are normalized again")
      ->check(integer_within(1));
  add_prompt(app, options, "Text before each text");
  add_choice<engine::TextRole>(
      app, "--role", options.role, "none",
      "Role of the texts: query, document or none; selects the model's prompt, modules and lengths", kRoles);
  app.add_option("--task", options.task,
                 "Task whose adapter is used (jina-embeddings-v3), with its prompt unless another is given")
      ->type_name("NAME");
  add_adapter(app, options.adapter);
  add_precision(app, options.precision);
  app.add_option("--max-length", options.max_length,
                 "Most tokens of a text, with special tokens; default: the model's, of the role or max_seq_length, "
                 "else what its tokenizer and positions allow")
      ->check(integer_within(1));
  add_choice<LongTexts>(
      app, "--long-texts", options.long_texts, "truncate",
      "Texts longer than --max-length: truncate (on the tokenizer's truncation_side) or refuse (an error)",
      {{"truncate", LongTexts::kTruncate}, {"refuse", LongTexts::kRefuse}});
  add_default(app, "--token-budget", options.token_budget, "Maximum tokens of a batch; affects memory, not results");
}

engine::Embedder open_embedder(const EmbedderArguments& arguments, const Common& common) {
  const int threads = common.threads > 0 ? common.threads : io::available_processors();
  engine::EmbedderOptions options = arguments.options;
  options.threads = engine::tokenizing_threads(threads);
  options.warn = warn_user;
  return engine::Embedder(model_of_run(arguments.model_dir, say), options);
}

std::string name_of(Pooling pooling) { return name_in(kPoolings, pooling); }
std::string name_of(engine::VectorKind vectors) { return name_in(kVectors, vectors); }
std::string name_of(engine::TextRole role) { return name_in(kRoles, role); }

void say_about_texts(int64_t full_texts, int64_t max_length, int64_t replaced_bytes) {
  if (full_texts > 0) {
    say(fmt::format("{} texts reached the limit of {} tokens; longer ones were truncated", full_texts, max_length));
  }
  if (replaced_bytes > 0) say(fmt::format("{} ill-formed UTF-8 sequences were read as U+FFFD", replaced_bytes));
}

}  // namespace rf::cli
