// Prompts, and what a causal language model adds to them (rf/tasks/continuation.h).
#include "rf/tasks/continuation.h"

#include <algorithm>
#include <mutex>
#include <nlohmann/json.hpp>

#include "rf/engine/generator.h"
#include "rf/io/error.h"
#include "rf/io/printable.h"
#include "rf/model/rotary_decoder.h"

namespace rf::tasks {

namespace {

constexpr const char* kContinuationWhere = "generate";

// How a prompt begins and a text ends in the form of the tokenizer: "[CLS] text [SEP]".
struct Ends {
  std::vector<int32_t> before, after;
};

// model_stops: ids that the model's files name as ends.
Ends ends_of(const text::Tokenizer& tokenizer, const std::vector<int32_t>& model_stops) {
  using Part = text::SequenceTemplate::Part;
  Ends ends;
  bool is_after = false;
  for (const auto& piece : tokenizer.sequence_template().single) {
    if (piece.part == Part::kSpecial) (is_after ? ends.after : ends.before).push_back(piece.id);
    is_after = is_after || piece.part == Part::kFirst;
  }
  const int32_t eos = tokenizer.vocabulary().special().eos;
  if (ends.after.empty() && eos >= 0) ends.after.push_back(eos);
  for (const int32_t id : model_stops) {
    if (std::ranges::find(ends.after, id) == ends.after.end()) ends.after.push_back(id);
  }
  return ends;
}

}  // namespace

struct Continuer::Impl {
  text::Tokenizer tokenizer;
  engine::Model model;
  Ends ends;
  // Generators that no call uses; each keeps its cache for the next.
  std::mutex mutex;
  std::vector<engine::Generator> idle;

  Impl(const std::string& model_dir, const ContinuerOptions& options)
      : tokenizer(text::Tokenizer::load(gguf_path(model_dir).value_or(model_dir), options.load)),
        model(model_dir, {.precision = options.precision, .warn = options.note}),
        ends(ends_of(tokenizer, model.info().stop_ids)) {
    // Rotary decoders often have more rows than tokens.
    const int64_t tokens = tokenizer.vocabulary().size(), rows = model.info().vocab_size;
    if (is_rotary_decoder(model_dir) ? rows < tokens : rows != tokens) {
      fail(kContinuationWhere, "vocab_size of {} must be its vocabulary's {}, got {}", model_dir,
           tokenizer.vocabulary().size(), model.info().vocab_size);
    }
    idle.emplace_back(model);  // refuses models that are not causal
  }

  engine::Generator take_generator() {
    const std::lock_guard lock(mutex);
    if (idle.empty()) return engine::Generator(model);
    engine::Generator generator = std::move(idle.back());
    idle.pop_back();
    return generator;
  }
  void give_back(engine::Generator generator) {
    const std::lock_guard lock(mutex);
    idle.push_back(std::move(generator));
  }

  std::vector<int32_t> tokens_of(const std::string& prompt) const {
    text::Encoding encoding;
    tokenizer.encode(prompt, encoding);
    std::vector<int32_t> ids = ends.before;
    ids.insert(ids.end(), encoding.ids.begin(), encoding.ids.end());
    if (model.info().prefix_lm) ids.insert(ids.end(), ends.after.begin(), ends.after.end());
    return ids;
  }

  std::vector<int32_t> prompt_ids(const std::string& prompt) const {
    std::vector<int32_t> ids = tokens_of(prompt);
    if (ids.empty()) {
      constexpr auto kReplace = nlohmann::json::error_handler_t::replace;
      fail<ArgumentError>(kContinuationWhere, "a prompt must have at least one token, got {}",
                          nlohmann::json(prompt).dump(-1, ' ', false, kReplace));
    }
    return ids;
  }

  std::vector<std::vector<engine::Generated>> generate(const std::vector<std::vector<int32_t>>& prompts,
                                                       const engine::GenerationOptions& options) {
    engine::Generator generator = take_generator();
    auto generated = generator.generate(prompts, options);
    give_back(std::move(generator));
    return generated;
  }

  Continuation continuation_of(const std::vector<int32_t>& prompt, const engine::Generated& generated) const {
    return {.text = new_text(prompt, generated.ids),
            .ids = generated.ids,
            .log_probability = generated.log_probability,
            .score = generated.score,
            .stopped = generated.stopped};
  }

  // What the new tokens add to the text; a text of its own where the prompt is the prefix.
  std::string new_text(const std::vector<int32_t>& prompt, const std::vector<int32_t>& added) const {
    if (model.info().prefix_lm) return tokenizer.decode(added, text::SkipSpecials::kYes);
    std::vector<int32_t> all = prompt;
    all.insert(all.end(), added.begin(), added.end());
    std::erase_if(all, [&](int32_t id) { return id >= tokenizer.vocabulary().size(); });  // rows without a token
    const std::string before = tokenizer.decode(prompt, text::SkipSpecials::kYes);
    const std::string text = tokenizer.decode(all, text::SkipSpecials::kYes);
    return text.starts_with(before) ? text.substr(before.size()) : tokenizer.decode(added, text::SkipSpecials::kYes);
  }
};

Continuer::Continuer(const std::string& model_dir, const ContinuerOptions& options)
    : impl_(std::make_unique<Impl>(model_dir, options)) {}
Continuer::~Continuer() = default;
Continuer::Continuer(Continuer&&) noexcept = default;
Continuer& Continuer::operator=(Continuer&&) noexcept = default;

const std::vector<int32_t>& Continuer::stop_ids() const {
  return impl_->ends.after;
}

std::vector<int32_t> Continuer::ids_of(std::span<const std::string> tokens, const std::string& name) const {
  std::vector<int32_t> ids;
  for (const std::string& token : tokens) {
    const int32_t id = impl_->tokenizer.vocabulary().find(token);
    if (id < 0) {
      fail<ArgumentError>(kContinuationWhere, "{} must be a token of the vocabulary, got {}", name,
                          io::printable(token));
    }
    ids.push_back(id);
  }
  return ids;
}

bool Continuer::has_tokens(const std::string& prompt) const {
  return !impl_->tokens_of(prompt).empty();
}

std::vector<std::vector<Continuation>> Continuer::continue_prompts(std::span<const std::string> prompts,
                                                                   const engine::GenerationOptions& options) const {
  std::vector<std::vector<int32_t>> ids;
  for (const std::string& prompt : prompts) ids.push_back(impl_->prompt_ids(prompt));
  const auto generated = impl_->generate(ids, options);
  std::vector<std::vector<Continuation>> results(prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i) {
    for (const engine::Generated& each : generated[i]) results[i].push_back(impl_->continuation_of(ids[i], each));
  }
  return results;
}

Continuation Continuer::stream(const std::string& prompt, const engine::GenerationOptions& options,
                               const std::function<void(const std::string& text)>& take) const {
  constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // of a character whose last bytes are still to come
  const std::vector<int32_t> ids = impl_->prompt_ids(prompt);
  std::vector<int32_t> added;
  std::string passed;
  const auto pass_on = [&](const std::string& text) {
    if (!text.starts_with(passed) || text.size() == passed.size()) return;
    take(text.substr(passed.size()));
    passed = text;
  };
  engine::GenerationOptions streaming = options;
  streaming.on_token = [&](int32_t token) {
    added.push_back(token);
    const std::string text = impl_->new_text(ids, added);
    if (!text.ends_with(kReplacement)) pass_on(text);
  };
  Continuation result = impl_->continuation_of(ids, impl_->generate({ids}, streaming)[0][0]);
  pass_on(result.text);
  return result;
}

}  // namespace rf::tasks
