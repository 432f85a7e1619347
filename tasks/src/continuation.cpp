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
#include "rf/model/foreign_models.h"
#include "rf/model/model_types.h"
#include "rf/text/chat_template.h"
#include "rf/text/decoding_stream.h"

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
  check_model_type(model_dir, Opens::kEncodersAndDecoders);
  return text::Tokenizer::load(gguf_path(model_dir).value_or(model_dir), options.load);
}

}  // namespace

struct Continuer::Impl {
  std::string path;
  text::Tokenizer tokenizer;
  engine::Model model;
  Ends ends;
  // Generators that no call uses; each keeps its cache for the next.
  std::mutex mutex;
  std::vector<engine::Generator> idle;
  std::optional<text::ChatTemplate> chat_template;  // read when it is asked for

  Impl(const std::string& model_dir, const ContinuerOptions& options)
      : path(gguf_path(model_dir).value_or(model_dir)),
        tokenizer(load_tokenizer(model_dir, options)),
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
    constexpr size_t kMostIdle = 4;
    const std::lock_guard lock(mutex);
    if (idle.size() < kMostIdle) idle.push_back(std::move(generator));
  }

  const text::ChatTemplate& read_template() {
    const std::lock_guard lock(mutex);
    if (!chat_template) chat_template = text::read_chat_template(path);
    if (!chat_template)
      fail<ArgumentError>(kContinuationWhere, "a chat must have a model with a chat template, got {}", path);
    return *chat_template;
  }

  std::vector<int32_t> tokens_of(const std::string& prompt, PromptForm form) const {
    text::Encoding encoding;
    tokenizer.encode(prompt, encoding);
    if (form == PromptForm::kChat) return std::move(encoding.ids);
    std::vector<int32_t> ids = ends.before;
    ids.insert(ids.end(), encoding.ids.begin(), encoding.ids.end());
    if (model.info().prefix_lm) ids.insert(ids.end(), ends.after.begin(), ends.after.end());
    return ids;
  }

  std::vector<int32_t> prompt_ids(const std::string& prompt, PromptForm form) const {
    std::vector<int32_t> ids = tokens_of(prompt, form);
    if (ids.empty()) {
      constexpr auto kReplace = nlohmann::json::error_handler_t::replace;
      fail<ArgumentError>(kContinuationWhere, "a prompt must have at least one token, got {}",
                          nlohmann::json(prompt).dump(-1, ' ', false, kReplace));
    }
    return ids;
  }

  Continuation continuation_of(const std::vector<int32_t>& prompt, const engine::Generated& generated) const {
    NewText added(*this, prompt);
    for (const int32_t id : generated.ids) added.add(id);
    return {.text = std::string(added.text().text),
            .ids = generated.ids,
            .log_probability = generated.log_probability,
            .score = generated.score,
            .stopped = generated.stopped};
  }

  bool has_token(int32_t id) const { return id < tokenizer.vocabulary().size(); }  // models may have more rows

  // A token of bytes may be written as the string and have another text: "½" is the letter of the byte 0xBD.
  bool stands_for(int32_t id, const std::string& string) const {
    const auto is_same = [&](const text::AddedToken& token) { return token.content == string; };
    return std::ranges::any_of(tokenizer.added_tokens(), is_same) || tokenizer.decode({id}) == string;
  }

  // What new tokens add to a prompt as they come; a text of its own where the prompt is the prefix, or where the new
  // tokens change the prompt's text.
  class NewText {
   public:
    NewText(const Impl& continuer, std::span<const int32_t> prompt)
        : continuer_(continuer),
          whole_(continuer.tokenizer, text::SkipSpecials::kYes),
          own_(continuer.tokenizer, text::SkipSpecials::kYes) {
      if (continuer.model.info().prefix_lm) {
        use_ = Use::kOwn;
        return;
      }
      for (const int32_t id : prompt) {
        if (continuer.has_token(id)) whole_.add(id);
      }
      before_ = whole_.text().text;
    }

    void add(int32_t id) {
      if (!continuer_.has_token(id)) return;
      if (use_ != Use::kOwn) whole_.add(id);
      if (use_ != Use::kWhole) own_.add(id);
    }

    struct View {
      std::string_view text;
      size_t settled;  // bytes at its front that stay
    };
    // Valid until the next call.
    View text() {
      if (use_ == Use::kOwn) return view(own_, 0);
      if (use_ == Use::kWhole) return view(whole_, before_.size());
      const text::DecodedText& whole = whole_.text();
      const auto same = static_cast<size_t>(std::ranges::mismatch(whole.text, before_).in1 - whole.text.begin());
      if (same == before_.size()) {
        if (whole.settled >= same) use_ = Use::kWhole;
        return view(whole_, same);
      }
      if (same < whole.settled) use_ = Use::kOwn;
      View own = view(own_, 0);
      if (use_ != Use::kOwn) own.settled = 0;  // the prompt's text may yet stay
      return own;
    }

   private:
    static View view(text::DecodingStream& stream, size_t begin) {
      const text::DecodedText& text = stream.text();
      return {std::string_view(text.text).substr(begin), std::max(text.settled, begin) - begin};
    }

    const Impl& continuer_;
    text::DecodingStream whole_, own_;  // with the prompt, and without
    std::string before_;                // the prompt's text
    enum class Use { kUndecided, kWhole, kOwn } use_ = Use::kUndecided;
  };

  // Whether the last of the new tokens completes one of the strings. Only the last of them are decoded, as many as such
  // a string can have and some more, with others before them as their prompt.
  bool ends_with_one(std::span<const int32_t> prompt, std::span<const int32_t> added,
                     const std::vector<std::string>& strings) const {
    constexpr size_t kMargin = 32;  // bytes, more than a token changes of the text before it, and that is settled late
    size_t longest = 0;
    for (const std::string& each : strings) longest = std::max(longest, each.size());
    for (size_t count = std::min<size_t>(added.size(), 16);; count = std::min(added.size(), 2 * count)) {
      NewText tail(*this, context_of(prompt, added.first(added.size() - count)));
      for (const int32_t id : added.last(count).first(count - 1)) tail.add(id);
      const std::string earlier(tail.text().text);
      if (count < added.size() && earlier.size() < longest + kMargin) continue;
      tail.add(added.back());
      const std::string_view text = tail.text().text;
      const auto same = static_cast<size_t>(std::ranges::mismatch(text, earlier).in1 - text.begin());
      return std::ranges::any_of(strings, [&](const std::string& each) {
        return text.find(each, same < each.size() ? 0 : same - each.size() + 1) != std::string::npos;
      });
    }
  }

  // The last tokens before a text that tell how its first one is joined to them.
  static std::vector<int32_t> context_of(std::span<const int32_t> prompt, std::span<const int32_t> added) {
    constexpr size_t kContext = 8;
    const size_t of_added = std::min(kContext, added.size());
    const size_t of_prompt = std::min(kContext - of_added, prompt.size());
    std::vector<int32_t> context(prompt.end() - static_cast<ptrdiff_t>(of_prompt), prompt.end());
    context.insert(context.end(), added.end() - static_cast<ptrdiff_t>(of_added), added.end());
    return context;
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
  Continuer::Impl::NewText text{continuer, prompt};
  size_t shown = 0;  // bytes of the text
  Continuation result{};
  bool is_done = false;

  // What has become settled since the last call.
  std::string advance() {
    is_done = !generator.step();
    std::string_view settled;
    if (is_done) {
      result = continuer.continuation_of(prompt, generator.take()[0][0]);
      continuer.give_back(std::move(generator));
      settled = result.text;
    } else {
      const auto view = text.text();
      settled = view.text.substr(0, view.settled);
    }
    std::string part(settled.substr(std::min(shown, settled.size())));
    shown += part.size();
    return part;
  }
};

