// The run file of `pretrain`: reading, writing, and the learning-rate schedules (spec R-TRN-05).
#include "rf/train/run_config.h"

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>
#include <ranges>

#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/printable.h"
#include "rf/io/strict_object.h"
#include "rf/io/utf8.h"
#include "rf/model/foreign_models.h"
#include "run_file.h"

namespace rf::train {

namespace {

constexpr int64_t kMinLength = 3, kMinPairLength = 5, kMaxLength = int64_t{1} << 24;
constexpr int64_t kMaxRows = int64_t{1} << 20;
constexpr io::NumberRange kFraction{0, 1};

const std::initializer_list<std::pair<const char*, data::MaskUnit>> kMaskUnits = {
    {"token", data::MaskUnit::kToken}, {"whole-word", data::MaskUnit::kWholeWord}};
const std::initializer_list<std::pair<const char*, data::Objective>> kObjectives = {
    {"masked", data::Objective::kMasked}, {"causal", data::Objective::kCausal}};
const std::initializer_list<std::pair<const char*, data::Packing>> kPackings = {{"packed", data::Packing::kPacked},
                                                                                {"padded", data::Packing::kPadded}};
const std::initializer_list<std::pair<const char*, Sharding>> kShardings = {{"none", Sharding::kNone},
                                                                            {"optimizer", Sharding::kOptimizer}};

Stage parse_stage(const nlohmann::json& json, const std::string& path) {
  io::StrictObject object(json, kRunFile, path);
  Stage stage;
  stage.max_length = object.integer("max_length", stage.max_length, kMinLength, kMaxLength);
  stage.batch = object.integer("batch", stage.batch, 1, kMaxRows);
  stage.steps = object.integer("steps", stage.steps, 1, kMaxSteps);
  stage.accumulate = object.integer("accumulate", stage.accumulate, 1, kMaxRows);
  object.finish();
  if (stage.batch % stage.accumulate != 0) {
    fail(kRunFile, "{}.batch must be a multiple of accumulate, got batch {} and accumulate {}", path, stage.batch,
         stage.accumulate);
  }
  return stage;
}

std::vector<int64_t> parse_lengths(const nlohmann::json& json) {
  if (!json.is_array()) fail(kRunFile, "evaluate_lengths must be a list of lengths, got {}", json.dump());
  std::vector<int64_t> lengths;
  for (const nlohmann::json& length : json) {
    const bool good = length.is_number_integer() && length >= kMinLength && length <= kMaxLength;
    if (!good) {
      fail(kRunFile, "each of evaluate_lengths must be an integer from {} to {}, got {}", kMinLength, kMaxLength,
           length.dump());
    }
    lengths.push_back(length);
  }
  return lengths;
}

std::vector<Stage> parse_stages(const nlohmann::json& json) {
  if (!json.is_array() || json.empty()) {
    fail(kRunFile, "stages must be a list of at least one stage, got {}", json.dump());
  }
  std::vector<Stage> stages;
  for (size_t i = 0; i < json.size(); ++i) stages.push_back(parse_stage(json[i], fmt::format("stages[{}]", i)));
  return stages;
}

std::vector<std::pair<int64_t, double>> parse_points(const nlohmann::json* json) {
  if (json == nullptr || !json->is_array() || json->empty()) {
    fail(kRunFile, "schedule.points must be a list of [step, multiplier], got {}", json ? json->dump() : "nothing");
  }
  std::vector<std::pair<int64_t, double>> points;
  for (const nlohmann::json& point : *json) {
    const bool good = point.is_array() && point.size() == 2 && point[0].is_number_integer() && point[1].is_number() &&
                      point[0].get<int64_t>() >= 0 && point[1].get<double>() >= 0;
    if (!good) fail(kRunFile, "each of schedule.points must be [step >= 0, multiplier >= 0], got {}", point.dump());
    points.emplace_back(point[0].get<int64_t>(), point[1].get<double>());
    if (points.size() > 1 && points.back().first <= points[points.size() - 2].first) {
      fail(kRunFile, "steps of schedule.points must rise, got {} after {}", points.back().first,
           points[points.size() - 2].first);
    }
  }
  return points;
}

data::MaskOptions parse_mask(const nlohmann::json& json) {
  io::StrictObject object(json, kRunFile, "mask");
  data::MaskOptions mask;
  mask.probability = object.number("probability", mask.probability, {0, 1, io::NumberRange::Ends::kOpenLow});
  mask.mask_fraction = object.number("mask_fraction", mask.mask_fraction, kFraction);
  mask.random_fraction = object.number("random_fraction", mask.random_fraction, kFraction);
  mask.unit = object.choice("unit", mask.unit, kMaskUnits);
  object.finish();
  if (mask.mask_fraction + mask.random_fraction > 1) {
    fail(kRunFile, "mask.mask_fraction + mask.random_fraction must be at most 1, got {} + {}", mask.mask_fraction,
         mask.random_fraction);
  }
  return mask;
}

std::vector<ParameterGroup> parse_groups(const nlohmann::json& json) {
  if (!json.is_array()) fail(kRunFile, "groups must be a list of groups of parameters, got {}", json.dump());
  std::vector<ParameterGroup> groups;
  for (const nlohmann::json& each : json) {
    io::StrictObject object(each, kRunFile, fmt::format("groups[{}]", groups.size()));
    object.require({"parameters"});
    ParameterGroup& group = groups.emplace_back();
    group.parameters = object.text("parameters", "");
    group.learning_rate = object.number("learning_rate", group.learning_rate, kNotNegative);
    for (const auto& [key, value] :
         {std::pair{"weight_decay", &group.weight_decay}, {"initializer_range", &group.initializer_range}}) {
      if (object.find(key) != nullptr) *value = object.number(key, 0, kNotNegative);
    }
    object.finish();
  }
  return groups;
}

// A pair needs the masked objective, and rows of [CLS] A [SEP] B [SEP] with a token on either side.
void check_pairs(const RunConfig& run) {
  if (run.pairs == data::Pairs::kNone) return;
  const char* const pairs = name_of(data::kPairsNames, run.pairs);
  if (run.objective == data::Objective::kCausal) {
    fail(kRunFile, "pairs must be absent or none with objective causal, which has no [CLS] that sees both, got {}",
         pairs);
  }
  for (size_t i = 0; i < run.stages.size(); ++i) {
    if (run.stages[i].max_length >= kMinPairLength) continue;
    fail(kRunFile, "stages[{}].max_length must be at least {} with pairs {}, got {}", i, kMinPairLength, pairs,
         run.stages[i].max_length);
  }
  for (const int64_t length : run.evaluate_lengths) {
    if (length >= kMinPairLength) continue;
    fail(kRunFile, "each of evaluate_lengths must be at least {} with pairs {}, got {}", kMinPairLength, pairs, length);
  }
}

double piecewise(const ScheduleConfig& schedule, int64_t step) {
  std::pair<int64_t, double> from{0, 0.0};  // bert4keras starts at (0, 0) unless step 0 is given
  for (const auto& to : schedule.points) {
    if (step < to.first) {
      const double part = static_cast<double>(step - from.first) / static_cast<double>(to.first - from.first);
      return from.second + (to.second - from.second) * part;
    }
    from = to;
  }
  return from.second;
}

// Attention is causal if and only if the objective is; a model without the key gets the value for its objective.
void fit_attention(RunConfig& run, const nlohmann::json* model) {
  const bool causal = run.objective == data::Objective::kCausal;
  const bool says = model != nullptr && model->contains("is_decoder");
  if (says && run.model.is_decoder != causal) {
    fail(kRunFile, "model.is_decoder must be {} with objective {}, got {}{}", causal,
         name_of(kObjectives, run.objective), run.model.is_decoder,
         causal ? "" : "; causal attention goes with \"objective\": \"causal\"");
  }
  run.model.is_decoder = causal;
  if (run.model.prefix_lm) {
    fail(kRunFile, "model.prefix_lm must be false here, got true; roformer train-similar trains it on pairs of texts");
  }
}

// The place of "stages.0.steps" in a run file.
nlohmann::json& place_of(nlohmann::json& run, const std::string& path) {
  nlohmann::json* place = &run;
  for (const auto part : std::views::split(path, '.')) {
    const std::string key(part.begin(), part.end());
    size_t index = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), index);
    const bool is_index = error == std::errc() && end == key.data() + key.size();
    if (place->is_array() && is_index && index < place->size()) {
      place = &(*place)[index];
    } else if (place->is_object() || place->is_null()) {
      place = &(*place)[key];
    } else {
      fail(kRunFile, "{} must name a key, or an element of a list by its number from 0, got {} of {}",
           io::printable(path), io::printable(key), place->dump());
    }
  }
  return *place;
}

}  // namespace

