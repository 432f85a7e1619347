// roformer generate: a causal language model continues prompts.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "command.h"
#include "generation_options.h"
#include "read_options.h"
#include "rf/data/reader.h"
#include "rf/engine/generator.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/tasks/continuation.h"
#include "rf/tasks/json_schema.h"

namespace rf::cli {

namespace {

constexpr const char* kGenerateWhere = "generate";

using OrderedJson = nlohmann::ordered_json;

struct GenerateOptions : TextOptions {
  std::vector<std::string> prompts;
  data::ReadOptions read;
  std::string schema_path;
  bool chat = false, json = false, stream = false;
};

OrderedJson messages_of(const std::string& text) { return {{{"role", "user"}, {"content", text}}}; }

// The messages, after the one of --system.
OrderedJson with_system(const TextOptions& options, const OrderedJson& messages) {
  OrderedJson all = OrderedJson::array();
  if (!options.system.empty()) all.push_back({{"role", "system"}, {"content", options.system}});
  all.insert(all.end(), messages.begin(), messages.end());
  return all;
}

std::shared_ptr<const tasks::JsonSchema> schema_of(const GenerateOptions& options) {
  if (options.json) return std::make_shared<const tasks::JsonSchema>(tasks::JsonSchema::any_object());
  if (options.schema_path.empty()) return nullptr;
  const auto schema = OrderedJson::parse(io::read_file(options.schema_path), nullptr, /*allow_exceptions=*/false);
  if (schema.is_discarded())
    fail<ArgumentError>(kGenerateWhere, "--json-schema must be JSON, got {}", options.schema_path);
  return std::make_shared<const tasks::JsonSchema>(schema);
}

// The format of answers, without the changes that a prompt makes to it.
tasks::AnswerFormat format_of(const GenerateOptions& options, const tasks::Continuer& continuer) {
  return options.chat ? continuer.answer_format("", /*has_tools=*/false) : tasks::AnswerFormat();
}

tasks::PromptForm prompt_form(const GenerateOptions& options) {
  return options.chat ? tasks::PromptForm::kChat : tasks::PromptForm::kText;
}

tasks::ContinuationForm form_of(const GenerateOptions& options, const tasks::AnswerFormat& format) {
  return {.prompt = prompt_form(options),
          .empty = options.read.inputs.empty() ? tasks::EmptyPrompts::kRefused : tasks::EmptyPrompts::kWithoutResult,
          .schema = schema_of(options),
          .specials = format.specials()};
}

void check_length(const tasks::Continuer& continuer, const tasks::Continuation& result) {
  const int64_t most = continuer.max_length();
  if (most == 0 || result.tokens <= most) return;
  warn_user(fmt::format(
      "a prompt with its new tokens should have at most the {} tokens of the model's context, got more", most));
}

// Continues prompts and writes their results, in order.
class Writer {
 public:
  Writer(const GenerateOptions& options, const tasks::Continuer& continuer)
      : generation_(options.generation),
        continuer_(continuer),
        options_(options),
        stops_(stops_of(options, continuer)),
        format_(format_of(options, continuer)),
        form_(form_of(options, format_)) {}

  void add(std::string prompt) { hold({.text = std::move(prompt)}); }
  // A prompt of an input: one line or record, unchanged. A prompt without tokens or a bad record gets an error as its
  // result, so that the other prompts still get results.
  void add(const data::SourceText& source) {
    Prompt prompt{.text = std::string(source.text),
                  .place = fmt::format("{} line {}", source.source, source.line),
                  .is_list = source.is_list};
    if (!source.id.empty()) prompt.id = nlohmann::json::parse(source.id);
    if (!source.problem.empty()) prompt.problem = fmt::format("[input] {} {}", prompt.place, source.problem);
    hold(std::move(prompt));
  }

