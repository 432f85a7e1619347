// Prompts in a batch (rf/engine/generator.h): each has its search and its sequences of the decoder, and all prompts
// take a step together. A finished prompt makes room for the next.
#include "rf/engine/generator.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <utility>

#include "file_hash.h"
#include "prompt_file.h"
#include "prompt_search.h"
#include "rf/engine/names.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/gguf.h"
#include "rf/model/foreign_models.h"
#include "rf/status.h"

namespace rf::engine {

namespace {

constexpr const char* kGeneratorWhere = "generate";
constexpr int64_t kMaxNewTokens = int64_t{1} << 30;
constexpr int64_t kPrefillTokens = 4096;  // of prompts that are computed together

void check_positive(const char* name, double value) {
  if (!std::isfinite(value)) fail(kGeneratorWhere, "{} must be finite, got {}", name, value);
  if (value <= 0) fail(kGeneratorWhere, "{} must be above 0, got {}", name, value);
}

// Of a score.
void check_change(const char* name, double value) {
  constexpr double kMost = 100;
  if (!(std::abs(value) <= kMost)) fail(kGeneratorWhere, "{0} must be in -{1}..{1}, got {2}", name, kMost, value);
}

void check_sampling(const GenerationOptions& options) {
  check_positive("temperature", options.temperature);
  if (options.top_k < 0) fail(kGeneratorWhere, "top_k must be at least 0, got {}", options.top_k);
  if (!(options.top_p > 0 && options.top_p <= 1))
    fail(kGeneratorWhere, "top_p must be above 0 and at most 1, got {}", options.top_p);
}

void check_beams(const GenerationOptions& options, int64_t vocab_size) {
  if (options.beams < 1) fail(kGeneratorWhere, "beams must be at least 1, got {}", options.beams);
  check_length_penalty(kGeneratorWhere, options.length_penalty, options.max_new_tokens);
  const int64_t candidates = PromptSearch::candidates_per_beam(options);
  if (vocab_size > 0 && options.beams > vocab_size / candidates) {
    fail(kGeneratorWhere, "{} candidates for each beam must be at most the {} tokens of the vocabulary, got {} beams",
         candidates, vocab_size, options.beams);
  }
}

}  // namespace

void check_options(const GenerationOptions& options, int64_t vocab_size) {
  if (options.max_new_tokens < 1 || options.max_new_tokens > kMaxNewTokens)
    fail(kGeneratorWhere, "max_new_tokens must be in 1..{}, got {}", kMaxNewTokens, options.max_new_tokens);
  if (options.min_new_tokens < 0 || options.min_new_tokens > options.max_new_tokens)
    fail(kGeneratorWhere, "min_new_tokens must be in 0..{}, got {}", options.max_new_tokens, options.min_new_tokens);
  for (const int32_t id : options.stop_ids) {
    if (id < 0 || id >= vocab_size) fail(kGeneratorWhere, "stop_ids must be in 0..{}, got {}", vocab_size - 1, id);
  }
  check_positive("repetition_penalty", options.repetition_penalty);
  for (const auto& [name, value] :
       {std::pair("presence_penalty", options.presence_penalty), {"frequency_penalty", options.frequency_penalty}})
    check_change(name, value);
  for (const auto& [id, value] : options.logit_bias) {
    if (id < 0 || id >= vocab_size)
      fail(kGeneratorWhere, "logit_bias must have ids in 0..{}, got {}", vocab_size - 1, id);
    check_change("logit_bias", value);
  }
  if (options.batch < 1) fail(kGeneratorWhere, "batch must be at least 1, got {}", options.batch);
  if (options.draft_tokens < 1) fail(kGeneratorWhere, "draft_tokens must be at least 1, got {}", options.draft_tokens);
  check_sampling(options);
  if (options.search == Search::kBeams) check_beams(options, vocab_size);
  if (options.allowed && (options.search == Search::kBeams || options.min_new_tokens > 0))
    fail(kGeneratorWhere, "a choice of allowed tokens must be without beams and min_new_tokens, got one of them");
  if (options.best_tokens >= 0 && options.search == Search::kBeams)
    fail(kGeneratorWhere, "best_tokens must be without beams, got {}", options.best_tokens);
  const int64_t most = options.search == Search::kGreedy  ? 1
                       : options.search == Search::kBeams ? options.beams
                                                          : INT32_MAX;
  if (options.return_sequences < 1 || options.return_sequences > most)
    fail(kGeneratorWhere, "return_sequences must be in 1..{}, got {}", most, options.return_sequences);
}

struct Generator::Impl {
  // A prompt that is being continued.
  struct Active {
    size_t prompt = 0;
    std::unique_ptr<PromptSearch> search;  // nullptr: a free place
    // With a draft: the tokens so far, the proposed tokens, and the random numbers that draw them.
    std::vector<int32_t> text{};
    std::vector<Proposal> proposals{};
    std::mt19937_64 random{};
  };

