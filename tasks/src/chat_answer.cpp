// The parts of an answer in a chat (see the header).
#include "rf/tasks/chat_answer.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "chat_messages.h"
#include "rf/io/error.h"
#include "rf/io/printable.h"
#include "rf/tasks/json_schema.h"

namespace rf::tasks {

namespace {

using CallJson = nlohmann::ordered_json;

constexpr std::string_view kThink = "<think>", kThinkEnd = "</think>", kCall = "<tool_call>", kCallEnd = "</tool_call>",
                           kCalls = "[TOOL_CALLS]", kPython = "<|python_tag|>", kBlanks = " \n\r\t",
                           kChannel = "<|channel|>", kMessage = "<|message|>", kTo = "to=functions.";
constexpr std::string_view kMessageEnds[] = {"<|end|>", "<|call|>", "<|return|>", "<|endoftext|>"};

std::string_view stripped(std::string_view text) {
  const size_t first = std::min(text.find_first_not_of(kBlanks), text.size());
  return text.substr(first, text.find_last_not_of(kBlanks) + 1 - first);
}

// The bytes at the end of a text that may be the first ones of a mark.
size_t begun(std::string_view text, std::string_view mark) {
  size_t count = std::min(text.size(), mark.size() - 1);
  while (!text.ends_with(mark.substr(0, count))) --count;
  return count;
}

// A text up to white space at its end.
size_t without_blanks(std::string_view text) { return text.find_last_not_of(kBlanks) + 1; }

std::optional<AnswerReader::Call> call_of(const CallJson& value) {
  if (!value.is_object() || !value.contains("name") || !value["name"].is_string()) return std::nullopt;
  for (const char* key : {"arguments", "parameters"}) {
    if (!value.contains(key)) continue;
    CallJson arguments = value[key];
    if (arguments.is_string()) arguments = CallJson::parse(arguments.get<std::string>(), nullptr, false);
    if (!arguments.is_object()) return std::nullopt;
    return AnswerReader::Call{value["name"], arguments.dump()};
  }
  return AnswerReader::Call{value["name"], "{}"};
}

std::vector<AnswerReader::Call> calls_of(std::string_view text) {
  const CallJson value = CallJson::parse(text, nullptr, /*allow_exceptions=*/false);
  const CallJson list = value.is_array() ? value : CallJson::array({value});
  std::vector<AnswerReader::Call> calls;
  for (const CallJson& each : list) {
    const auto call = call_of(each);
    if (!call) return {};
    calls.push_back(*call);
  }
  return calls;
}

// Changes the references of a schema, or of a list of schemas, from places below # to places below `root`.
void place_below(const std::string& root, CallJson& schema) {
  if (!schema.is_structured()) return;
  for (auto item : schema.items()) {
    CallJson& each = item.value();
    const std::string& key = item.key();
    if (key == "$ref" && each.is_string() && each.get<std::string>().starts_with('#')) {
      each = root + each.get<std::string>().substr(1);
    } else if (each.is_object() && (key == "properties" || key == "$defs" || key == "definitions")) {
      for (auto named : each.items()) place_below(root, named.value());  // their names may equal keywords
    } else if (key != "const" && key != "enum") {
      place_below(root, each);
    }
  }
}

}  // namespace

AnswerFormat answer_format(std::string_view chat_template, std::string_view prompt, bool has_tools) {
  using Reasoning = AnswerFormat::Reasoning;
  const auto has = [chat_template](std::string_view text) {
    return chat_template.find(text) != std::string_view::npos;
  };
  AnswerFormat format;
  if (has(kChannel)) {
    format.reasoning = Reasoning::kChannels;
    return format;
  }
  if (has_tools) {
    format.tools = has(kCall)                                                  ? ToolFormat::kHermes
                   : has(kCalls)                                               ? ToolFormat::kMistral
                   : has("\"parameters\"") && (has(kPython) || has("ipython")) ? ToolFormat::kLlama
                                                                               : ToolFormat::kNone;
  }
  if (stripped(prompt).ends_with(kThink)) {
    format.reasoning = Reasoning::kOpen;
  } else if (has(kThinkEnd)) {
    format.reasoning = Reasoning::kMarked;
  }
  return format;
}

ForcedCall forced_call(const AnswerFormat& format, const nlohmann::ordered_json& tools,
                       const std::optional<std::string>& name) {
  const auto refuse = [](const std::string& rule) { fail<ArgumentError>(kContinuationWhere, "{}", rule); };
  if (format.tools == ToolFormat::kNone && !format.has_channels())
    refuse("a call must be forced with a chat template whose form of calls is known, got another template");
  const char* const arguments = format.tools == ToolFormat::kLlama ? "parameters" : "arguments";
  CallJson schemas = CallJson::object(), calls = CallJson::array();
  std::string callee;
  for (const CallJson& tool : tools) {
    const CallJson function = tool.contains("function") ? tool["function"] : CallJson();
    if (!function.is_object() || !function.contains("name") || !function["name"].is_string())
      refuse("a tool must have a function with a name, got " + io::shown(tool));
    if (name && function["name"] != *name) continue;
    callee = function["name"].get<std::string>();
    const std::string id = std::to_string(calls.size()), place = "#/$defs/" + id;
    CallJson parameters = function.value("parameters", CallJson());
    if (parameters.empty()) parameters = {{"type", "object"}};
    place_below(place, parameters);
    schemas[id] = std::move(parameters);
    const CallJson properties = {{"name", {{"const", callee}}}, {arguments, {{"$ref", place}}}};
    calls.push_back({{"type", "object"}, {"properties", properties}, {"required", {"name", arguments}}});
  }
  if (calls.empty()) refuse("a call must be of a tool that is given, got " + (name ? io::printable(*name) : "no tool"));
  if (format.has_channels() && calls.size() > 1)
    refuse("a call in a channel must be forced by the name of its tool, got several tools without a name");
  CallJson schema = {{"anyOf", calls}};
  std::string begin = format.reasoning == AnswerFormat::Reasoning::kOpen ? fmt::format("\n{}\n\n", kThinkEnd) : "";
  if (format.has_channels()) {
    begin = fmt::format("{}commentary {}{} <|constrain|>json{}", kChannel, kTo, callee, kMessage);
    schema = {{"$ref", "#/$defs/0"}};
  } else if (format.tools == ToolFormat::kHermes) {
    begin += fmt::format("{}\n", kCall);
  } else if (format.tools == ToolFormat::kMistral) {
    begin += kCalls;
    schema = {{"type", "array"}, {"prefixItems", CallJson::array({schema})}, {"minItems", 1}, {"maxItems", 1}};
  }
  schema["$defs"] = schemas;
  return {begin, std::make_shared<const JsonSchema>(schema)};
}

void AnswerReader::Part::append(Part more) {
  reasoning += more.reasoning;
  content += more.content;
  std::ranges::move(more.calls, std::back_inserter(calls));
}

AnswerReader::Part AnswerReader::read(std::string_view text, End end) {
  held_ += text;
  Part part;
  while (step(end, part)) {
  }
  return part;
}

// False: more text is needed, or all is read.
bool AnswerReader::step(End end, Part& part) {
  switch (place_) {
    case Place::kBegin: return read_begin(end);
    case Place::kReasoning: return read_reasoning(end, part);
    case Place::kContentBegin: return read_content_begin(end);
    case Place::kContent: return read_content(end, part);
    case Place::kCall: return read_call(end, part);
    case Place::kWhole:
      if (end == End::kYes) read_whole(part);
      return false;
    case Place::kHeader: return read_header(end);
    case Place::kMessage: return read_message(end, part);
  }
  return false;
}

bool AnswerReader::read_begin(End end) {
  const std::string_view text = stripped(held_);
  if (end == End::kNo && text.size() < kThink.size() && kThink.starts_with(text)) return false;
  place_ = text.starts_with(kThink) ? Place::kReasoning : Place::kContentBegin;
  if (place_ == Place::kReasoning) held_.erase(0, held_.find(kThink) + kThink.size());
  return true;
}

// Without the white space at its ends.
bool AnswerReader::read_reasoning(End end, Part& part) {
  if (!has_reasoned_) held_.erase(0, std::min(held_.find_first_not_of(kBlanks), held_.size()));
  const size_t mark = held_.find(kThinkEnd);
  const bool is_over = mark != std::string::npos;
  const std::string_view all = held_;
  const std::string_view before =
      all.substr(0, is_over ? mark : all.size() - (end == End::kYes ? 0 : begun(all, kThinkEnd)));
  const size_t count = without_blanks(before);
  part.reasoning += before.substr(0, count);
  has_reasoned_ = has_reasoned_ || count > 0 || is_over;
  held_.erase(0, is_over ? mark + kThinkEnd.size() : count);
  if (is_over) place_ = Place::kContentBegin;
  return is_over;
}

bool AnswerReader::read_content_begin(End end) {
  const size_t first = held_.find_first_not_of(kBlanks);
  if (first == std::string::npos && end == End::kNo) return false;
  const std::string_view text = stripped(held_);
  const bool is_list = format_.tools == ToolFormat::kMistral, is_whole = is_list || format_.tools == ToolFormat::kLlama;
  const std::string_view mark = is_list ? kCalls : kPython;
  place_ =
      is_whole && (text.starts_with(is_list ? '[' : '{') || text.starts_with(mark)) ? Place::kWhole : Place::kContent;
  if (is_whole && end == End::kNo && text.size() < mark.size() && mark.starts_with(text)) {
    place_ = Place::kContentBegin;
    return false;
  }
  if (has_reasoned_) held_.erase(0, std::min(first, held_.size()));
  return true;
}

bool AnswerReader::read_content(End end, Part& part) {
  if (format_.tools != ToolFormat::kHermes) {
    part.content += std::exchange(held_, "");
    return false;
  }
  const size_t mark = held_.find(kCall);
  const bool is_call = mark != std::string::npos;
  const std::string_view all = held_;
  const std::string_view before =
      all.substr(0, is_call ? mark : all.size() - (end == End::kYes ? 0 : begun(all, kCall)));
  // White space around calls is not content.
  const size_t count = end == End::kYes && !is_call && !has_calls_ ? before.size() : without_blanks(before);
  part.content += before.substr(0, count);
  held_.erase(0, end == End::kYes && !is_call ? before.size() : count);
  if (is_call) place_ = Place::kCall;
  return is_call;
}

bool AnswerReader::read_call(End end, Part& part) {
  const size_t mark = held_.find(kCallEnd);
  const bool is_over = mark != std::string::npos;
  if (!is_over && end == End::kNo) return false;
  const size_t begin = held_.find(kCall) + kCall.size();  // behind white space
  const size_t last = is_over ? mark : held_.size(), all = is_over ? mark + kCallEnd.size() : last;
  const std::vector<Call> calls = calls_of(std::string_view(held_).substr(begin, std::max(last, begin) - begin));
  const size_t own = std::exchange(of_prompt_, 0);
  if (calls.empty()) {
    part.content += held_.substr(own, all - own);
  } else {
    part.calls.insert(part.calls.end(), calls.begin(), calls.end());
    has_calls_ = true;
  }
  held_.erase(0, all);
  place_ = Place::kContent;
  return true;
}

void AnswerReader::read_whole(Part& part) {
  std::string_view text = stripped(held_);
  for (const std::string_view mark : {kCalls, kPython}) {
    if (text.starts_with(mark)) text = stripped(text.substr(mark.size()));
  }
  std::vector<Call> calls = calls_of(text);
  if (calls.empty()) {  // several objects with semicolons between them
    std::string list(1, '[');
    list.append(text).push_back(']');
    for (size_t at = list.find("};"); at != std::string::npos; at = list.find("};", at + 1)) list[at + 1] = ',';
    calls = calls_of(list);
  }
  if (calls.empty()) {
    part.content += held_.substr(of_prompt_);
  } else {
    part.calls = std::move(calls);
    has_calls_ = true;
  }
  held_.clear();
}

// A text without a header, as under a schema, is content.
bool AnswerReader::read_header(End end) {
  const std::string_view text = stripped(held_);
  const size_t mark = held_.find(kMessage);
  const bool may_begin = text.empty() || text.starts_with('<') || text.starts_with(kTo.front());
  if (mark == std::string::npos && may_begin && (end == End::kNo || text.empty() || text.starts_with('<')))
    return false;
  header_ = mark == std::string::npos ? "" : held_.substr(0, mark);
  held_.erase(0, mark == std::string::npos ? 0 : mark + kMessage.size());
  place_ = Place::kMessage;
  return true;
}

// Analysis is reasoning, a message to a function is a call, and all else is content.
bool AnswerReader::read_message(End end, Part& part) {
  size_t mark = held_.size(), next = mark, begins = mark;  // ends of the message and its mark; start of a possible mark
  for (const std::string_view each : kMessageEnds) {
    if (const size_t found = held_.find(each); found < mark) next = (mark = found) + each.size();
    begins = std::min(begins, held_.size() - begun(held_, each));
  }
  const bool is_over = mark < held_.size();
  const size_t to = header_.find(kTo);
  if (to != std::string::npos) {
    if (!is_over && end == End::kNo) return false;
    const std::string text = held_.substr(0, mark), callee = header_.substr(to + kTo.size());
    const std::vector<Call> calls =
        calls_of(CallJson{{"name", callee.substr(0, callee.find_first_of(" <"))}, {"arguments", text}}.dump());
    if (calls.empty()) part.content += text;
    has_calls_ = has_calls_ || !calls.empty();
    part.calls.insert(part.calls.end(), calls.begin(), calls.end());
  } else {
    if (!is_over && end == End::kNo) mark = next = begins;
    const bool is_reasoning = header_.find(std::string(kChannel) + "analysis") != std::string::npos;
    (is_reasoning ? part.reasoning : part.content) += held_.substr(0, mark);
  }
  held_.erase(0, next);
  if (is_over) place_ = Place::kHeader;
  return is_over;
}

}  // namespace rf::tasks
