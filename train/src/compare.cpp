// A comparison from its options to its tables (rf/train/compare.h). Each run is a pretraining run in its own directory,
// so a comparison that was killed continues where it stopped.
#include "rf/train/compare.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "compare_table.h"
#include "device.h"
#include "held_out.h"
#include "metrics_log.h"
#include "rf/data/identity.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/printable.h"
#include "rf/io/strict_object.h"
#include "rf/model/foreign_models.h"
#include "rf/nn/encoding_info.h"
#include "rf/text/tokenizer.h"
#include "rf/train/job.h"
#include "rf/train/pretrain.h"
#include "rf/train/run_directory.h"
#include "run_file.h"
#include "run_series.h"
#include "tensor_memory.h"
#include "train_step.h"

namespace rf::train {

namespace {

constexpr int kRules = 2;  // of training: runs by other rules may not join a comparison

// Median milliseconds per step over the log intervals of a run, including those before an interruption.
double median_step_ms(const TrainingCurve& curve) {
  std::vector<double> times;
  for (size_t i = 0; i < curve.steps.size(); ++i) {
    const int64_t steps = curve.steps[i] - (i == 0 ? 0 : curve.steps[i - 1]);
    times.push_back(1000 * curve.seconds[i] / static_cast<double>(steps));
  }
  if (times.empty()) return 0;
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

void add_cost(CompareRun& run, const TrainingCurve& curve) {
  run.seconds = std::accumulate(curve.seconds.begin(), curve.seconds.end(), 0.0);
  run.tokens = curve.tokens;
}

// A directory's name: letters, digits, '-', '_', '.' and '=' are kept.
std::string directory_name(const std::string& arm) {
  std::string name;
  for (const char c : arm) name += std::isalnum(static_cast<unsigned char>(c)) || std::strchr("-_.=", c) ? c : '+';
  return name;
}

nlohmann::json to_json(const CompareRun& run) {
  nlohmann::json losses = nlohmann::json::array();
  for (const std::optional<double>& loss : run.losses)
    losses.push_back(loss ? nlohmann::json(*loss) : nlohmann::json());
  nlohmann::json json = {{"encoding", run.arm},          {"seed", run.seed}, {"step_ms", run.step_ms},
                         {"parameters", run.parameters}, {"losses", losses}, {"peak_bytes", run.peak_bytes}};
  if (run.diverged_at > 0) json["diverged_at_step"] = run.diverged_at;
  return json;
}

CompareRun read_run(const std::string& path, size_t lengths) {
  const nlohmann::json json = io::read_json(path);
  io::StrictObject object(json, path, "");
  object.require({"encoding", "seed", "parameters", "step_ms", "peak_bytes", "losses"});
  CompareRun run{.arm = object.text("encoding", ""),
                 .seed = static_cast<uint64_t>(object.integer("seed", 0, 0, INT64_MAX)),
                 .parameters = object.integer("parameters", 0, 0, INT64_MAX),
                 .step_ms = object.number("step_ms", 0, kNotNegative),
                 .peak_bytes = object.integer("peak_bytes", 0, 0, INT64_MAX),
                 .losses = {},
                 .diverged_at = object.integer("diverged_at_step", 0, 0, INT64_MAX)};
  const nlohmann::json& losses = *object.find("losses");
  const auto good = [](const nlohmann::json& loss) { return loss.is_null() || loss.is_number(); };
  if (!losses.is_array() || losses.size() != lengths || !std::all_of(losses.begin(), losses.end(), good)) {
    fail(path, "losses must be {} numbers or null, one per length, got {}", lengths, losses.dump());
  }
  for (const nlohmann::json& loss : losses) {
    run.losses.push_back(loss.is_null() ? std::nullopt : std::optional(loss.get<double>()));
  }
  return run;
}

// Pieces between separators; separators inside brackets and quotes do not count.
std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> pieces(1);
  int depth = 0;
  bool quoted = false;
  for (const char c : text) {
    if (c == '"') quoted = !quoted;
    if (!quoted && (c == '{' || c == '[')) ++depth;
    if (!quoted && (c == '}' || c == ']')) --depth;
    if (c == separator && depth == 0 && !quoted) {
      pieces.emplace_back();
    } else {
      pieces.back() += c;
    }
  }
  return pieces;
}

nlohmann::json default_run() {
  return {{"model",
           {{"hidden_size", 128},
            {"num_hidden_layers", 4},
            {"num_attention_heads", 4},
            {"intermediate_size", 512},
            {"max_position_embeddings", 128}}},
          {"stages", {{{"max_length", 128}, {"batch", 32}, {"steps", 400}}}},
          {"evaluate_batches", 40},
          {"checkpoint_every_steps", 200},
          {"keep_checkpoints", 1}};
}

nlohmann::json run_of(const CompareOptions& options) {
  const nlohmann::json run = load_run_file(options.config_path, options.overrides, default_run());
  const auto model = run.find("model");
  if (model != run.end() && model->is_object() && model->contains("position_encoding")) {
    fail("compare", "model.position_encoding must be absent, since --encodings has those of the models, got {}",
         io::shown((*model)["position_encoding"]));
  }
  return run;
}

class Comparison {
 public:
  Comparison(const CompareOptions& options, io::Progress& progress)
      : options_(options),
        progress_(progress),
        device_(open_device("compare", options.device)),
        base_(parse_run_config(run_of(options))) {
    if (options_.seeds < 1) fail("compare", "seeds must be at least 1, got {}", options_.seeds);
    if (!base_.init_from.empty()) {
      fail("compare", "init_from must be absent, since arms differ in their weights, got {}", base_.init_from);
    }
    if (options_.seed) base_.seed = *options_.seed;
    for (const int64_t factor : options_.length_factors) {
      if (factor < 1) fail("compare", "multiples of the training length must be at least 1, got {}", factor);
      report_.lengths.push_back(factor * base_.stages.back().max_length);
    }
    vocabulary_.emplace(text::load_vocabulary(options_.data_dir));
    vocabulary_->require(data::required_roles(base_.objective), "compare");
    base_.model = with_vocabulary(base_.model, vocabulary_->size(), vocabulary_->special().pad);
    held_out_.emplace(std::make_shared<data::Split>(options_.data_dir, "train", vocabulary_->hash()), options_.data_dir,
                      "valid", *vocabulary_);
    if (held_out_->empty()) fail("compare", "the data must have held-out documents, got none in {}", options_.data_dir);
    find_arms();
    check_groups();
    series_.emplace(std::ssize(arms_) * options_.seeds);
    open_output();
  }