  const Model* model;
  int64_t vocab_size;
  Decoder decoder;
  TokenScores scores;
  std::vector<float> logits;
  std::unique_ptr<Impl> draft;  // nullptr: none
  // Prompts that are being continued; searches refer to its options.
  struct Run {
    std::vector<std::vector<int32_t>> prompts;
    GenerationOptions options;
    std::vector<std::vector<Generated>> results;
    std::vector<Active> places;
    size_t next = 0;   // prompt that is begun next
    int64_t kept = 0;  // tokens of prompts
    Drafted drafted;
  };
  std::unique_ptr<Run> run;
  std::unique_ptr<PromptFile> file;
  std::vector<size_t> admitted;  // places of the prompts that the next pass reads; empty: it grows the texts
  // The tokens that the decoder appends next.
  std::vector<int64_t> sequences, offsets;
  std::vector<int32_t> ids;

  explicit Impl(const Model& of)
      : model(&of), vocab_size(of.info().vocab_size), decoder(of, 1, 1), scores(of.info().vocab_size) {}

  // Makes room in the decoder for `count` sequences, each of the longest prompt and `new_tokens` more.
  void reserve(int64_t count, int64_t longest, int64_t new_tokens) {
    const int64_t tokens = longest + new_tokens - 1;  // nothing follows the last one
    if (decoder.sequences() >= count && decoder.max_tokens() >= tokens) return;
    try {
      if (decoder.sequences() >= count && decoder.grow(tokens)) return;
      decoder = Decoder(*model, count, tokens);
    } catch (const Error& error) {
      fail(kGeneratorWhere, "a prompt and its new tokens must fit into the model's positions, got {} and {}: {}",
           longest, new_tokens, error.what());
    }
  }

  void start_append() {
    sequences.clear();
    offsets.assign(1, 0);
    ids.clear();
  }
  void add(int64_t sequence, std::span<const int32_t> added) {
    sequences.push_back(sequence);
    ids.insert(ids.end(), added.begin(), added.end());
    offsets.push_back(std::ssize(ids));
  }
  const float* append(Decoder::Logits of = Decoder::Logits::kLast) {
    logits.resize((of == Decoder::Logits::kAll ? ids.size() : sequences.size()) * static_cast<size_t>(vocab_size));
    decoder.append(sequences, offsets, ids, logits.data(), of);
    check_logits(kGeneratorWhere, logits, vocab_size);
    return logits.data();
  }

  // The first tokens of a prompt whose keys and values a sequence has. The last one is computed for its logits.
  int64_t kept_tokens(int64_t sequence, std::span<const int32_t> prompt) const {
    if (prompt.empty() || !decoder.keeps_states(std::ssize(prompt))) return 0;
    const std::span<const int32_t> known = decoder.ids(sequence);
    return std::ranges::mismatch(prompt.first(prompt.size() - 1), known).in1 - prompt.begin();
  }

  // Throws Error unless the model's tokens keep their states. what: the beginning of the message.
  void check_keeps_states(const char* what, int64_t tokens) const {
    if (decoder.keeps_states(tokens)) return;
    fail(kGeneratorWhere,
         "{} a model whose keys and values stay as a sequence grows, got linear attention, a prefix language model, or "
         "a rotation that changes with the length",
         what);
  }

