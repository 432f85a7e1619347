// Prompts, and what a causal language model adds to them (rf/tasks/continuation.h).
#include "rf/tasks/continuation.h"

#include <algorithm>
#include <mutex>
#include <nlohmann/json.hpp>

#include "rf/engine/generator.h"
#include "rf/io/error.h"
#include "rf/io/printable.h"
#include "rf/io/utf8.h"
#include "rf/io/warning.h"
#include "rf/model/model_types.h"
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

text::Tokenizer load_tokenizer(const std::string& model_dir, const ContinuerOptions& options) {
  const io::WarningScope scope(options.note);
  check_model_type(model_dir);
  return text::Tokenizer::load(gguf_path(model_dir).value_or(model_dir), options.load);
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
      : tokenizer(load_tokenizer(model_dir, options)),
        model(model_dir, {.precision = options.precision, .warn = options.note}),
        ends(ends_of(tokenizer, model.info().stop_ids)) {
    // Models often have more rows than tokens.
    const int64_t tokens = tokenizer.vocabulary().size(), rows = model.info().vocab_size;
    if (rows < tokens) {
      fail(kContinuationWhere, "vocab_size of {} must be at least its vocabulary's {}, got {}", model_dir, tokens,
           rows);
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
    return {.text = new_text(prompt, decode(prompt).text, generated.ids).text,
            .ids = generated.ids,
            .log_probability = generated.log_probability,
            .score = generated.score,
            .stopped = generated.stopped};
  }

  text::DecodedText decode(std::vector<int32_t> ids) const {
    std::erase_if(ids, [&](int32_t id) { return id >= tokenizer.vocabulary().size(); });  // rows without a token
    return tokenizer.decode_beginning(ids, text::SkipSpecials::kYes);
  }

  // What the new tokens add to the prompt, whose text is `before`; a text of its own where the prompt is the prefix, or
  // where the new tokens change the prompt's text.
  text::DecodedText new_text(const std::vector<int32_t>& prompt, const std::string& before,
                             const std::vector<int32_t>& added) const {
    if (model.info().prefix_lm) return decode(added);
    std::vector<int32_t> all = prompt;
    all.insert(all.end(), added.begin(), added.end());
    const text::DecodedText whole = decode(std::move(all));
    const auto same = static_cast<size_t>(std::ranges::mismatch(whole.text, before).in1 - whole.text.begin());
    if (same == before.size()) {
      return {whole.text.substr(same), whole.settled > same ? whole.settled - same : 0};
    }
    text::DecodedText own = decode(added);
    if (same >= whole.settled) own.settled = 0;  // the prompt's text may yet stay
    return own;
  }

  // Whether the last of the new tokens completes one of the strings.
  bool ends_with_one(std::span<const int32_t> prompt, std::span<const int32_t> added,
                     const std::vector<std::string>& strings) const {
    constexpr size_t kContext = 8;  // tokens of the prompt that tell how the first new one is joined to it
    const std::vector<int32_t> context(prompt.end() - static_cast<int64_t>(std::min(kContext, prompt.size())),
                                       prompt.end());
    const std::string before = decode(context).text;
    const std::string earlier = new_text(context, before, {added.begin(), added.end() - 1}).text;
    const std::string text = new_text(context, before, {added.begin(), added.end()}).text;
    const auto same = static_cast<size_t>(std::ranges::mismatch(text, earlier).in1 - text.begin());
    return std::ranges::any_of(strings, [&](const std::string& each) {
      return text.find(each, same < each.size() ? 0 : same - each.size() + 1) != std::string::npos;
    });
  }

  engine::GenerationOptions with_stops(engine::GenerationOptions options, const Stops& stops) const {
    options.stop_ids = stops.ids;
    if (!stops.texts.empty()) {
      options.is_end = [this, texts = stops.texts](std::span<const int32_t> prompt, std::span<const int32_t> added) {
        return ends_with_one(prompt, added, texts);
      };
    }
    return options;
  }
};

struct ContinuationStream::Impl {
  Continuer::Impl& continuer;
  engine::Generator generator;
  std::vector<int32_t> prompt;
  std::string before;  // the prompt's text
  std::vector<int32_t> added{};
  std::string shown{};
  Continuation result{};
  bool is_done = false;

  // What has become settled since the last call.
  std::string advance() {
    is_done = !generator.step();
    std::string text;
    if (is_done) {
      result = continuer.continuation_of(prompt, generator.take()[0][0]);
      continuer.give_back(std::move(generator));
      text = result.text;
    } else {
      text::DecodedText found = continuer.new_text(prompt, before, added);
      text = std::move(found.text);
      text.resize(found.settled);
    }
    return text.size() > shown.size() ? text.substr(shown.size()) : "";
  }
};

ContinuationStream::ContinuationStream(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ContinuationStream::~ContinuationStream() = default;
ContinuationStream::ContinuationStream(ContinuationStream&&) noexcept = default;
ContinuationStream& ContinuationStream::operator=(ContinuationStream&&) noexcept = default;

std::optional<std::string> ContinuationStream::next() {
  while (!impl_->is_done) {
    const std::string part = impl_->advance();
    impl_->shown += part;
    if (!part.empty()) return part;
  }
  return std::nullopt;
}

const Continuation& ContinuationStream::result() const {
  return impl_->result;
}

Continuer::Continuer(const std::string& model_dir, const ContinuerOptions& options)
    : impl_(std::make_unique<Impl>(model_dir, options)) {}
Continuer::~Continuer() = default;
Continuer::Continuer(Continuer&&) noexcept = default;
Continuer& Continuer::operator=(Continuer&&) noexcept = default;

Stops Continuer::default_stops() const {
  return {impl_->ends.after, {}};
}

Stops Continuer::stops_of(std::span<const std::string> given, const std::string& name) const {
  Stops stops;
  for (const std::string& each : given) {
    if (each.empty()) fail<ArgumentError>(kContinuationWhere, "{} must have at least one character, got \"\"", name);
    if (!is_utf8(each)) fail<ArgumentError>(kContinuationWhere, "{} must be UTF-8, got {}", name, io::printable(each));
    stops.texts.push_back(each);
    const int32_t id = impl_->tokenizer.vocabulary().find(each);
    if (id >= 0) stops.ids.push_back(id);
  }
  return stops;
}

bool Continuer::has_tokens(const std::string& prompt) const {
  return !impl_->tokens_of(prompt).empty();
}

std::vector<std::vector<Continuation>> Continuer::continue_prompts(std::span<const std::string> prompts,
                                                                   const engine::GenerationOptions& options,
                                                                   const Stops& stops) const {
  std::vector<std::vector<int32_t>> ids;
  for (const std::string& prompt : prompts) ids.push_back(impl_->prompt_ids(prompt));
  const auto generated = impl_->generate(ids, impl_->with_stops(options, stops));
  std::vector<std::vector<Continuation>> results(prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i) {
    for (const engine::Generated& each : generated[i]) results[i].push_back(impl_->continuation_of(ids[i], each));
  }
  return results;
}

ContinuationStream Continuer::stream(const std::string& prompt, const engine::GenerationOptions& options,
                                     const Stops& stops) const {
  using StreamImpl = ContinuationStream::Impl;
  std::vector<int32_t> ids = impl_->prompt_ids(prompt);
  std::string before = impl_->decode(ids).text;
  auto stream = std::make_unique<StreamImpl>(StreamImpl{
      .continuer = *impl_, .generator = impl_->take_generator(), .prompt = ids, .before = std::move(before)});
  engine::GenerationOptions streaming = impl_->with_stops(options, stops);
  streaming.on_token = [added = &stream->added](int32_t token) { added->push_back(token); };
  stream->generator.begin({std::move(ids)}, streaming);
  return ContinuationStream(std::move(stream));
}

}  // namespace rf::tasks
