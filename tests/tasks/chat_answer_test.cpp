// The parts of answers in chats, whole and byte by byte.
#include "rf/tasks/chat_answer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "rf/io/error.h"
#include "rf/tasks/json_schema.h"

namespace rf::tasks {
namespace {

using Reasoning = AnswerFormat::Reasoning;

std::string shown(const AnswerReader::Part& part) {
  std::string text = part.reasoning + "|" + part.content;
  for (const AnswerReader::Call& call : part.calls) text += "|" + call.name + call.arguments;
  return text;
}

std::string parts_of(AnswerFormat format, std::string_view text, size_t step) {
  AnswerReader reader(format);
  AnswerReader::Part all;
  for (size_t i = 0; i < text.size(); i += step) all.append(reader.add(text.substr(i, step)));
  all.append(reader.finish());
  EXPECT_EQ(reader.has_calls(), !all.calls.empty());
  return shown(all);
}

struct AnswerCase {
  AnswerFormat format;
  const char* text;
  const char* expected;  // reasoning|content|call..
};

constexpr AnswerFormat kPlain, kHermes{ToolFormat::kHermes}, kLlama{ToolFormat::kLlama}, kMistral{ToolFormat::kMistral},
    kMarked{ToolFormat::kHermes, Reasoning::kMarked}, kOpen{ToolFormat::kNone, Reasoning::kOpen},
    kChannels{ToolFormat::kNone, Reasoning::kChannels};

constexpr AnswerCase kAnswerCases[] = {
    {kPlain, " <think>a</think><tool_call>{\"name\": \"f\"}</tool_call>\n",
     "| <think>a</think><tool_call>{\"name\": \"f\"}</tool_call>\n"},
    {kHermes, "a <tool_", "|a <tool_"},
    {kHermes, " a\n", "| a\n"},
    {kHermes,
     "Well.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"b\": 1, \"a\": "
     "[\"x\"]}}\n</tool_call>\n<tool_call>{\"name\":\"g\"}"
     "</tool_call> ",
     "|Well.|f{\"b\":1,\"a\":[\"x\"]}|g{}"},
    {kHermes, "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}", "||f{\"a\":1}"},  // without an end
    {kHermes, "a <tool_call>{\"name\": 5}</tool_call> b", "|a <tool_call>{\"name\": 5}</tool_call> b"},
    {kHermes, "a <tool_call>{\"name\": \"f\", ", "|a <tool_call>{\"name\": \"f\", "},
    {kHermes, "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>",
     "|<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>"},
    {kLlama, "{\"name\": \"f\", \"parameters\": {\"a\": \"x; y\"}}", "||f{\"a\":\"x; y\"}"},
    {kLlama, "\n<|python_tag|>{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"parameters\": {}}",
     "||f{}|g{}"},
    {kLlama, "{\"name\":\"f\",\"parameters\":{\"b\":[1,\"é\"],\"a\":null}}", "||f{\"b\":[1,\"é\"],\"a\":null}"},
    {kLlama, "{\"a\": 1} ", "|{\"a\": 1} "},
    {kLlama, "It is {\"name\": \"f\"}", "|It is {\"name\": \"f\"}"},
    {kMistral, "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\", \"arguments\": {\"a\": null}}]",
     "||f{}|g{\"a\":null}"},
    {kMistral, "[{\"name\": \"f\", \"arguments\": {}}]", "||f{}"},
    {kMistral, "[1, 2]", "|[1, 2]"},
    {kMistral, "[", "|["},
    {kMarked, "\n<think>\na b\n</think>\n\nc <tool_call>{\"name\":\"f\"}</tool_call>", "a b|c|f{}"},
    {kMarked, "<think>\n\n</think>\n\nc", "|c"},
    {kMarked, "<thin", "|<thin"},
    {kMarked, " c", "| c"},
    {kMarked, "<think>a b ", "a b|"},  // cut by the limit of tokens
    {kOpen, "\na</thi</think>b</think>", "a</thi|b</think>"},
    {kChannels,
     "<|channel|>analysis<|message|>a b<|end|><|start|>assistant<|channel|>commentary<|message|>Wait. <|end|>"
     "<|start|>assistant<|channel|>final<|message|>c < d<|return|>",
     "a b|Wait. c < d"},
    {kChannels,
     "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary to=functions.f "
     "<|constrain|>json<|message|>{\"b\": [\"<|\"]}<|call|>",
     "a||f{\"b\":[\"<|\"]}"},
    {kChannels, " to=functions.g.h<|channel|>commentary<|message|>{}", "||g.h{}"},
    {kChannels, "<|channel|>commentary to=functions.f<|message|>no<|call|>", "|no"},
    {kChannels, "<|channel|>analysis<|message|>cut <|en", "cut <|en|"},
    {kChannels, "{\"a\": 1}<|return|>", "|{\"a\": 1}"},
    {kChannels, "<|channel|>fi", "|"},
    {kChannels, "true", "|true"},
    {kChannels, "", "|"},
};

TEST(ChatAnswer, Parts) {
  for (const AnswerCase& each : kAnswerCases) {
    const std::string_view text = each.text;
    for (const size_t step : {text.size(), size_t{1}, size_t{7}}) {
      EXPECT_EQ(parts_of(each.format, text, step), each.expected) << text << " by " << step;
    }
  }
}

TEST(ChatAnswer, Formats) {
  const auto format_of = [](const char* source, const char* prompt, bool has_tools) {
    const AnswerFormat format = answer_format(source, prompt, has_tools);
    return std::pair(format.tools, format.reasoning);
  };
  EXPECT_EQ(format_of("<tool_call> </think>", "a", true), std::pair(ToolFormat::kHermes, Reasoning::kMarked));
  EXPECT_EQ(format_of("<tool_call>", "<think>\n", false), std::pair(ToolFormat::kNone, Reasoning::kOpen));
  EXPECT_EQ(format_of("[TOOL_CALLS]", "", true), std::pair(ToolFormat::kMistral, Reasoning::kNone));
  EXPECT_EQ(format_of("{\"name\": f, \"parameters\": Environment: ipython", "", true).first, ToolFormat::kLlama);
  EXPECT_EQ(format_of("\"parameters\"", "", true).first, ToolFormat::kNone);
  EXPECT_EQ(format_of("<|channel|> <tool_call>", "", true), std::pair(ToolFormat::kNone, Reasoning::kChannels));
}

// The schema allows the text, and behind the beginning it is the call.
TEST(ChatAnswer, ForcedCalls) {
  const auto tools = nlohmann::ordered_json::parse(R"([
    {"function": {"name": "f", "parameters": {"$defs": {"x": {"const": 7}}, "properties": {"a": {"$ref": "#/$defs/x"}}}}},
    {"function": {"name": "g"}}])");
  const std::string plain = R"({"name": "f", "arguments": {"a": 7}})";
  struct Case {
    AnswerFormat format;
    std::string begin, text;
  };
  const Case cases[] = {
      {kHermes, "<tool_call>\n", plain},
      {kMarked, "<tool_call>\n", plain},
      {{ToolFormat::kHermes, Reasoning::kOpen}, "\n</think>\n\n<tool_call>\n", plain},
      {kLlama, "", R"({"name": "f", "parameters": {"a": 7}})"},
      {kMistral, "[TOOL_CALLS]", "[" + plain + "]"},
      {kChannels, "<|channel|>commentary to=functions.f <|constrain|>json<|message|>", R"({"a": 7})"},
  };
  for (const Case& each : cases) {
    const ForcedCall call = forced_call(each.format, tools, "f");
    EXPECT_EQ(call.begin, each.begin);
    EXPECT_TRUE(call.schema->accepts(each.text)) << each.text;
    EXPECT_EQ(parts_of(each.format, call.begin + each.text, 1), "||f{\"a\":7}");
    for (const auto& [from, to] : {std::pair("7", "8"), {"\"f\"", "\"g\""}}) {
      std::string other = each.text;
      const size_t at = other.find(from);
      if (at == std::string::npos) continue;
      EXPECT_FALSE(call.schema->accepts(other.replace(at, std::string_view(from).size(), to))) << other;
    }
  }
  const auto any = forced_call(kHermes, tools, std::nullopt).schema;
  EXPECT_TRUE(any->accepts(plain));
  EXPECT_TRUE(any->accepts(R"({"name": "g", "arguments": {"b": [1]}})"));
  EXPECT_FALSE(any->accepts(R"({"name": "g", "arguments": 1})"));
  for (const auto& [format, name] : {std::pair(kPlain, "f"), {kHermes, "h"}})
    EXPECT_THROW(forced_call(format, tools, name), ArgumentError);
  EXPECT_THROW(forced_call(kChannels, tools, std::nullopt), ArgumentError);
  EXPECT_THROW(forced_call(kHermes, {{{"name", "f"}}}, std::nullopt), ArgumentError);
}

}  // namespace
}  // namespace rf::tasks