  KeyValueCache& cache() {
    check_keeps_states("a prompt cache must be of", std::numeric_limits<int32_t>::max());
    return static_cast<KeyValueCache&>(decoder.cache());
  }

  PromptFacts facts(const PromptOrigin& origin) const {
    return {{"format", "roformer prompt cache 1"},
            {"version", rf_version()},
            {"instruction_set", rf_target()},
            {"precision", std::string(name_in(kPrecisionNames, origin.precision))},
            {"model", origin.model_hash}};
  }

  // Tokens at the front of the prompt, which are in the file but not in a sequence.
  void take_from_file(std::span<const int32_t> prompt) {
    if (file == nullptr) return;
    const int64_t same = std::ranges::mismatch(prompt, file->ids()).in1 - prompt.begin();
    if (same <= kept_tokens(0, prompt)) return;
    decoder.truncate(0, 0);
    file->copy_to(cache(), same);
  }

  // Computes a long prompt in parts, whose memory is bounded, up to the last one; returns the tokens that it has then.
  int64_t read_parts(int64_t sequence, std::span<const int32_t> prompt, int64_t kept) {
    while (std::ssize(prompt) - kept > kPrefillTokens && decoder.keeps_states(std::ssize(prompt))) {
      add(sequence, prompt.subspan(static_cast<size_t>(kept), kPrefillTokens));
      append();
      start_append();
      kept += kPrefillTokens;
    }
    return kept;
  }

  // Puts prompts from run->next on into free places, some at a time; the next pass reads them.
  void admit() {
    const int64_t width = PromptSearch::sequences_of(run->options);
    admitted.clear();
    start_append();
    for (size_t place = 0; place < run->places.size() && run->next < run->prompts.size(); ++place) {
      if (run->places[place].search != nullptr) continue;
      const std::span<const int32_t> prompt = run->prompts[run->next];
      const int64_t first = static_cast<int64_t>(place) * width, kept = kept_tokens(first, prompt);
      if (!admitted.empty() && std::ssize(ids) + std::ssize(prompt) - kept > kPrefillTokens) break;
      for (int64_t i = 0; i < width; ++i) decoder.truncate(first + i, i == 0 ? kept : 0);
      run->kept += kept;
      add(first, prompt.subspan(static_cast<size_t>(read_parts(first, prompt, kept))));
      run->places[place].prompt = run->next++;
      admitted.push_back(place);
    }
  }

  // Finds the first token of each admitted prompt. of_prompts: logits after them.
  void begin_searches(const float* of_prompts) {
    const int64_t width = PromptSearch::sequences_of(run->options);
    for (const size_t place : admitted) {
      std::unique_ptr<PromptSearch>& search = run->places[place].search;
      search =
          PromptSearch::make({run->options, decoder.cache(), scores, vocab_size, static_cast<int64_t>(place) * width});
      search->advance(of_prompts);
      of_prompts += vocab_size;
      const uint64_t seed = run->options.seed;
      std::seed_seq of_draft{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32), uint32_t{0}, uint32_t{1}};
      run->places[place].random.seed(of_draft);
    }
  }

  void add_steps() {
    for (const Active& active : run->places) {
      if (active.search == nullptr) continue;
      for (const PromptSearch::Step& next : active.search->steps()) add(next.sequence, {&next.token, 1});
    }
  }

  // rows: logits after the tokens of add_steps().
  void advance(const float* rows) {
    for (const Active& active : run->places) {
      if (active.search == nullptr) continue;
      const int64_t count = std::ssize(active.search->steps());
      active.search->advance(rows);
      rows += count * vocab_size;
    }
  }

  void check_draft(const GenerationOptions& options, int64_t tokens) const {
    if (PromptSearch::sequences_of(options) > 1 || options.search == Search::kBeams)
      fail(kGeneratorWhere, "a draft must be without beams and with one result for a prompt, got {} of {}",
           PromptSearch::sequences_of(options), options.search == Search::kBeams ? "beam search" : "sampling");
    check_keeps_states("a draft must be with", tokens);
  }