struct ContinuationRun::Impl {
  Continuer::Impl& continuer;
  engine::Generator generator;
  size_t prompts = 0;
  std::vector<std::vector<int32_t>> ids{};  // of the prompts that have tokens
  std::vector<size_t> places{};             // of these among all
};

std::optional<std::string> ContinuationStream::step() {
  if (impl_->is_done) return std::nullopt;
  std::string part = impl_->advance();
  if (impl_->is_done && part.empty()) return std::nullopt;
  return part;
}

std::optional<std::string> ContinuationStream::next() {
  std::optional<std::string> part = step();
  while (part && part->empty()) part = step();
  return part;
}

int64_t ContinuationStream::prompt_tokens() const { return std::ssize(impl_->prompt); }

const Continuation& ContinuationStream::result() const { return impl_->result; }

Continuer::Continuer(const std::string& model_dir, const ContinuerOptions& options)
    : impl_(std::make_shared<Impl>(model_dir, options)) {}

const text::Tokenizer& Continuer::tokenizer() const { return impl_->tokenizer; }

int64_t Continuer::max_length() const { return impl_->model.info().max_position_embeddings; }

Stops Continuer::default_stops() const { return {impl_->ends.after, {}}; }

Stops Continuer::stops_of(std::span<const std::string> given, const std::string& name) const {
  Stops stops;
  for (const std::string& each : given) {
    if (each.empty()) fail<ArgumentError>(kContinuationWhere, "{} must have at least one character, got \"\"", name);
    if (!is_utf8(each)) fail<ArgumentError>(kContinuationWhere, "{} must be UTF-8, got {}", name, io::printable(each));
    stops.texts.push_back(each);
    const int32_t id = impl_->tokenizer.vocabulary().find(each);
    if (id >= 0 && impl_->stands_for(id, each)) stops.ids.push_back(id);
  }
  return stops;
}