nlohmann::json value_of(const std::string& text) {
  const nlohmann::json parsed = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  return parsed.is_discarded() ? nlohmann::json(text) : parsed;
}

nlohmann::json load_run_file(const std::string& path, const std::vector<std::string>& overrides, nlohmann::json run) {
  if (!path.empty()) run = io::read_json(path);
  for (const std::string& text : overrides) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      fail(kRunFile, "a replaced value must be written as key=value, got {}", io::printable(text));
    }
    if (!is_utf8(text)) fail(kRunFile, "a replaced value must be UTF-8, got {}", io::printable(text));
    place_of(run, text.substr(0, equals)) = value_of(text.substr(equals + 1));
  }
  return run;
}

void parse_optimizer(io::StrictObject& object, AdamWOptions& options) {
  constexpr io::NumberRange kBelowOne{0, 1, io::NumberRange::Ends::kOpenHigh};
  options.weight_decay = object.number("weight_decay", options.weight_decay, kNotNegative);
  options.beta1 = object.number("beta1", options.beta1, kBelowOne);
  options.beta2 = object.number("beta2", options.beta2, kBelowOne);
  options.epsilon = object.number("epsilon", options.epsilon, kPositive);
  options.clip_norm = object.number("clip_norm", options.clip_norm, kNotNegative);
  if (const nlohmann::json* groups = object.find("groups")) options.groups = parse_groups(*groups);
}

