// The parts of an answer in a chat: reasoning, content and calls of tools, as the model's chat template marks them.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rf/text/tokenizer.h"

namespace rf::tasks {

class JsonSchema;  // rf/tasks/json_schema.h

// How a model writes calls of tools.
enum class ToolFormat {
  kNone,     // calls are content
  kHermes,   // <tool_call>{"name": .., "arguments": ..}</tool_call>: Hermes, Qwen
  kLlama,    // the whole answer is {"name": .., "parameters": ..}: Llama 3.1
  kMistral,  // the whole answer is [TOOL_CALLS] and a list of {"name": .., "arguments": ..}
};

struct AnswerFormat {
  ToolFormat tools = ToolFormat::kNone;
  // Where <think>..</think> may be: nowhere, at the beginning, or it is open at the end of the prompt. kChannels: an
  // answer is messages as <|channel|>analysis<|message|>..<|end|>, whose marks are special tokens (gpt-oss).
  enum class Reasoning { kNone, kMarked, kOpen, kChannels } reasoning = Reasoning::kNone;
  bool has_channels() const { return reasoning == Reasoning::kChannels; }
  // Whether AnswerReader needs the text with special tokens.
  text::SkipSpecials specials() const { return has_channels() ? text::SkipSpecials::kNo : text::SkipSpecials::kYes; }
};

// By the text of a template and of a prompt that it wrote.
AnswerFormat answer_format(std::string_view chat_template, std::string_view prompt, bool has_tools);

// Forces an answer to be a call of a tool: a text at the end of the prompt, and the schema of the text that follows it.
struct ForcedCall {
  std::string begin;
  std::shared_ptr<const JsonSchema> schema;
};
// tools: as in OpenAI's API; name: the tool to call; nullopt: any tool. Throws ArgumentError for other tools, and for a
// format that does not allow it.
ForcedCall forced_call(const AnswerFormat& format, const nlohmann::ordered_json& tools,
                       const std::optional<std::string>& name);

// Takes the text of an answer piece by piece. Text that does not parse as a call of the format is content.
class AnswerReader {
 public:
  struct Call {
    std::string name, arguments;  // JSON text of an object
  };
  struct Part {
    std::string reasoning, content;
    std::vector<Call> calls;
    bool is_empty() const { return reasoning.empty() && content.empty() && calls.empty(); }
    void append(Part more);
  };

  explicit AnswerReader(AnswerFormat format)
      : format_(format),
        place_(format.has_channels()                                  ? Place::kHeader
               : format.reasoning == AnswerFormat::Reasoning::kNone   ? Place::kContentBegin
               : format.reasoning == AnswerFormat::Reasoning::kMarked ? Place::kBegin
                                                                      : Place::kReasoning) {}

  // The part of an answer that is in its prompt, as for a forced call. It must come first, and is not content.
  void begin(std::string_view text) {
    static_cast<void>(add(text));
    of_prompt_ = held_.size();
  }
  // Returns what `text` adds to the answer; holds back text that may become a mark.
  Part add(std::string_view text) { return read(text, End::kNo); }
  Part finish() { return read("", End::kYes); }
  bool has_calls() const { return has_calls_; }

 private:
  enum class End { kNo, kYes };
  // kWhole: an answer that may be a call as a whole; kHeader, kMessage: of a message of a channel
  enum class Place { kBegin, kReasoning, kContentBegin, kContent, kCall, kWhole, kHeader, kMessage };

  Part read(std::string_view text, End end);
  bool step(End end, Part& part);
  bool read_begin(End end);
  bool read_reasoning(End end, Part& part);
  bool read_content_begin(End end);
  bool read_content(End end, Part& part);
  bool read_call(End end, Part& part);
  void read_whole(Part& part);
  bool read_header(End end);
  bool read_message(End end, Part& part);

  AnswerFormat format_;
  Place place_;
  std::string held_;
  size_t of_prompt_ = 0;  // bytes at the front of held_
  bool has_calls_ = false, has_reasoned_ = false;
  std::string header_;  // of the message
};

}  // namespace rf::tasks
