// The tokens of texts for an embedder: prompts, the lengths of a role, tokens that are added to queries, and masks.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rf/engine/embedder.h"
#include "rf/text/batch.h"
#include "rf/text/tokenizer.h"
#include "sentence_modules.h"

namespace rf::engine {

class TextRows {
 public:
  // positions: that the model has. modules must outlive it. Throws Error for a tokenizer that contradicts them.
  explicit TextRows(const SentenceModules& modules);
  void set(const EmbedderOptions& options, int64_t positions);

  const text::Tokenizer& tokenizer() const { return tokenizer_; }
  const text::RowSettings& settings() const { return settings_; }
  // Special tokens of a text.
  int64_t specials() const;

  // The directory's limit for the tokens of a text with that role, with special tokens; 0: not stated.
  int64_t length_of(TextRole role) const;

  TokenizedTexts tokenize(std::span<const std::string_view> texts, const std::string& prompt, TextRole role,
                          int64_t max_length) const;

 private:
  // With the tokens that a text may have.
  struct IdleEncoder {
    int64_t max_length;
    std::unique_ptr<text::BatchEncoder> encoder;
  };

  bool adds_specials() const { return modules_.body == SentenceModules::Body::kTransformer; }
  int64_t count_prompt_tokens(const std::string& prompt) const;
  IdleEncoder take_encoder(int64_t max_length) const;
  void give_back(IdleEncoder encoder) const;
  void expand(TokenizedTexts& tokens) const;
  void mask(TextRole role, TokenizedTexts& tokens) const;
  void leave_out_prompt(const std::string& prompt, TokenizedTexts& tokens) const;

  const SentenceModules& modules_;
  text::Tokenizer tokenizer_;
  text::RowSettings settings_;
  LongTexts long_texts_ = LongTexts::kTruncate;
  int threads_ = 1;
  VectorKind vectors_ = VectorKind::kDense;
  std::vector<int32_t> skipped_ids_;  // tokens without vectors, where the rules skip them
  int32_t expansion_id_ = -1;
  int64_t longest_ = 0;

  mutable std::mutex mutex_;
  mutable std::vector<IdleEncoder> idle_;
};

}  // namespace rf::engine
