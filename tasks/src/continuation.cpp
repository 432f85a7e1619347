// Continues prompts with a causal language model (rf/tasks/continuation.h).
#include "rf/tasks/continuation.h"

#include <algorithm>
#include <mutex>
#include <nlohmann/json.hpp>

#include "chat_messages.h"
#include "rf/engine/generator.h"
#include "rf/io/error.h"
#include "rf/io/printable.h"
#include "rf/io/utf8.h"
#include "rf/io/warning.h"
#include "rf/model/foreign_models.h"
#include "rf/model/model_types.h"
#include "rf/tasks/json_schema.h"
#include "rf/text/chat_template.h"
#include "rf/text/decoding_stream.h"
#include "token_mask.h"

namespace rf::tasks {

namespace {

using Spaces = text::DecodingStream::Spaces;

// How new tokens become text.
struct Decoding {
  Spaces spaces = Spaces::kCleanedUp;
  text::SkipSpecials specials = text::SkipSpecials::kYes;
};

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

// The text of each id must be the same.
void check_draft(const text::Tokenizer& own, const text::Tokenizer& draft) {
  const int64_t size = own.vocabulary().size(), of_draft = draft.vocabulary().size();
  for (int64_t id = 0; id < std::min(size, of_draft); ++id) {
    const std::string &token = own.vocabulary().token(id), &other = draft.vocabulary().token(id);
    if (token == other) continue;
    fail<ArgumentError>(kContinuationWhere,
                        "a draft must have the tokens of the model, got {} in place of {} for id {}",
                        io::printable(other), io::printable(token), id);
  }
  if (size != of_draft) {
    fail<ArgumentError>(kContinuationWhere, "a draft must have the {} tokens of the model, got {}: {} is in one alone",
                        size, of_draft,
                        io::printable((size < of_draft ? draft : own).vocabulary().token(std::min(size, of_draft))));
  }
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
  std::optional<engine::Model> draft;
  Ends ends;
  // Generators that no call uses; each keeps its cache for the next.
  static constexpr size_t kMostIdle = 4;
  std::mutex mutex;
  std::vector<engine::Generator> idle;
  engine::Drafted drafted;                          // by generators that calls have returned
  std::optional<text::ChatTemplate> chat_template;  // read on first use
  std::optional<TokenTrie> trie;                    // built on first use
  engine::PromptOrigin origin;                      // its hash is computed on first use

  Impl(const std::string& model_dir, const ContinuerOptions& options)
      : path(gguf_path(model_dir).value_or(model_dir)),
        tokenizer(load_tokenizer(model_dir, options)),
        model(model_dir,
              {.precision = options.precision, .warn = options.note, .cache_precision = options.cache_precision}),
        ends(ends_of(tokenizer, model.info().stop_ids)),
        origin{.model_hash = {}, .precision = options.precision} {
    // Models often have more rows than tokens.
    const int64_t tokens = tokenizer.vocabulary().size(), rows = model.info().vocab_size;
    if (rows < tokens) {
      fail(kContinuationWhere, "vocab_size of {} must be at least its vocabulary's {}, got {}", model_dir, tokens,
           rows);
    }
    if (!options.draft.empty()) {
      check_draft(tokenizer, load_tokenizer(options.draft, options));
      draft.emplace(options.draft, engine::ModelOptions{.precision = options.precision,
                                                        .warn = options.note,
                                                        .cache_precision = options.cache_precision});
    }
    idle.reserve(kMostIdle);
    idle.push_back(new_generator());  // refuses models that are not causal
  }

  engine::Generator new_generator() const { return engine::Generator(model, draft ? &*draft : nullptr); }

  // The generator whose cache has the longest prefix of the prompt; the least recently used one of equals.
  engine::Generator take_generator(std::span<const int32_t> prompt) {
    const std::lock_guard lock(mutex);
    if (idle.empty()) return new_generator();
    const auto best = std::ranges::max_element(
        idle, {}, [prompt](const engine::Generator& generator) { return generator.kept_tokens(prompt); });
    engine::Generator generator = std::move(*best);
    idle.erase(best);
    return generator;
  }
  void give_back(engine::Generator generator) {
    const std::lock_guard lock(mutex);
    drafted += generator.take_drafted();
    if (idle.size() < kMostIdle) idle.push_back(std::move(generator));
  }

  const text::ChatTemplate& read_template() {
    const std::lock_guard lock(mutex);
    if (!chat_template) chat_template = text::read_chat_template(path);
    if (!chat_template)
      fail<ArgumentError>(kContinuationWhere, "a chat must have a model with a chat template, got {}", path);
    return *chat_template;
  }

  const engine::PromptOrigin& prompt_origin() {
    const std::lock_guard lock(mutex);
    if (origin.model_hash.empty()) origin.model_hash = engine::hash_of_model(path);
    return origin;
  }

  const TokenTrie& token_trie() {
    const std::lock_guard lock(mutex);
    if (!trie) trie.emplace(tokenizer);
    return *trie;
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

  Continuation continuation_of(const std::vector<int32_t>& prompt, const engine::Generated& generated,
                               Decoding decoding) const {
    NewText added(*this, prompt, decoding);
    std::vector<ContinuationToken> tokens;
    for (size_t i = 0; i < generated.ids.size(); ++i) {
      if (!generated.tokens.empty()) tokens.push_back({generated.tokens[i], added.characters()});
      added.add(generated.ids[i]);
    }
    return {.text = std::string(added.text().text),
            .ids = generated.ids,
            .log_probability = generated.log_probability,
            .score = generated.score,
            .stopped = generated.stopped,
            .tokens = std::ssize(prompt) + std::ssize(generated.ids),
            .new_tokens = std::move(tokens)};
  }

  bool has_token(int32_t id) const { return id < tokenizer.vocabulary().size(); }  // models may have more rows

  // A token of bytes may be written as the string and have another text: "½" is the letter of the byte 0xBD.
  bool stands_for(int32_t id, const std::string& string) const {
    const auto is_same = [&](const text::AddedToken& token) { return token.content == string; };
    return std::ranges::any_of(tokenizer.added_tokens(), is_same) || tokenizer.decode({id}) == string;
  }

  // The text that new tokens add to a prompt, token by token. They are decoded without the prompt for a prefix language
  // model, and for other models if they would change the prompt's text.
  class NewText {
   public:
    NewText(const Impl& continuer, std::span<const int32_t> prompt, Decoding decoding)
        : continuer_(continuer),
          whole_(continuer.tokenizer, decoding.specials, decoding.spaces),
          own_(continuer.tokenizer, decoding.specials, decoding.spaces) {
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

    // Length of the text so far.
    int64_t characters() {
      const View all = text();
      settled_characters_ += count_characters(all.text.substr(counted_, all.settled - counted_));
      counted_ = all.settled;
      return settled_characters_ + count_characters(all.text.substr(counted_));
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
    size_t counted_ = 0;  // bytes, all settled
    int64_t settled_characters_ = 0;
  };

  // Whether the last new token completes one of the strings. Decodes only the last new tokens: as many as such a string
  // can have and some more, with earlier tokens as their prompt.
  bool ends_with_one(std::span<const int32_t> prompt, std::span<const int32_t> added,
                     const std::vector<std::string>& strings) const {
    constexpr size_t kMargin = 32;  // bytes; a token changes fewer of the text before it, and fewer are settled late
    size_t longest = 0;
    for (const std::string& each : strings) longest = std::max(longest, each.size());
    for (size_t count = std::min<size_t>(added.size(), 16);; count = std::min(added.size(), 2 * count)) {
      NewText tail(*this, context_of(prompt, added.first(added.size() - count)), {});
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

  static Decoding decoding_of(const ContinuationForm& form) {
    return {form.schema ? Spaces::kKept : Spaces::kCleanedUp, form.specials};
  }

  engine::GenerationOptions complete(engine::GenerationOptions options, const Stops& stops, const JsonSchema* schema) {
    options.stop_ids = stops.ids;
    if (!stops.texts.empty()) {
      options.is_end = [this, texts = stops.texts](std::span<const int32_t> prompt, std::span<const int32_t> added) {
        return ends_with_one(prompt, added, texts);
      };
    }
    if (schema == nullptr) return options;
    const auto mask = std::make_shared<TokenMask>(token_trie(), schema->automaton(), stops.ids);
    options.allowed = [mask](std::span<const int32_t> added) { return mask->allowed(added); };
    options.is_end = [mask, is_end = options.is_end](std::span<const int32_t> prompt, std::span<const int32_t> added) {
      return mask->is_whole(added) || (is_end && is_end(prompt, added));
    };
    return options;
  }
};

struct ContinuationStream::Impl {
  Continuer::Impl& continuer;
  engine::Generator generator;
  std::vector<int32_t> prompt;
  Decoding decoding;
  struct Sequence {
    Continuer::Impl::NewText text;
    size_t shown = 0;                         // bytes of the text
    std::vector<ContinuationToken> tokens{};  // not given yet
  };
  std::vector<Sequence> sequences;
  int64_t kept = 0, added = 0;  // tokens
  std::vector<Continuation> results{};
  bool is_done = false;

  Impl(Continuer::Impl& of, std::vector<int32_t> ids, Decoding of_text, int64_t count)
      : continuer(of), generator(of.take_generator(ids)), prompt(std::move(ids)), decoding(of_text) {
    for (int64_t i = 0; i < count; ++i) sequences.push_back({.text = {continuer, prompt, decoding}});
  }
  ~Impl() {
    if (!is_done) continuer.give_back(std::move(generator));
  }

  void add(int64_t sequence, const engine::NewToken& token, bool keeps_tokens) {
    Sequence& of = sequences[static_cast<size_t>(sequence)];
    if (keeps_tokens) of.tokens.push_back({token, of.text.characters()});
    of.text.add(token.id);
    ++added;
  }

  void finish() {
    kept = generator.kept_tokens();
    const auto generated = generator.take();
    for (const engine::Generated& each : generated[0])
      results.push_back(continuer.continuation_of(prompt, each, decoding));
    continuer.give_back(std::move(generator));
    is_done = true;
  }

  // The text that has become settled since the last call.
  Part part_of(size_t sequence) {
    Sequence& of = sequences[sequence];
    std::string_view settled;
    if (is_done) {
      settled = results[sequence].text;
    } else {
      const auto view = of.text.text();
      settled = view.text.substr(0, view.settled);
    }
    Part part{std::string(settled.substr(std::min(of.shown, settled.size()))), std::exchange(of.tokens, {})};
    of.shown += part.text.size();
    return part;
  }
};

struct ContinuationRun::Impl {
  Continuer::Impl& continuer;
  size_t prompts = 0;
  Decoding decoding{};
  std::vector<std::vector<int32_t>> ids{};  // of the prompts that have tokens
  std::vector<size_t> places{};             // index of each among all prompts
  std::optional<engine::Generator> generator{};
  int64_t kept = 0;
};

std::optional<std::string> ContinuationStream::step() {
  if (is_done()) return std::nullopt;
  return part_after(impl_->generator.step());
}

bool ContinuationStream::is_done() const { return impl_->is_done; }

engine::Generator& ContinuationStream::generator() { return impl_->generator; }

std::optional<std::string> ContinuationStream::part_after(bool goes_on) {
  std::string part = std::move(parts_after(goes_on)[0].text);
  if (impl_->is_done && part.empty()) return std::nullopt;
  return part;
}

std::vector<ContinuationStream::Part> ContinuationStream::parts_after(bool goes_on) {
  if (!goes_on) impl_->finish();
  std::vector<Part> parts;
  for (size_t i = 0; i < impl_->sequences.size(); ++i) parts.push_back(impl_->part_of(i));
  return parts;
}

std::optional<std::string> ContinuationStream::next() {
  std::optional<std::string> part = step();
  while (part && part->empty()) part = step();
  return part;
}

int64_t ContinuationStream::prompt_tokens() const { return std::ssize(impl_->prompt); }

int64_t ContinuationStream::new_tokens() const { return impl_->added; }

int64_t ContinuationStream::kept_tokens() const {
  return impl_->is_done ? impl_->kept : impl_->generator.kept_tokens();
}

const std::vector<Continuation>& ContinuationStream::results() const { return impl_->results; }

Continuer::Continuer(const std::string& model_dir, const ContinuerOptions& options)
    : impl_(std::make_shared<Impl>(model_dir, options)) {}

const text::Tokenizer& Continuer::tokenizer() const { return impl_->tokenizer; }

int64_t Continuer::max_length() const { return impl_->model.info().max_position_embeddings; }

int64_t Continuer::room_after(const std::string& prompt) const {
  return max_length() - std::ssize(impl_->tokens_of(prompt, PromptForm::kChat));
}

engine::Drafted Continuer::drafted() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->drafted;
}

void Continuer::read_prompt_cache(const std::string& path) const {
  const engine::PromptOrigin& origin = impl_->prompt_origin();
  engine::Generator generator = impl_->take_generator({});
  generator.read_prompt(path, origin);
  impl_->give_back(std::move(generator));
}

void Continuer::write_prompt_cache(const std::string& path, const std::string& prompt, PromptForm form) const {
  const engine::PromptOrigin& origin = impl_->prompt_origin();
  const std::vector<int32_t> ids = impl_->tokens_of(prompt, form);
  engine::Generator generator = impl_->take_generator(ids);
  generator.write_prompt(path, origin, ids);
  impl_->give_back(std::move(generator));
}

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
  auto all = text::chat_variables(impl_->tokenizer, messages_of(messages), text::GenerationPrompt::kAdded);
  for (const auto& [name, value] : variables.items()) {
    if (all.contains(name) && name != "tools")
      fail<ArgumentError>(kContinuationWhere, "variables of a chat must be without {}, which the chat gives, got {}",
                          name, name);
    all[name] = value;
  }
  return impl_->read_template().render(all);
}

AnswerFormat Continuer::answer_format(const std::string& prompt, bool has_tools) const {
  return tasks::answer_format(impl_->read_template().source(), prompt, has_tools);
}

std::vector<std::vector<Continuation>> Continuer::continue_prompts(std::span<const std::string> prompts,
                                                                   const engine::GenerationOptions& options,
                                                                   const Stops& stops,
                                                                   const ContinuationForm& form) const {
  ContinuationRun run = begin(prompts, options, stops, form);
  while (run.step()) {
  }
  return run.take();
}

ContinuationRun Continuer::begin(std::span<const std::string> prompts, const engine::GenerationOptions& options,
                                 const Stops& stops, const ContinuationForm& form) const {
  auto run = std::make_shared<ContinuationRun::Impl>(ContinuationRun::Impl{
      .continuer = *impl_, .prompts = prompts.size(), .decoding = Continuer::Impl::decoding_of(form)});
  for (size_t i = 0; i < prompts.size(); ++i) {
    std::vector<int32_t> tokens = form.empty == EmptyPrompts::kRefused ? impl_->prompt_ids(prompts[i], form.prompt)
                                                                       : impl_->tokens_of(prompts[i], form.prompt);
    if (tokens.empty()) continue;
    run->ids.push_back(std::move(tokens));
    run->places.push_back(i);
  }
  run->generator = impl_->take_generator(run->ids.empty() ? std::vector<int32_t>() : run->ids.front());
  run->generator->begin(run->ids, impl_->complete(options, stops, form.schema.get()));
  return ContinuationRun(std::move(run));
}

bool ContinuationRun::step() { return impl_->generator->step(); }

engine::Generator& ContinuationRun::generator() { return *impl_->generator; }

int64_t ContinuationRun::prompt_tokens() const {
  int64_t tokens = 0;
  for (const std::vector<int32_t>& each : impl_->ids) tokens += std::ssize(each);
  return tokens;
}

int64_t ContinuationRun::kept_tokens() const {
  return impl_->generator ? impl_->generator->kept_tokens() : impl_->kept;
}

std::vector<std::vector<Continuation>> ContinuationRun::take() {
  const auto generated = impl_->generator->take();
  impl_->kept = impl_->generator->kept_tokens();
  impl_->continuer.give_back(std::move(*impl_->generator));
  impl_->generator.reset();
  std::vector<std::vector<Continuation>> results(impl_->prompts);
  for (size_t i = 0; i < impl_->ids.size(); ++i) {
    for (const engine::Generated& each : generated[i])
      results[impl_->places[i]].push_back(impl_->continuer.continuation_of(impl_->ids[i], each, impl_->decoding));
  }
  return results;
}

ContinuationStream Continuer::stream(const std::string& prompt, const engine::GenerationOptions& options,
                                     const Stops& stops, const ContinuationForm& form) const {
  using StreamImpl = ContinuationStream::Impl;
  std::vector<int32_t> ids = impl_->prompt_ids(prompt, form.prompt);
  auto stream = std::make_shared<StreamImpl>(*impl_, ids, Continuer::Impl::decoding_of(form), options.return_sequences);
  engine::GenerationOptions streaming = impl_->complete(options, stops, form.schema.get());
  streaming.on_token = [impl = stream.get(), keeps = options.best_tokens >= 0](
                           int64_t sequence, const engine::NewToken& token) { impl->add(sequence, token, keeps); };
  stream->generator.begin({std::move(ids)}, streaming);
  return ContinuationStream(std::move(stream));
}

}  // namespace rf::tasks