  CompareReport go() {
    measure_unigrams();
    for (const std::string& arm : arms_) {
      for (int64_t i = 0; i < options_.seeds; ++i) {
        CompareRun run;
        if (!train(arm, base_.seed + static_cast<uint64_t>(i), run)) return report_;
        report_.runs.push_back(std::move(run));
        write_tables();
        if (report_.signal != 0) return report_;
      }
    }
    return report_;
  }

 private:
  void find_arms() {
    if (options_.arms.empty()) fail("compare", "at least one encoding must be named, got none");
    for (const std::string& arm : options_.arms) {
      if (arm != kEveryEncoding) {
        add_arm(arm);
        continue;
      }
      add_arm("none");  // the first of the table; its errors are errors of the run file
      for (const nn::EncodingInfo& info : nn::encoding_infos()) {
        if (info.name == "none") continue;
        try {
          add_arm(info.name);
        } catch (const Error& error) {
          if (options_.note) options_.note(fmt::format("left out {}: {}", info.name, error.what()));
        }
      }
    }
  }

  // A group may have parameters in the models of some arms only, but not in none.
  void check_groups() const {
    const std::vector<ParameterGroup>& groups = base_.optimizer.groups;
    for (size_t i = 0; i < groups.size(); ++i) {
      if (std::ranges::any_of(groups_, [i](const auto& of_arm) { return of_arm.second.contains(i); })) continue;
      fail(kRunFile,
           "groups[{}].parameters must match a parameter of a compared model that no earlier group has, got {}", i,
           io::printable(groups[i].parameters));
    }
  }

  void add_arm(const std::string& arm) {
    const auto is_same = [&](const std::string& other) { return directory_name(other) == directory_name(arm); };
    if (std::any_of(arms_.begin(), arms_.end(), is_same)) {
      fail("compare", "encodings must differ, got {} twice", io::printable(arm));
    }
    const nn::Model model(config_of(arm, base_.seed).model, head_of(base_.objective, base_.pairs));
    for (const at::Tensor& parameter : model.parameters()) parameters_[arm] += parameter.numel();
    std::set<size_t> own;
    for (const Parameter& each : trained_parameters(model)) {
      if (const auto group = group_of(base_.optimizer.groups, each.name)) own.insert(*group);
    }
    groups_[arm] = own;
    arms_.push_back(arm);
  }

  // compare.json stores everything that affects the numbers, except the arms and the seeds, which may be added later.
  void open_output() {
    nlohmann::json settings = {{"run", to_json(base_)},
                               {"data", data::identity(options_.data_dir)},
                               {"length_factors", options_.length_factors},
                               {"rules", kRules}};
    const auto directory = RunDirectory::unlocked("compare", options_.output_dir);
    if (!directory.is_empty() && !directory.has("compare.json")) {
      fail("compare", "the output directory must be empty or hold a comparison, got {} without compare.json",
           directory.path());
    }
    const nlohmann::json before = directory.kept_settings("compare.json", settings);
    const std::string difference = data::first_difference(before, settings);
    if (difference.empty()) return;
    fail("compare", "the settings must be those of the comparison in {}, got {}", directory.path(), difference);
  }

  void measure_unigrams() {
    for (const int64_t length : report_.lengths) {
      report_.unigram_losses.push_back(held_out_->unigram_loss(base_, length, batch_tokens(base_.stages.back())));
    }
  }