  // Whether the draft proposes another token for `active`.
  bool asks_draft(const Active& active) const {
    if (active.search == nullptr || std::ssize(active.proposals) == run->options.draft_tokens) return false;
    const int64_t length = std::ssize(active.text), prompt = std::ssize(run->prompts[active.prompt]);
    const auto is_stop = [&](int32_t id) {
      return std::ranges::find(run->options.stop_ids, id) != run->options.stop_ids.end();
    };
    return length - prompt + 1 < run->options.max_new_tokens && length <= draft->decoder.max_tokens() &&
           (active.proposals.empty() || !is_stop(active.text.back())) &&
           std::ranges::all_of(active.text, [&](int32_t id) { return id < draft->vocab_size; });
  }

  Proposal proposal_of(Active& active, const float* of_draft) {
    Proposal proposal{
        .token = 0,
        .probabilities = std::vector<float>(static_cast<size_t>(vocab_size), -std::numeric_limits<float>::infinity())};
    std::vector<float>& row = proposal.probabilities;
    std::copy_n(of_draft, std::min(vocab_size, draft->vocab_size), row.begin());
    scores.adjust(run->options, active.text, std::ssize(active.text) - std::ssize(run->prompts[active.prompt]), row);
    if (run->options.search == Search::kGreedy) {
      proposal.token = static_cast<int32_t>(std::ranges::max_element(row) - row.begin());
      row.clear();
    } else {
      scores.to_probabilities(run->options, row);
      proposal.token = draw(row, fraction_of(active.random()));
    }
    return proposal;
  }

  // Proposes tokens for each place, one at a time, until asks_draft() is false for all places.
  void propose() {
    for (size_t place = 0; place < run->places.size(); ++place) {
      Active& active = run->places[place];
      if (active.search == nullptr) continue;
      const auto sequence = static_cast<int64_t>(place);
      const std::span<const int32_t> known = decoder.ids(sequence);
      active.text.assign(known.begin(), known.end());
      active.text.push_back(active.search->steps()[0].token);
      active.proposals.clear();
      if (!asks_draft(active)) continue;
      const int64_t kept = draft->kept_tokens(sequence, active.text);
      draft->decoder.truncate(sequence, kept);
      draft->start_append();
      draft->read_parts(sequence, active.text, kept);
    }
    std::vector<Active*> asked;
    while (true) {
      asked.clear();
      draft->start_append();
      for (size_t place = 0; place < run->places.size(); ++place) {
        Active& active = run->places[place];
        if (!asks_draft(active)) continue;
        const auto sequence = static_cast<int64_t>(place);
        draft->add(sequence, std::span(active.text).subspan(draft->decoder.ids(sequence).size()));
        asked.push_back(&active);
      }
      if (asked.empty()) return;
      const float* row = draft->append();
      for (Active* const active : asked) {
        active->proposals.push_back(proposal_of(*active, row));
        active->text.push_back(active->proposals.back().token);
        row += draft->vocab_size;
      }
      run->drafted.proposed += std::ssize(asked);
    }
  }

  // The tokens of a step, from the logits after the next one and after each that is proposed.
  void verify(Active& active, int64_t sequence, const float* rows) {
    const auto proposed = std::ssize(active.proposals);
    decoder.truncate(sequence, std::ssize(decoder.ids(sequence)) - proposed);
    for (const Proposal& proposal : active.proposals) {
      active.search->verify(rows, proposal);
      rows += vocab_size;
      const auto steps = active.search->steps();
      if (steps.empty() || steps[0].token != proposal.token) return;
      decoder.cache().append(sequence, {&proposal.token, 1});  // its keys and values are still there
      ++run->drafted.accepted;
    }
    active.search->advance(rows);
  }