  void finish() {
    std::vector<std::string> asked;
    for (const Prompt& each : prompts_) {
      if (each.problem.empty()) asked.push_back(options_.chat ? each.chat : each.text);
    }
    tasks::ContinuationRun run = continuer_.begin(asked, generation_, stops_, form_);
    while (run.step()) {
    }
    const auto results = run.take();
    kept_ += run.kept_tokens();
    read_ += run.prompt_tokens();
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
  // Tokens of all prompts, and how many were not computed again: earlier prompts or the prompt cache had them.
  int64_t read() const { return read_; }
  int64_t kept() const { return kept_; }

 private:
  struct Prompt {
    std::string text;
    std::string place{};    // of an input
    std::string problem{};  // why the prompt is missing; empty if it exists
    nlohmann::json id{};    // of its record; null if absent
    bool is_list = false;   // JSON text of messages
    std::string chat{};     // with --chat: the model's input
  };

  void hold(Prompt prompt) {
    if (options_.chat && prompt.problem.empty()) {
      const auto messages = prompt.is_list ? OrderedJson::parse(prompt.text) : messages_of(prompt.text);
      try {
        prompt.chat = continuer_.chat(with_system(options_, messages), OrderedJson::object());
      } catch (const Error& error) {
        if (prompt.place.empty()) throw;
        prompt.problem = fmt::format("[input] {} must be a chat, got: {}", prompt.place, error.what());
      }
    }
    prompts_.push_back(std::move(prompt));
    // Holds several batches, so that the next prompt takes the place of a finished one.
    if (std::ssize(prompts_) / 4 >= generation_.batch) finish();
  }

  void write(const Prompt& prompt, size_t sequence, const tasks::Continuation& result) const {
    ShownAnswer answer(format_);
    answer.add(result.text);
    answer.finish();
    nlohmann::json line = {{"index", index_},          {"sequence", sequence},
                           {"prompt", prompt.text},    {"text", answer.content()},
                           {"ids", result.ids},        {"log_probability", result.log_probability},
                           {"stopped", result.stopped}};
    if (!prompt.id.is_null()) line["id"] = prompt.id;
    if (!answer.reasoning().empty()) line["reasoning"] = answer.reasoning();
    if (generation_.search == engine::Search::kBeams) line["score"] = result.score;
    emit(line);
    check_length(continuer_, result);
  }

  const engine::GenerationOptions& generation_;
  const tasks::Continuer& continuer_;
  const GenerateOptions& options_;
  const tasks::Stops stops_;
  const tasks::AnswerFormat format_;
  const tasks::ContinuationForm form_;
  int64_t index_ = 0;  // of the first held prompt
  int64_t refused_ = 0, read_ = 0, kept_ = 0;
  std::vector<Prompt> prompts_;
};

void say_draft(const tasks::Continuer& continuer) {
  const std::string text = draft_text({}, continuer.drafted());
  if (!text.empty()) say(text);
}

std::string only_prompt(const GenerateOptions& options, const tasks::Continuer& continuer) {
  if (!options.chat) return options.prompts[0];
  return continuer.chat(with_system(options, messages_of(options.prompts[0])), OrderedJson::object());
}

// The last token of a prompt is always computed.
void finish_cache(const GenerateOptions& options, const tasks::Continuer& continuer, const std::string& prompt,
                  int64_t read, int64_t kept) {
  say(fmt::format("{} of the prompt's {} tokens were in {}", kept, read, options.prompt_cache));
  if (kept + 1 < read) continuer.write_prompt_cache(options.prompt_cache, prompt, prompt_form(options));
}

int run_generate(const GenerateOptions& options) {
  const tasks::Continuer continuer = open_continuer(options);
  if (options.stream) {
    const std::string prompt = only_prompt(options, continuer);
    const tasks::AnswerFormat format = format_of(options, continuer);
    auto stream = continuer.stream(prompt, options.generation, stops_of(options, continuer), form_of(options, format));
    ShownAnswer shown(format);
    while (const auto part = stream.next()) emit_lines(shown.add(*part));
    emit_lines(shown.finish() + "\n");
    check_length(continuer, stream.result());
    say_draft(continuer);
    if (!options.prompt_cache.empty())
      finish_cache(options, continuer, prompt, stream.prompt_tokens(), stream.kept_tokens());
    return kOk;
  }
  Writer writer(options, continuer);
  for (const std::string& prompt : options.prompts) writer.add(prompt);
  if (!options.read.inputs.empty()) {
    data::TextReader(options.read).read([&](const data::SourceText& source) { writer.add(source); });
  }
  writer.finish();
  say_draft(continuer);
  if (!options.prompt_cache.empty())
    finish_cache(options, continuer, only_prompt(options, continuer), writer.read(), writer.kept());
  if (writer.refused() > 0) {
    say(fmt::format("{} of the prompts have an error as their result: no token, or a bad record", writer.refused()));
  }
  return kOk;
}

void check_stream(const CLI::App& app, const GenerateOptions& options) {
  for (const char* name : {"--prompt-cache", "--stream"}) {
    if (app.count(name) > 0 && options.prompts.size() != 1)
      fail_usage(kGenerateWhere, "{} must be with one --prompt, got {}", name, options.prompts.size());
  }
  if (!options.stream) return;
  if (app.count("--beams") > 0 || options.generation.return_sequences != 1) {
    fail_usage(kGenerateWhere, "--stream must be without --beams and --num-return-sequences, got {}",
               app.count("--beams") > 0 ? "--beams" : "--num-return-sequences");
  }
}

void check_schema(const CLI::App& app, const GenerateOptions& options) {
  if (!options.json && options.schema_path.empty()) return;
  for (const char* name : {"--beams", "--min-new-tokens"}) {
    if (app.count(name) > 0)
      fail_usage(kGenerateWhere, "{} must be without {}, got both", options.json ? "--json" : "--json-schema", name);
  }
}

std::function<int()> configure_generate(CLI::App& app, const Common& common) {
  auto options = std::make_shared<GenerateOptions>();
  app.add_option("--prompt", options->prompts, "Text to continue; may be given several times")->allow_extra_args(false);
  add_read_options(app, options->read);
  app.get_option("--input")->required(false)->description(
      "Prompts, one per line or record, as they stand: files, directories, patterns, or - for standard input");
  app.get_option("--skip-bad-records")->description("Give a damaged record an error as its result, and go on");
  add_id_field(app, options->read);
  app.add_flag("--chat", options->chat,
               "Each prompt is what a user says to the model, by its chat template; a field that is a list has the "
               "messages of a conversation");
  app.add_option("--system", options->system, "With --chat: the system message")->needs("--chat");
  add_text_options(app, *options);
  add_default(app, "--max-new-tokens", options->generation.max_new_tokens, "Maximum number of new tokens, up to 2^30");
  add_beam_options(app, *options);
  app.add_option("--json-schema", options->schema_path,
                 "File with a JSON schema that each text follows, unless --max-new-tokens cuts it; not with --beams or "
                 "--min-new-tokens")
      ->type_name("FILE");
  app.add_flag("--json", options->json, "The same, for any JSON object")->excludes("--json-schema");
  app.add_flag("--stream", options->stream, "Write the text of one --prompt as it is found, in place of a JSON line");
  add_default(app, "--batch", options->generation.batch, "Sequences per batch; affects speed, not results");
  return [&app, &common, options] {
    if (options->prompts.empty() == options->read.inputs.empty()) {
      fail_usage(kGenerateWhere, "either --prompt or --input must be given, got {}",
                 options->prompts.empty() ? "none" : "both");
    }
    check_stream(app, *options);
    check_schema(app, *options);
    options->read.lists = options->chat ? data::Lists::kRead : data::Lists::kRefused;
    finish_text_options(app, common, *options);
    return run_generate(*options);
  };
}

}  // namespace

Command generate_command() {
  return {"generate", "Generate text with a causal language model",
          "roformer generate --model run --prompt 'The people' --temperature 0.8 --top-p 0.9 --seed 1",
          Command::Seed::kUsed, configure_generate};
}

}  // namespace rf::cli