void refuse_initial_values(const std::vector<ParameterGroup>& groups, std::string_view where) {
  for (size_t i = 0; i < groups.size(); ++i) {
    if (!groups[i].initializer_range) continue;
    fail(kRunFile, "groups[{}].initializer_range must be absent {}, got {}", i, where, *groups[i].initializer_range);
  }
}

void add_to(nlohmann::json& json, const AdamWOptions& options) {
  json.update({{"weight_decay", options.weight_decay},
               {"beta1", options.beta1},
               {"beta2", options.beta2},
               {"epsilon", options.epsilon},
               {"clip_norm", options.clip_norm}});
  for (const ParameterGroup& group : options.groups) {  // runs without groups lack the key, as in earlier versions
    nlohmann::json& added = json["groups"].emplace_back();
    added = {{"parameters", group.parameters}, {"learning_rate", group.learning_rate}};
    if (group.weight_decay) added["weight_decay"] = *group.weight_decay;
    if (group.initializer_range) added["initializer_range"] = *group.initializer_range;
  }
}

ScheduleConfig parse_schedule(const nlohmann::json& json) {
  io::StrictObject object(json, kRunFile, "schedule");
  ScheduleConfig schedule;
  schedule.kind = object.choice("kind", schedule.kind, kSchedules);
  schedule.learning_rate = object.number("learning_rate", schedule.learning_rate, kPositive);
  if (schedule.kind == Schedule::kPiecewise) {
    schedule.points = parse_points(object.find("points"));
    schedule.warmup_steps = 0;
  } else {
    schedule.warmup_steps = object.integer("warmup_steps", schedule.warmup_steps, 0, kMaxSteps);
    schedule.initial_rate = object.number("initial_rate", schedule.initial_rate, kNotNegative);
  }
  if (schedule.kind == Schedule::kLinear || schedule.kind == Schedule::kCosine) {
    schedule.final_rate = object.number("final_rate", schedule.final_rate, kNotNegative);
  }
  object.finish();
  return schedule;
}

nlohmann::json to_json(const ScheduleConfig& schedule) {
  nlohmann::json json = {{"kind", name_of(kSchedules, schedule.kind)}, {"learning_rate", schedule.learning_rate}};
  if (schedule.kind == Schedule::kPiecewise) {
    json["points"] = schedule.points;
  } else {
    json["warmup_steps"] = schedule.warmup_steps;
    json["initial_rate"] = schedule.initial_rate;
  }
  if (schedule.kind == Schedule::kLinear || schedule.kind == Schedule::kCosine) {
    json["final_rate"] = schedule.final_rate;
  }
  return json;
}