  void step_with_draft() {
    propose();
    start_append();
    for (size_t place = 0; place < run->places.size(); ++place) {
      const Active& active = run->places[place];
      const auto sequence = static_cast<int64_t>(place);
      if (active.search != nullptr) add(sequence, std::span(active.text).subspan(decoder.ids(sequence).size()));
    }
    const float* rows = append(Decoder::Logits::kAll);
    for (size_t place = 0; place < run->places.size(); ++place) {
      Active& active = run->places[place];
      if (active.search == nullptr) continue;
      const int64_t count = std::ssize(active.proposals) + 1;
      verify(active, static_cast<int64_t>(place), rows);
      rows += count * vocab_size;
    }
  }

  // Adds the input of the next pass: prompts, or a token of each text. nullopt: run it; else whether the run goes on.
  std::optional<bool> begin_step() {
    admit();
    if (!admitted.empty()) return std::nullopt;
    bool is_busy = false;
    for (Active& active : run->places) {
      if (active.search != nullptr && active.search->steps().empty()) {
        run->results[active.prompt] = active.search->results();
        active.search.reset();
      }
      is_busy = is_busy || active.search != nullptr;
    }
    if (!is_busy) return run->next < run->prompts.size();
    add_steps();
    return std::nullopt;
  }

  // rows: logits after what begin_step() has added.
  void end_step(const float* rows) { admitted.empty() ? advance(rows) : begin_searches(rows); }

  bool has_draft_step() const { return draft != nullptr && admitted.empty(); }
  void step_alone() { has_draft_step() ? step_with_draft() : end_step(append()); }

  // One step of all prompts of the run; false: all are done.
  bool step_run() {
    if (const std::optional<bool> goes_on = begin_step()) return *goes_on;
    step_alone();
    return true;
  }
};

Generator::Generator(const Model& model, const Model* draft) : impl_(std::make_unique<Impl>(model)) {
  if (draft == nullptr) return;
  impl_->draft = std::make_unique<Impl>(*draft);
  if (!impl_->draft->decoder.keeps_states())
    fail(kGeneratorWhere, "a draft must be without linear attention and no prefix language model, got {}",
         draft->info().architecture);
}
Generator::~Generator() = default;
Generator::Generator(Generator&&) noexcept = default;
Generator& Generator::operator=(Generator&&) noexcept = default;

std::vector<std::vector<Generated>> Generator::generate(std::span<const std::vector<int32_t>> prompts,
                                                        const GenerationOptions& options) {
  begin({prompts.begin(), prompts.end()}, options);
  while (step()) {
  }
  return take();
}

void Generator::begin(std::vector<std::vector<int32_t>> prompts, const GenerationOptions& options) {
  check_options(options, impl_->vocab_size);
  if (options.on_token && (prompts.size() > 1 || options.search == Search::kBeams))
    fail(kGeneratorWhere, "on_token must be with one prompt, without beams, got {} prompts", prompts.size());
  int64_t longest = 0;
  for (const std::vector<int32_t>& prompt : prompts) {
    if (prompt.empty()) fail(kGeneratorWhere, "a prompt must have at least one token, got none");
    longest = std::max(longest, std::ssize(prompt));
  }
  const int64_t width = PromptSearch::sequences_of(options);
  const int64_t places = std::clamp<int64_t>(options.batch / width, 1, std::max<int64_t>(1, std::ssize(prompts)));
  const int64_t tokens = longest + options.max_new_tokens - 1;
  if (impl_->draft != nullptr) impl_->check_draft(options, tokens);
  if (!prompts.empty()) impl_->reserve(places * width, longest, options.max_new_tokens);
  if (!prompts.empty() && impl_->draft != nullptr) {  // texts beyond the draft's positions get no proposals
    const int64_t most = impl_->draft->model->info().max_position_embeddings;
    impl_->draft->reserve(places, 1, most > 0 ? std::min(tokens, most) : tokens);
  }
  if (!prompts.empty()) impl_->take_from_file(prompts.front());
  impl_->run = std::make_unique<Impl::Run>();
  impl_->run->results.resize(prompts.size());
  impl_->run->places.resize(static_cast<size_t>(places));
  impl_->run->options = options;
  impl_->run->prompts = std::move(prompts);
}

bool Generator::step() { return impl_->step_run(); }

