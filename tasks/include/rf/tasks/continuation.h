// Continues texts with a causal language model: converts prompts to tokens, and new tokens back to text.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rf/engine/generator.h"
#include "rf/tasks/chat_answer.h"
#include "rf/text/tokenizer.h"

namespace rf::tasks {

class JsonSchema;  // rf/tasks/json_schema.h

struct ContinuerOptions {
  engine::Precision precision{};             // kFloat32
  engine::CachePrecision cache_precision{};  // kAuto
  std::string
      draft{};  // directory or GGUF file of a smaller model with the same tokens, for engine::Generator; "": none
  text::LoadOptions load{};
  std::function<void(const std::string&)> note{};  // receives warnings; may be empty
};

// A new token; the characters of the new text before it.
struct ContinuationToken {
  engine::NewToken token;
  int64_t offset;
};

// The continuation of a prompt; its numbers are as in engine::Generated.
struct Continuation {
  std::string text;  // of the new tokens; a word piece may continue the prompt's last word
  std::vector<int32_t> ids;
  double log_probability = 0, score = 0;
  bool stopped = false;
  int64_t tokens = 0;                           // of the prompt and the text
  std::vector<ContinuationToken> new_tokens{};  // the same as ids, with GenerationOptions::best_tokens
};

// Conditions that end a text: one of the tokens, or a new text that contains one of the strings.
struct Stops {
  std::vector<int32_t> ids;
  std::vector<std::string> texts;
};

// A prompt without tokens: an empty text, if the tokenizer adds no special token before it.
enum class EmptyPrompts {
  kRefused,
  kWithoutResult  // its result is empty
};

// A text to continue; one that chat() wrote has the special tokens of the template, and gets no others.
enum class PromptForm { kText, kChat };

// The form of prompts, and constraints on their continuations.
struct ContinuationForm {
  PromptForm prompt = PromptForm::kText;
  EmptyPrompts empty = EmptyPrompts::kRefused;
  // The new text is a value of the schema, unless max_new_tokens ends it before; nullptr: any text. Without beams and
  // min_new_tokens.
  std::shared_ptr<const JsonSchema> schema{};
  text::SkipSpecials specials = text::SkipSpecials::kYes;  // of texts
};

// The texts of return_sequences sequences for a prompt, while they are generated. next(), step(), part_after() and
// result() are for one.
class ContinuationStream {
 public:
  // The next part of the text, in whole characters; nullopt at its end. The parts together equal the text of the
  // result. Text that further tokens may change is held back, for example the space of "a ." with a tokenizer that
  // cleans up.
  std::optional<std::string> next();
  // The same for one more token, whose part may be empty.
  std::optional<std::string> step();
  // step() in two parts, until is_done(): generator().step(), then the text that it added.
  bool is_done() const;
  engine::Generator& generator();
  std::optional<std::string> part_after(bool goes_on);
  // The same for each sequence; a text that is known is not given again, nor is a token.
  struct Part {
    std::string text{};
    std::vector<ContinuationToken> tokens{};  // with GenerationOptions::best_tokens
  };
  std::vector<Part> parts_after(bool goes_on);
  int64_t prompt_tokens() const;
  int64_t new_tokens() const;   // so far
  int64_t kept_tokens() const;  // of the prompt, whose keys and values an earlier call left (engine::Generator)
  // After the end.
  const Continuation& result() const { return results()[0]; }
  const std::vector<Continuation>& results() const;

 private:
  friend class Continuer;
  struct Impl;
  explicit ContinuationStream(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;  // copies share the text
};

// continue_prompts() in steps.
class ContinuationRun {
 public:
  // A token more for each prompt that is in work; false: all are done.
  bool step();
  engine::Generator& generator();  // whose step() this is
  int64_t prompt_tokens() const;
  int64_t kept_tokens() const;
  std::vector<std::vector<Continuation>> take();

 private:
  friend class Continuer;
  struct Impl;
  explicit ContinuationRun(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;  // copies share the texts
};

// Thread-safe.
class Continuer {
 public:
  // Throws Error for a model that is not causal, or with a different vocabulary, and for a draft with other tokens.
  explicit Continuer(const std::string& model_dir, const ContinuerOptions& options = {});

  const text::Tokenizer& tokenizer() const;
  int64_t max_length() const;  // tokens of a prompt with its continuation
  int64_t room_after(
      const std::string& prompt) const;  // tokens that this leaves after a prompt of chat(); below 1: none

  engine::Drafted drafted() const;  // by all calls that are finished

  // The end tokens in the tokenizer's format: [SEP] in "[CLS] text [SEP]".
  Stops default_stops() const;
  // Arbitrary strings: each ends a text that contains it after the first new character. A string that is the text of a
  // token in the vocabulary, such as "[SEP]", ends the text as that token. `name`: of the option, for messages. Throws
  // ArgumentError for empty strings and invalid UTF-8.
  Stops stops_of(std::span<const std::string> given, const std::string& name) const;

  // The prompt of a conversation, by the model's chat template (rf/text/chat_template.h): messages of role and content,
  // and the beginning of the answer. A content may be a list of text parts, which are joined; arguments of tool calls
  // may be JSON text, which is parsed. A null value counts as absent. variables: further ones for the template, such as
  // tools, except the variables that the conversation and the tokenizer set. Throws ArgumentError for other messages
  // and for a model without a template, and the errors of ChatTemplate.
  std::string chat(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& variables) const;
  // How the answer to a prompt of chat() is written.
  AnswerFormat answer_format(const std::string& prompt, bool has_tools) const;

  // The keys and values of prompts in a file, as engine::Generator reads and writes them. Throw its errors.
  void read_prompt_cache(const std::string& path) const;
  void write_prompt_cache(const std::string& path, const std::string& prompt, PromptForm form) const;

  // The sequences for each prompt. Throws ArgumentError for a prompt without tokens, unless `empty` allows it, and as
  // engine::Generator does.
  std::vector<std::vector<Continuation>> continue_prompts(std::span<const std::string> prompts,
                                                          const engine::GenerationOptions& options, const Stops& stops,
                                                          const ContinuationForm& form = {}) const;
  // Must not outlive the Continuer.
  ContinuationRun begin(std::span<const std::string> prompts, const engine::GenerationOptions& options,
                        const Stops& stops, const ContinuationForm& form = {}) const;
  // Without beam search. The stream must not outlive the Continuer.
  ContinuationStream stream(const std::string& prompt, const engine::GenerationOptions& options, const Stops& stops,
                            const ContinuationForm& form = {}) const;

 private:
  friend class ContinuationStream;
  friend class ContinuationRun;
  struct Impl;
  std::shared_ptr<Impl> impl_;  // copies share the model
};

}  // namespace rf::tasks
