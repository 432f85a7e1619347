// Text of a causal language model: greedy search, sampling and beam search over a Decoder. Greedy and beam search give
// the tokens of transformers' generate(); sampling draws from the distribution of its temperature, top-k and top-p.
//
// The result of a prompt depends only on the model, the prompt and the options, not on other prompts of the call or the
// number of threads. A generator keeps the keys and values of its last run; the first tokens of a prompt that it still
// has are not computed again.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rf/engine/decoder.h"
#include "rf/engine/model.h"
#include "rf/engine/precision.h"

namespace rf::engine {

enum class Search {
  kGreedy,  // the most probable token at each step
  kSample,
  kBeams,  // the sequences of highest score found by `beams` beams
};

// A token and the natural logarithm of its probability under the model, before any option changes it.
struct TokenLogProbability {
  int32_t id = 0;
  double log_probability = 0;
};
struct NewToken : TokenLogProbability {
  std::vector<TokenLogProbability> best{};  // the most probable tokens in its place, in order
};

struct GenerationOptions {
  Search search = Search::kGreedy;
  int64_t max_new_tokens = 64;      // from 1 to 2^30
  int64_t min_new_tokens = 0;       // no stop id before
  std::vector<int32_t> stop_ids{};  // any of the ids ends a sequence, as its last token
  double repetition_penalty = 1;    // > 0: scores of tokens that occur, prompt included, are divided by it where
                                    // they are positive, and multiplied where negative (Keskar et al. 2019)
  // From -100 to 100, subtracted from the score of a token that the new ones have, as OpenAI's API defines them.
  double presence_penalty = 0, frequency_penalty = 0;    // once; for each time that it occurs
  std::vector<std::pair<int32_t, double>> logit_bias{};  // numbers from -100 to 100 that are added to tokens' scores
  int64_t return_sequences = 1;                          // for each prompt; at most 1 with kGreedy, `beams` with kBeams
  // Sampling, in this order.
  double temperature = 1;  // > 0; near 0 the most probable token, as with kGreedy
  int64_t top_k = 0;       // only the k most probable tokens, and ties with the last; 0: all
  double top_p = 1;        // in (0, 1]: the fewest tokens whose probability is at least p
  uint64_t seed = 0;
  // Beam search.
  int64_t beams = 4;
  double length_penalty = 1;    // a score is the sum of log-probabilities over tokens^length_penalty
  bool stop_when_full = false;  // as soon as `beams` sequences have ended (early_stopping of transformers)
  int64_t batch = 8;            // sequences computed together, at least all of one prompt
  int64_t draft_tokens = 4;     // >= 1, of a generator with a draft: proposed at a step
  int64_t best_tokens = -1;  // how many NewToken::best and Generated::tokens have; -1: none are kept. Not with kBeams
  // Called with each new token of a sequence immediately; for one prompt, and not with kBeams.
  std::function<void(int64_t sequence, const NewToken& token)> on_token{};
  // Called with a prompt and the new tokens of a sequence, more than min_new_tokens; returns whether they end it, like
  // a stop id.
  std::function<bool(std::span<const int32_t> prompt, std::span<const int32_t> added)> is_end{};
  // The tokens that may follow the new tokens of a sequence, at least one: bit i % 64 of word i / 64 allows token i.
  // Valid until the next call. Other tokens get probability 0. Not with kBeams or min_new_tokens.
  std::function<std::span<const uint64_t>(std::span<const int32_t> added)> allowed{};
};

// The origin of keys and values: their bits depend on it, and on the program and its instruction set.
struct PromptOrigin {
  std::string model_hash;
  Precision precision{};  // kFloat32
};
// A hash of the configuration and the weights of a directory or a GGUF file. Throws Error for an unreadable file.
RF_ENGINE_API std::string hash_of_model(const std::string& path);

// Throws Error for options that are invalid for a vocabulary of this size; 0: unknown, then refuses all token ids.
RF_ENGINE_API void check_options(const GenerationOptions& options, int64_t vocab_size);

struct Generated {
  std::vector<int32_t> ids;        // the new tokens
  double log_probability = 0;      // sum of log-probabilities of the new tokens, before any option changes them
  double score = 0;                // of beam search; else log_probability
  bool stopped = false;            // by a stop id or is_end, not by max_new_tokens
  std::vector<NewToken> tokens{};  // the same as ids, with best_tokens
};

// Counts of a run with a draft: the tokens that the draft proposed, and how many the model chose too.
struct Drafted {
  int64_t proposed = 0, accepted = 0;
  Drafted& operator+=(const Drafted& other) {
    proposed += other.proposed;
    accepted += other.accepted;
    return *this;
  }
};

// Sampling draws sequence r of a prompt with std::mt19937_64, seeded by std::seed_seq{low 32 bits of the seed, high 32
// bits, r}: one number for each token, whose upper 53 bits are a fraction u; the token is the first, by id, at which
// the sum of probabilities exceeds u.
//
// A draft is a smaller model with the same tokens, which proposes the next tokens of each text. The model computes the
// proposals of a step together, and keeps them up to the first that it would not choose (speculative decoding,
// Leviathan et al. 2023, arXiv 2211.17192). Greedy search gives the same tokens and numbers as without a draft.
// Sampling draws from the same distribution, but a seed gives other tokens: the draft draws from a generator seeded
// with the word 1 after r, and the model takes one number for each token, and one more to replace a proposal.
//
// Throws like Model, and for logits that are not finite. The model must outlive it; only one thread at a time may use
// it.
class RF_ENGINE_API Generator {
 public:
  explicit Generator(const Model& model, const Model* draft = nullptr);
  ~Generator();
  Generator(Generator&&) noexcept;
  Generator& operator=(Generator&&) noexcept;

  // return_sequences results for each prompt, beams the best first. A prompt must have at least one token, and with the
  // new tokens at most as many as the model has positions.
  std::vector<std::vector<Generated>> generate(std::span<const std::vector<int32_t>> prompts,
                                               const GenerationOptions& options);
  // The same in steps: begin, step until it returns false, take the results.
  void begin(std::vector<std::vector<int32_t>> prompts, const GenerationOptions& options);
  bool step();
  // step() of several generators of one model. Generators with neither a draft nor linear attention compute their
  // tokens in one pass. Each gets the numbers and the error that it would get alone.
  struct Step {
    Generator* generator;
    bool goes_on = false;
    std::exception_ptr error{};
  };
  static void step_together(std::span<Step> steps);
  std::vector<std::vector<Generated>> take();
  // The number of prompt tokens that the run did not compute; with `prompt`, the number if it begins the next run.
  int64_t kept_tokens() const;
  int64_t kept_tokens(std::span<const int32_t> prompt) const;
  Drafted take_drafted();  // of the run, since the last call
  // From now on, tokens at the front of a run's first prompt are not computed if a file of write_prompt() has them; it
  // may be absent. Throws Error for a damaged file, and one of another model, precision, version or instruction set,
  // and for a model whose keys and values change as a sequence grows (Decoder).
  void read_prompt(const std::string& path, const PromptOrigin& origin);
  // Writes the keys and values of the first tokens of a prompt, as many as the first sequence of the last run has.
  void write_prompt(const std::string& path, const PromptOrigin& origin, std::span<const int32_t> prompt) const;
  // Probabilities of the token after a prompt that kSample draws from, [vocab_size].
  void next_probabilities(std::span<const int32_t> prompt, const GenerationOptions& options, float* out);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rf::engine