RunConfig parse_run_config(const nlohmann::json& json) {
  io::StrictObject object(json, kRunFile, "");
  RunConfig run;
  run.init_from = object.text("init_from", run.init_from);
  if (const nlohmann::json* model = object.find("model")) {
    if (!run.init_from.empty()) {
      fail(kRunFile, "model must be absent with init_from, whose config.json is used, got {}", model->dump());
    }
    run.model = parse_new_config(*model);
    check_has_module(run.model);
  }
  const nlohmann::json* stages = object.find("stages");
  parse_shared_keys(object, run);
  run.objective = object.choice("objective", run.objective, kObjectives);
  if (run.init_from.empty()) fit_attention(run, object.find("model"));
  if (const nlohmann::json* mask = object.find("mask")) {
    if (run.objective == data::Objective::kCausal) {
      fail(kRunFile, "mask must be absent with objective causal, which predicts every token, got {}", mask->dump());
    }
    run.mask = parse_mask(*mask);
  }
  run.pairs = object.choice("pairs", run.pairs, data::kPairsNames);
  run.packing = object.choice("packing", run.packing, kPackings);
  run.sharding = object.choice("sharding", run.sharding, kShardings);
  run.reduce_precision = object.choice("reduce_precision", run.reduce_precision, kPrecisions);
  run.reduce_overlap = object.boolean("reduce_overlap", run.reduce_overlap);
  run.evaluate_every_steps = object.integer("evaluate_every_steps", run.evaluate_every_steps, 0, kMaxSteps);
  run.evaluate_batches = object.integer("evaluate_batches", run.evaluate_batches, 0, kMaxSteps);
  if (const nlohmann::json* lengths = object.find("evaluate_lengths")) run.evaluate_lengths = parse_lengths(*lengths);
  if (!run.init_from.empty()) refuse_initial_values(run.optimizer.groups, "with init_from, whose weights are used");
  object.finish();  // first, since a misspelt key may be the reason for missing stages
  run.stages = parse_stages(stages == nullptr ? nlohmann::json::array() : *stages);
  check_pairs(run);
  return run;
}

nlohmann::json to_json(const RunConfig& run) {
  nlohmann::json stages = nlohmann::json::array();
  for (const Stage& stage : run.stages) {
    stages.push_back({{"max_length", stage.max_length},
                      {"batch", stage.batch},
                      {"steps", stage.steps},
                      {"accumulate", stage.accumulate}});
  }
  nlohmann::json json = shared_keys(run);
  json.update({{"stages", stages},
               {"objective", name_of(kObjectives, run.objective)},
               {"pairs", name_of(data::kPairsNames, run.pairs)},
               {"packing", name_of(kPackings, run.packing)},
               {"sharding", name_of(kShardings, run.sharding)},
               {"reduce_precision", name_of(kPrecisions, run.reduce_precision)},
               {"reduce_overlap", run.reduce_overlap},
               {"evaluate_batches", run.evaluate_batches},
               {"evaluate_lengths", run.evaluate_lengths}});
  if (run.objective == data::Objective::kMasked) {
    json["mask"] = {{"probability", run.mask.probability},
                    {"mask_fraction", run.mask.mask_fraction},
                    {"random_fraction", run.mask.random_fraction},
                    {"unit", name_of(kMaskUnits, run.mask.unit)}};
  }
  if (run.init_from.empty()) {
    json["model"] = rf::to_json(run.model);
  } else {
    json["init_from"] = run.init_from;
  }
  return json;
}

double learning_rate(const ScheduleConfig& schedule, int64_t step, int64_t total_steps) {
  if (schedule.kind == Schedule::kPiecewise) return schedule.learning_rate * piecewise(schedule, step);
  const double peak = schedule.learning_rate;
  const int64_t warmup = schedule.warmup_steps;
  if (step <= warmup) {
    const double part = static_cast<double>(step) / static_cast<double>(warmup);
    return schedule.initial_rate + (peak - schedule.initial_rate) * part;
  }
  const double done = static_cast<double>(step - warmup) / static_cast<double>(total_steps - warmup);
  switch (schedule.kind) {
    case Schedule::kLinear: return peak + (schedule.final_rate - peak) * done;
    case Schedule::kCosine:
      return schedule.final_rate + (peak - schedule.final_rate) * 0.5 * (1 + std::cos(std::numbers::pi * done));
    case Schedule::kInverseSqrt:
      return peak * std::sqrt(static_cast<double>(std::max<int64_t>(warmup, 1)) / static_cast<double>(step));
    default: return peak;
  }
}

}  // namespace rf::train