  RunConfig config_of(const std::string& arm, uint64_t seed) const {
    RunConfig config = base_;
    config.model.position_encodings = {parse_arm(arm)};
    config.seed = seed;
    config.optimizer.groups.clear();
    if (const auto own = groups_.find(arm); own != groups_.end()) {
      for (const size_t group : own->second) config.optimizer.groups.push_back(base_.optimizer.groups[group]);
    }
    return config;
  }

  std::string run_dir(const std::string& arm, uint64_t seed) const {
    return fmt::format("{}/{}/seed-{}", options_.output_dir, directory_name(arm), seed);
  }

  // False if a signal ended it early.
  bool train(const std::string& arm, uint64_t seed, CompareRun& run) {
    const std::string directory = run_dir(arm, seed), result = directory + "/result.json";
    if (io::has_file(result)) {
      series_->skip();
      run = read_run(result, report_.lengths.size());
      run.directory = directory;
      add_cost(run, training_curve(directory));
      return true;
    }
    const io::Progress::Part part(progress_, series_->begin(fmt::format("{}, seed {}", arm, seed)));
    PretrainOptions pretraining;
    pretraining.data_dir = options_.data_dir;
    pretraining.note = options_.note;
    pretraining.device = options_.device;
    const TensorMemoryScope memory(device_.type());
    const nlohmann::json run_file = to_json(config_of(arm, seed));
    if (options_.before) options_.before(directory, run_file);
    PretrainReport report;
    int64_t diverged_at = 0;
    try {
      report = pretrain_part(directory, run_file, pretraining, progress_);
    } catch (const Diverged& error) {
      diverged_at = error.step;
      if (options_.note) {
        options_.note(fmt::format("{}, seed {}, has diverged and has no loss: {}", arm, seed, error.what()));
      }
    }
    const bool is_complete = report.is_complete || diverged_at > 0;
    if (options_.after) options_.after(is_complete);
    report_.signal = report.signal;
    if (!is_complete) return false;
    const TrainingCurve curve = training_curve(directory);
    run = {.arm = arm,
           .seed = seed,
           .parameters = parameters_.at(arm),
           .step_ms = median_step_ms(curve),
           .peak_bytes = memory.peak_bytes(),
           .losses = {},
           .diverged_at = diverged_at,
           .directory = directory};
    add_cost(run, curve);
    if (diverged_at > 0) {
      run.losses.resize(report_.lengths.size());
    } else {
      measure(directory, run);
    }
    if (options_.measured) options_.measured(run);
    io::write_file(result, to_json(run).dump(2) + "\n");
    series_->end();
    return true;
  }

  // Held-out loss at every length, with the seed of the run file, so that all runs are measured on the same masks.
  void measure(const std::string& directory, CompareRun& run) {
    const auto model = nn::load_model(directory, head_of(base_.objective, base_.pairs), at::kFloat);
    model->to(device_);
    for (const int64_t length : report_.lengths) {
      const auto evaluation = held_out_->measure_length(*model, base_, length, batch_tokens(base_.stages.back()),
                                                        progress_, options_.note, Ranks::alone());
      run.losses.push_back(evaluation ? std::optional(evaluation->loss) : std::nullopt);
    }
  }

  void write_tables() {
    report_.table = markdown_table(report_);
    io::write_file(options_.output_dir + "/table.md", report_.table);
    io::write_file(options_.output_dir + "/table.csv", csv_table(report_));
  }

  const CompareOptions& options_;
  io::Progress& progress_;
  const at::Device device_;
  RunConfig base_;
  std::optional<text::Vocabulary> vocabulary_;
  std::optional<HeldOut> held_out_;
  std::map<std::string, int64_t> parameters_;       // of each arm's model
  std::map<std::string, std::set<size_t>> groups_;  // numbers of the parameter groups in each arm's model
  CompareReport report_;
  std::vector<std::string> arms_;
  std::optional<RunSeries> series_;
};

}  // namespace

std::vector<std::string> split_arms(const std::string& text) { return split(text, ','); }

EncodingConfig parse_arm(const std::string& text) {
  const std::vector<std::string> pieces = split(text, ':');
  if (pieces[0].empty()) fail("compare", "an encoding must have a name, got {}", io::printable(text));
  nlohmann::json options = nlohmann::json::object();
  for (size_t i = 1; i < pieces.size(); ++i) {
    const size_t equals = pieces[i].find('=');
    const std::string key = pieces[i].substr(0, equals);
    if (equals == std::string::npos || key.empty() || options.contains(key)) {
      fail("compare", "keys of an encoding must be written once, as name:key=value, got {} in {}",
           io::printable(pieces[i]), io::printable(text));
    }
    options[key] = value_of(pieces[i].substr(equals + 1));
  }
  return {pieces[0], options.dump()};
}

CompareReport compare(const CompareOptions& options, io::Progress& progress) {
  return Comparison(options, progress).go();
}

}  // namespace rf::train
