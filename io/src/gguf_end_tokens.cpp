// llama.cpp's rule for the end of a text (gguf.h).
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string_view>

#include "rf/io/error.h"
#include "rf/io/gguf.h"

namespace rf::io {

namespace {

constexpr std::string_view kEnds[] = {
    // Ends of turns and of calls.
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>",
    // Ends of texts.
    "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>", "<end_of_utterance>",
    "<eos>", "<turn|>", "<|tool_response>", "<｜end▁of▁sentence｜>", "[e~["};
// Tokens of infilling; if the key is absent, the first one in the vocabulary counts.
constexpr std::string_view kPads[] = {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"};
constexpr std::string_view kRepositories[] = {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"};
constexpr std::string_view kFiles[] = {"<|file_sep|>"};

struct EndKey {
  std::string_view key;
  std::span<const std::string_view> texts;  // in place of an absent key; texts of eos, eot and eom are in kEnds
};
constexpr EndKey kEndKeys[] = {{"eos_token_id", {}},
                               {"eot_token_id", {}},
                               {"eom_token_id", {}},
                               {"fim_pad_token_id", kPads},
                               {"fim_rep_token_id", kRepositories},
                               {"fim_sep_token_id", kFiles}};

bool is_one_of(std::span<const std::string_view> texts, std::string_view token) {
  return std::ranges::find(texts, token) != texts.end();
}

class EndTokens {
 public:
  explicit EndTokens(const GgufFile& file) : file_(file), tokens_(file.strings("tokenizer.ggml.tokens")) {}

  std::vector<int32_t> find() {
    for (const EndKey& key : kEndKeys) {
      if (const std::optional<int32_t> id = id_of(key)) add(*id);
    }
    for (size_t i = 0; i < tokens_.size(); ++i) {
      if (is_gguf_end_text(tokens_[i])) add(static_cast<int32_t>(i));
    }
    // In a model that calls tools, <|end|> ends a message, not a turn.
    const bool calls = has("<|call|>") && has("<|return|>");
    const bool flushes = (has("<|call|>") || has("<|calls|>")) && has("<|flush|>");
    if (calls || flushes) remove("<|end|>");
    if (has("<|tool_response>")) remove("</s>");
    return std::move(ends_);
  }

 private:
  std::optional<int32_t> id_of(const EndKey& end) const {
    const std::string key = "tokenizer.ggml." + std::string(end.key);
    const auto found = file_.metadata().find(key);
    if (found == file_.metadata().end()) {
      const auto same = [&](const std::string& token) { return is_one_of(end.texts, token); };
      const auto token = std::ranges::find_if(tokens_, same);
      return token == tokens_.end() ? std::nullopt : std::optional(static_cast<int32_t>(token - tokens_.begin()));
    }
    const uint64_t count = tokens_.empty() ? uint64_t{INT32_MAX} : tokens_.size();
    if (!found->is_number_integer() || *found < 0 || *found >= count)
      fail(file_.path(), "{} must be a token from 0 to {}, got {}", key, count - 1, found->dump());
    return found->get<int32_t>();
  }

  void add(int32_t id) {
    if (std::ranges::find(ends_, id) == ends_.end()) ends_.push_back(id);
  }
  bool is(int32_t id, std::string_view text) const {
    return static_cast<size_t>(id) < tokens_.size() && tokens_[static_cast<size_t>(id)] == text;
  }
  bool has(std::string_view text) const {
    return std::ranges::any_of(ends_, [&](int32_t id) { return is(id, text); });
  }
  void remove(std::string_view text) {
    std::erase_if(ends_, [&](int32_t id) { return is(id, text); });
  }

  const GgufFile& file_;
  const std::vector<std::string> tokens_;
  std::vector<int32_t> ends_;
};

}  // namespace

bool is_gguf_end_text(std::string_view token) { return is_one_of(kEnds, token); }

std::vector<int32_t> gguf_end_tokens(const GgufFile& file) { return EndTokens(file).find(); }

}  // namespace rf::io
