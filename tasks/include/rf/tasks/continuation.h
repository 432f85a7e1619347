// Texts that a causal language model continues: prompts to tokens, and the new tokens back to text.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
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

// May be used by several threads at once.
class Continuer {
 public:
  // Throws Error for a model that is not causal, or whose vocabulary is another one.
  explicit Continuer(const std::string& model_dir, const ContinuerOptions& options = {});
  ~Continuer();
  Continuer(Continuer&&) noexcept;
  Continuer& operator=(Continuer&&) noexcept;

  // The tokens that end a text in the form of the tokenizer: [SEP] in "[CLS] text [SEP]".
  const std::vector<int32_t>& stop_ids() const;
  // The ids of tokens of the vocabulary. `name`: of the option, for messages. Throws ArgumentError for other texts.
  std::vector<int32_t> ids_of(std::span<const std::string> tokens, const std::string& name) const;

  // Whether the model has a token to begin with: without a special token before it, an empty text is no prompt.
  bool has_tokens(const std::string& prompt) const;
  // The sequences for each prompt. Throws ArgumentError for a prompt without tokens, and as engine::Generator does.
  std::vector<std::vector<Continuation>> continue_prompts(std::span<const std::string> prompts,
                                                          const engine::GenerationOptions& options) const;
  // One sequence for a prompt, whose text is passed on as it is found, in whole characters: what is passed together is
  // the text of the result. Not for beams.
  Continuation stream(const std::string& prompt, const engine::GenerationOptions& options,
                      const std::function<void(const std::string& text)>& take) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rf::tasks
