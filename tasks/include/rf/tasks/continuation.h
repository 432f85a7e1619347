// Texts that a causal language model continues: prompts to tokens, and the new tokens back to text.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rf/text/tokenizer.h"

namespace rf::engine {
enum class Precision;      // rf/engine/precision.h
struct GenerationOptions;  // rf/engine/generator.h
}  // namespace rf::engine

namespace rf::tasks {

struct ContinuerOptions {
  engine::Precision precision{};  // kFloat32
  text::LoadOptions load{};
  std::function<void(const std::string&)> note{};  // receives warnings; may be empty
};

// What was added to a prompt; the numbers are those of engine::Generated.
struct Continuation {
  std::string text;  // of the new tokens; a word piece may continue the prompt's last word
  std::vector<int32_t> ids;
  double log_probability = 0, score = 0;
  bool stopped = false;
};

// What ends a text: one of the tokens, or a new text with one of the strings in it.
struct Stops {
  std::vector<int32_t> ids;
  std::vector<std::string> texts;
};

// A prompt without a token: an empty text, where the tokenizer puts no special token before it.
enum class EmptyPrompts {
  kRefused,
  kWithoutResult  // it has no sequence in the result
};

// The text of one sequence, as it is found.
class ContinuationStream {
 public:
  ~ContinuationStream();
  ContinuationStream(ContinuationStream&&) noexcept;
  ContinuationStream& operator=(ContinuationStream&&) noexcept;

  // The next part of the text, in whole characters; nothing at its end. The parts together are the text of the result:
  // what further tokens may change, as the space of "a ." in a tokenizer that cleans up, waits.
  std::optional<std::string> next();
  const Continuation& result() const;  // after the end

 private:
  friend class Continuer;
  struct Impl;
  explicit ContinuationStream(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// May be used by several threads at once.
class Continuer {
 public:
  // Throws Error for a model that is not causal, or whose vocabulary is another one.
  explicit Continuer(const std::string& model_dir, const ContinuerOptions& options = {});
  ~Continuer();
  Continuer(Continuer&&) noexcept;
  Continuer& operator=(Continuer&&) noexcept;

  // The tokens that end a text in the form of the tokenizer: [SEP] in "[CLS] text [SEP]".
  Stops default_stops() const;
  // Any strings: each ends a text that has it, counted from the first new character, and one that is the text of a
  // token of the vocabulary, such as "[SEP]", ends it as that token. `name`: of the option, for messages. Throws
  // ArgumentError for empty strings and such that are not UTF-8.
  Stops stops_of(std::span<const std::string> given, const std::string& name) const;

  // The sequences for each prompt. Throws ArgumentError for a prompt without tokens, unless `empty` says otherwise, and
  // as engine::Generator does.
  std::vector<std::vector<Continuation>> continue_prompts(std::span<const std::string> prompts,
                                                          const engine::GenerationOptions& options, const Stops& stops,
                                                          EmptyPrompts empty = EmptyPrompts::kRefused) const;
  // One sequence for a prompt, not of beams. The stream must not outlive the Continuer.
  ContinuationStream stream(const std::string& prompt, const engine::GenerationOptions& options,
                            const Stops& stops) const;

 private:
  friend class ContinuationStream;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rf::tasks
