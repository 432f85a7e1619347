// roformer translate: translates lines.
#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "command.h"
#include "read_options.h"
#include "rf/data/identity.h"
#include "rf/data/sentence_pairs.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/model/run_checkpoints.h"
#include "rf/tasks/translation.h"

namespace rf::cli {

namespace {

namespace fs = std::filesystem;

// Number of lines that are sorted by length and written together; an interrupted translation continues at a multiple of
// it.
constexpr size_t kLinesAtOnce = 256;

struct TranslateArguments {
  tasks::TranslateOptions options;
  std::string input = "-", output;
  bool without_cache = false;
};

std::string hash_of_text(const std::vector<std::string>& lines) {
  uint64_t hash = lines.size();
  for (const std::string& line : lines) hash = XXH3_64bits_withSeed(line.data(), line.size(), hash);
  return fmt::format("{:016x}", hash);
}

// The output file of a translation, possibly written in several runs of the program. <output>.part.json describes the
// translation to which the unfinished <output>.part belongs.
class TranslationOutput {
 public:
  TranslationOutput(const std::string& path, const nlohmann::json& settings)
      : file_(path), settings_path_(file_.partial_path() + ".json") {
    const bool goes_on = file_.size() > 0 && io::has_file(settings_path_);
    if (!goes_on) {
      file_.truncate(0);
      io::write_file(settings_path_, settings.dump(2) + "\n");
      return;
    }
    const std::string difference = data::first_difference(io::read_json(settings_path_), settings);
    if (!difference.empty()) {
      fail("translate",
           "model, input and options must be those of the beginning in {}, got {}; remove it to begin again",
           file_.partial_path(), difference);
    }
    keep_whole_blocks();
  }

  size_t lines() const { return lines_; }
  void write(const std::string& text) {
    file_.write(std::string_view(text));
    file_.sync();
  }
  void commit() {
    file_.commit();
    fs::remove(settings_path_);
  }

 private:
  // A killed process may have left an incomplete block.
  void keep_whole_blocks() {
    size_t kept = 0, lines = 0;
    {
      const io::MappedFile file(file_.partial_path());  // may be large
      const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
      for (size_t at = text.find('\n'); at != std::string_view::npos; at = text.find('\n', at + 1)) {
        if (++lines % kLinesAtOnce != 0) continue;
        kept = at + 1;
        lines_ = lines;
      }
    }
    file_.truncate(kept);
  }

  io::ResumableFile file_;
  std::string settings_path_;
  size_t lines_ = 0;
};

int run_translate(const TranslateArguments& arguments) {
  const tasks::TranslateOptions& options = arguments.options;
  if (arguments.output.empty()) {
    check_outputs({}, {arguments.input}, "");
  } else {  // .part contains the translations until they are complete
    const std::string part = arguments.output + ".part";
    check_outputs({arguments.output, part, part + ".json"}, {arguments.input}, options.model_dir);
  }
  const std::vector<std::string> lines = data::read_text_lines(arguments.input);
  const std::string name = arguments.input == "-" ? "standard input" : arguments.input;
  const tasks::LineTranslator translator(options);
  std::optional<TranslationOutput> output;
  if (!arguments.output.empty()) {
    output.emplace(arguments.output, nlohmann::json{{"model", data::model_identity(options.model_dir)},
                                                    {"input", hash_of_text(lines)},
                                                    {"beams", options.search.beams},
                                                    {"length-penalty", options.search.length_penalty},
                                                    {"max-ratio", options.search.max_ratio},
                                                    {"max-extra", options.search.max_extra},
                                                    {"max-source", options.max_source},
                                                    {"batch-tokens", options.search.batch_tokens},
                                                    {"no-cache", arguments.without_cache},
                                                    {"precision", name_of(options.precision)}});
    if (output->lines() > 0) say(fmt::format("continuing at line {} of {}", output->lines() + 1, lines.size()));
  }
  const size_t first = output ? output->lines() : 0;
  const io::TimeEstimate estimate(static_cast<double>(lines.size()), static_cast<double>(first));
  for (size_t begin = first; begin < lines.size(); begin += kLinesAtOnce) {
    const size_t count = std::min(kLinesAtOnce, lines.size() - begin);
    const auto show = [&](int64_t done) {
      const size_t all = begin + static_cast<size_t>(done);
      progress().update(
          fmt::format("translating: {} of {} lines{}", all, lines.size(), estimate.left(static_cast<double>(all))));
    };
    const auto translated =
        translator.translate({lines.data() + begin, count}, name, static_cast<int64_t>(begin) + 1, show);
    std::string text;
    for (const tasks::TranslatedLine& line : translated) text += line.text + "\n";
    if (output) {
      output->write(text);
    } else {
      progress().clear();
      emit_lines(text);
    }
  }
  progress().finish();
  if (!output) return kOk;
  output->commit();
  emit({{"output", arguments.output}, {"lines", lines.size()}, {"seconds", estimate.seconds()}});
  return kOk;
}

std::function<int()> configure_translate(CLI::App& app, const Common&) {
  auto arguments = std::make_shared<TranslateArguments>();
  tasks::TranslateOptions& options = arguments->options;
  app.add_option("--model", options.model_dir, "Model directory, or a run of train-translation")->required();
  add_default(app, "--input", arguments->input, "Lines to translate, also .gz and .zst; -: standard input");
  app.add_option("--output", arguments->output,
                 "File of the translations, a line for each; default: standard output. The same command continues an "
                 "interrupted one");
  add_default(app, "--beams", options.search.beams,
              "Beams of the search, at most 1024; 1: the most probable token at each step");
  add_default(app, "--length-penalty", options.search.length_penalty,
              "Translations are ranked by log-probability over tokens^penalty");
  add_default(app, "--max-ratio", options.search.max_ratio,
              "A translation has at most max-ratio times the tokens of its line, plus max-extra");
  add_default(app, "--max-extra", options.search.max_extra, "Tokens added to that maximum");
  add_default(app, "--max-source", options.max_source,
              "Maximum tokens of a line, its end token included; longer lines are truncated; 0: the model's "
              "max_position_embeddings. A model is not trained beyond the max_length of its run file");
  add_default(app, "--batch-tokens", options.search.batch_tokens,
              "Maximum size of a batch: lines times the longest line times beams");
  app.add_flag("--no-cache", arguments->without_cache,
               "Compute all tokens again at every step, as a comparison: it takes longer");
  add_precision(app, options.precision);
  return [arguments] {
    tasks::TranslateOptions& given = arguments->options;
    given.model_dir = model_of_run(given.model_dir, say);
    given.warn = warn_user;
    given.note = say;
    if (arguments->without_cache) given.search.cache = engine::TranslationOptions::Cache::kNone;
    return run_translate(*arguments);
  };
}

}  // namespace

Command translate_command() {
  return {"translate", "Translate lines with an encoder-decoder",
          "roformer translate --model run --input test.en --output test.de --beams 4", Command::Seed::kNotUsed,
          configure_translate};
}

}  // namespace rf::cli
