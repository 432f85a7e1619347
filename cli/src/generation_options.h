// Options of the commands that write text with a causal language model.
#pragma once

#include <string>
#include <vector>

#include "command.h"
#include "rf/engine/generator.h"
#include "rf/engine/precision.h"
#include "rf/tasks/continuation.h"
#include "rf/text/tokenizer.h"

namespace rf::cli {

struct TextOptions {
  std::string model_dir, system, prompt_cache;
  std::vector<std::string> stops;
  text::LoadOptions load;
  engine::Precision precision = engine::Precision::kFloat32;
  engine::CachePrecision cache_precision = engine::CachePrecision::kAuto;
  engine::GenerationOptions generation;
  std::string draft;  // directory; "": none
  bool sample = false, no_stop = false;
};

// The model, sampling, and where a text ends.
void add_text_options(CLI::App& app, TextOptions& options);
void add_beam_options(CLI::App& app, TextOptions& options);
// Selects the search from the given options. Refuses options that the search would ignore.
void finish_text_options(const CLI::App& app, const Common& common, TextOptions& options);

// The draft's acceptance between two counts, as "draft: 12 of 20 tokens accepted"; "" without proposals.
std::string draft_text(const engine::Drafted& before, const engine::Drafted& after);

// The displayed text of an answer in a chat: if the answer has channels, the reasoning, an empty line and the content.
class ShownAnswer {
 public:
  explicit ShownAnswer(const tasks::AnswerFormat& format) : format_(format), reader_(format) {}
  std::string add(const std::string& text) {
    return shown(format_.has_channels() ? reader_.add(text) : tasks::AnswerReader::Part{"", text, {}});
  }
  std::string finish() { return format_.has_channels() ? shown(reader_.finish()) : ""; }
  const std::string& reasoning() const { return reasoning_; }
  const std::string& content() const { return content_; }

 private:
  std::string shown(const tasks::AnswerReader::Part& part);

  const tasks::AnswerFormat format_;
  tasks::AnswerReader reader_;
  std::string reasoning_, content_;
};

tasks::Continuer open_continuer(const TextOptions& options);
tasks::Stops stops_of(const TextOptions& options, const tasks::Continuer& continuer);

}  // namespace rf::cli