void Generator::step_together(std::span<Step> steps) {
  const auto attempt = [](Step& step, const auto& work) {
    try {
      work();
    } catch (...) {
      step.error = std::current_exception();
    }
  };
  std::vector<Step*> joined;
  for (Step& step : steps) {
    attempt(step, [&] {
      Impl& impl = *step.generator->impl_;
      const std::optional<bool> goes_on = impl.begin_step();
      step.goes_on = goes_on.value_or(true);
      if (goes_on) return;
      if (impl.has_draft_step() || !impl.decoder.may_join(impl.sequences, impl.offsets)) return impl.step_alone();
      joined.push_back(&step);
    });
  }
  if (joined.empty()) return;
  std::vector<Decoder::Growth> all;
  size_t rows = 0;
  for (const Step* each : joined) {
    Impl& impl = *each->generator->impl_;
    all.push_back({&impl.decoder, impl.sequences, impl.offsets, impl.ids});
    rows += impl.sequences.size();
  }
  Impl& first = *joined[0]->generator->impl_;
  try {
    first.logits.resize(rows * static_cast<size_t>(first.vocab_size));
    Decoder::append(all, first.logits.data());
  } catch (...) {  // each alone, so that only its cause has the error
    for (Step* each : joined) attempt(*each, [&] { each->generator->impl_->step_alone(); });
    return;
  }
  std::span<const float> left = first.logits;
  for (Step* each : joined) {
    Impl& impl = *each->generator->impl_;
    const std::span<const float> own = left.first(impl.sequences.size() * static_cast<size_t>(impl.vocab_size));
    left = left.subspan(own.size());
    attempt(*each, [&] {
      check_logits(kGeneratorWhere, own, impl.vocab_size);
      impl.end_step(own.data());
    });
  }
}

std::vector<std::vector<Generated>> Generator::take() { return std::move(impl_->run->results); }

Drafted Generator::take_drafted() {
  return impl_->run == nullptr ? Drafted{} : std::exchange(impl_->run->drafted, Drafted{});
}

int64_t Generator::kept_tokens() const { return impl_->run->kept; }

int64_t Generator::kept_tokens(std::span<const int32_t> prompt) const { return impl_->kept_tokens(0, prompt); }

void Generator::read_prompt(const std::string& path, const PromptOrigin& origin) {
  const KeyValueCache& cache = impl_->cache();
  if (io::has_file(path))
    impl_->file = std::make_unique<PromptFile>(path, impl_->facts(origin), cache, impl_->vocab_size);
}

void Generator::write_prompt(const std::string& path, const PromptOrigin& origin,
                             std::span<const int32_t> prompt) const {
  const int64_t tokens = std::ranges::mismatch(prompt, impl_->decoder.ids(0)).in1 - prompt.begin();
  if (tokens > 0) write_prompt_file(path, impl_->facts(origin), impl_->cache(), tokens);
}

std::string hash_of_model(const std::string& path) {
  FileHash hash;
  if (const std::optional<std::string> gguf = gguf_path(path)) {
    for (const std::string& file : io::GgufFile(*gguf).paths()) hash.add_bytes_of(file);
  } else {
    for (const std::string& file : model_files(path)) hash.add_file(file);
  }
  return hash.hex();
}

void Generator::next_probabilities(std::span<const int32_t> prompt, const GenerationOptions& options, float* out) {
  check_options(options, impl_->vocab_size);
  if (prompt.empty()) fail(kGeneratorWhere, "a prompt must have at least one token, got none");
  impl_->reserve(1, std::ssize(prompt), 1);
  impl_->decoder.truncate(0, 0);
  impl_->start_append();
  impl_->add(0, prompt);
  impl_->decoder.append(impl_->sequences, impl_->offsets, impl_->ids, out);
  const std::span<float> scores(out, static_cast<size_t>(impl_->vocab_size));
  check_logits(kGeneratorWhere, scores, impl_->vocab_size);
  impl_->scores.adjust(options, prompt, 0, scores);
  impl_->scores.to_probabilities(options, scores);
}

}  // namespace rf::engine