std::string Continuer::chat(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& variables) const {
  auto all = text::chat_variables(impl_->tokenizer, messages, text::GenerationPrompt::kAdded);
  all.update(variables);
  return impl_->read_template().render(all);
}

std::vector<std::vector<Continuation>> Continuer::continue_prompts(std::span<const std::string> prompts,
                                                                   const engine::GenerationOptions& options,
                                                                   const Stops& stops, EmptyPrompts empty,
                                                                   PromptForm form) const {
  ContinuationRun run = begin(prompts, options, stops, empty, form);
  while (run.step()) {
  }
  return run.take();
}

ContinuationRun Continuer::begin(std::span<const std::string> prompts, const engine::GenerationOptions& options,
                                 const Stops& stops, EmptyPrompts empty, PromptForm form) const {
  auto run = std::make_shared<ContinuationRun::Impl>(
      ContinuationRun::Impl{.continuer = *impl_, .generator = impl_->take_generator(), .prompts = prompts.size()});
  for (size_t i = 0; i < prompts.size(); ++i) {
    std::vector<int32_t> tokens =
        empty == EmptyPrompts::kRefused ? impl_->prompt_ids(prompts[i], form) : impl_->tokens_of(prompts[i], form);
    if (tokens.empty()) continue;
    run->ids.push_back(std::move(tokens));
    run->places.push_back(i);
  }
  run->generator.begin(run->ids, impl_->with_stops(options, stops));
  return ContinuationRun(std::move(run));
}

bool ContinuationRun::step() { return impl_->generator.step(); }

int64_t ContinuationRun::prompt_tokens() const {
  int64_t tokens = 0;
  for (const std::vector<int32_t>& each : impl_->ids) tokens += std::ssize(each);
  return tokens;
}

std::vector<std::vector<Continuation>> ContinuationRun::take() {
  const auto generated = impl_->generator.take();
  impl_->continuer.give_back(std::move(impl_->generator));
  std::vector<std::vector<Continuation>> results(impl_->prompts);
  for (size_t i = 0; i < impl_->ids.size(); ++i) {
    for (const engine::Generated& each : generated[i])
      results[impl_->places[i]].push_back(impl_->continuer.continuation_of(impl_->ids[i], each));
  }
  return results;
}

ContinuationStream Continuer::stream(const std::string& prompt, const engine::GenerationOptions& options,
                                     const Stops& stops, PromptForm form) const {
  using StreamImpl = ContinuationStream::Impl;
  std::vector<int32_t> ids = impl_->prompt_ids(prompt, form);
  auto stream = std::make_shared<StreamImpl>(
      StreamImpl{.continuer = *impl_, .generator = impl_->take_generator(), .prompt = ids});
  engine::GenerationOptions streaming = impl_->with_stops(options, stops);
  streaming.on_token = [text = &stream->text](int32_t token) { text->add(token); };
  stream->generator.begin({std::move(ids)}, streaming);
  return ContinuationStream(std::move(stream));
}

}  // namespace rf::tasks
