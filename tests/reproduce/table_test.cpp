// The table of experiments and the registers: complete, consistent, and the published runs can be made.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "data_sets.h"
#include "experiment.h"
#include "register.h"
#include "rf/io/error.h"
#include "rf/nn/encoding.h"
#include "rf/nn/linear_attention.h"
#include "rf/train/compare.h"
#include "rf/train/run_config.h"

namespace rf::reproduce {
namespace {

constexpr Scale kScales[] = {Scale::kTiny, Scale::kSmall, Scale::kPaper};

TEST(Register, HasEveryClaimOnceInOrder) {
  std::vector<std::string> ids, expected;
  for (const Claim& claim : claims()) ids.push_back(claim.id);
  for (int i = 1; i <= 32; ++i) expected.push_back(fmt::format("C-{:02}", i));
  EXPECT_EQ(ids, expected);
}

TEST(Register, EveryClaimIsDecidedOrSaysWhyNot) {
  const nlohmann::json all = register_json();
  std::set<std::string> without;
  for (const nlohmann::json& claim : all.at("claims")) {
    if (claim.at("experiments").empty()) without.insert(claim.at("id"));
    if (claim.at("status") == "published only" || claim.at("status") == "no claim" ||
        claim.at("status") == "qualified") {
      EXPECT_NE(claim.at("note"), "") << claim.dump();
    }
    if (claim.at("status") == "published only" || claim.at("status") == "no claim") {
      EXPECT_TRUE(claim.at("experiments").empty()) << claim.dump();
    }
  }
  for (const char* decided : {"C-01", "C-02", "C-04", "C-17", "C-29", "C-30"}) EXPECT_FALSE(without.contains(decided));
}

TEST(Register, TablesAreRectangular) {
  const nlohmann::json tables = register_json().at("tables");
  EXPECT_EQ(tables.size(), 7U);
  for (const nlohmann::json& table : tables) {
    for (const nlohmann::json& row : table.at("rows")) EXPECT_EQ(row.size(), table.at("columns").size()) << row.dump();
  }
}

TEST(Table, NamesDifferAndClaimsAreKnown) {
  std::set<std::string> names, known;
  for (const Claim& claim : claims()) known.insert(claim.id);
  for (const Experiment& experiment : table()) {
    EXPECT_TRUE(names.insert(experiment.name).second) << experiment.name;
    EXPECT_NE(experiment.name, "all");
    for (const std::string& claim : experiment.claims) EXPECT_TRUE(known.contains(claim)) << claim;
    for (const std::string* text : {&experiment.spec, &experiment.title, &experiment.expected, &experiment.budget}) {
      EXPECT_FALSE(text->empty()) << experiment.name;
    }
  }
}

TEST(Table, SettingsDependOnTheScaleAlone) {
  for (const Experiment& experiment : table()) {
    for (const Scale scale : kScales) {
      const nlohmann::json settings = experiment.settings_at(scale);
      EXPECT_EQ(settings, experiment.settings_at(scale));
      EXPECT_EQ(settings, nlohmann::json::parse(settings.dump())) << experiment.name;
      if (experiment.has_scale() && scale == Scale::kTiny && settings.contains("seeds")) {
        EXPECT_EQ(settings.at("seeds").size(), 1U) << experiment.name;
      }
    }
  }
}

TEST(Table, EveryFileIsOfADescribedSet) {
  for (const Experiment& experiment : table()) {
    for (const Scale scale : kScales) {
      const auto files = experiment.settings_at(scale).value("files", std::vector<std::string>());
      EXPECT_EQ(missing_files("", files), files);
      EXPECT_NO_THROW(where_to_get(files)) << experiment.name;
    }
  }
}

// The encodings of a model, and its linear attention.
void expect_can_be_made(const ModelConfig& model, const std::string& arm) {
  for (const EncodingConfig& encoding : model.position_encodings) {
    EXPECT_NO_THROW(nn::make_encoding(encoding, {.layers = model.num_hidden_layers,
                                                 .heads = model.num_attention_heads,
                                                 .head_dim = model.head_dim(),
                                                 .hidden_size = model.hidden_size,
                                                 .input_size = model.embedding_size,
                                                 .max_position_embeddings = model.max_position_embeddings,
                                                 .causal = model.is_decoder,
                                                 .vocab_size = model.vocab_size}))
        << arm;
  }
  if (model.attention.type == "linear") {
    EXPECT_NO_THROW(parse_linear_attention(model.attention)) << arm;
  }
}

// Every trained experiment at every scale: its run file is read, and its encodings can be made for the body it names.
TEST(Table, RunsCanBeMade) {
  int64_t designs = 0;
  for (const Experiment& experiment : table()) {
    for (const Scale scale : kScales) {
      const nlohmann::json settings = experiment.settings_at(scale);
      if (!settings.contains("design")) continue;
      const nlohmann::json& design = settings.at("design");
      EXPECT_EQ(settings.at("seeds"), design.at("seeds"));
      for (size_t i = 1; i < design.at("seeds").size(); ++i) {
        EXPECT_EQ(design.at("seeds")[i].get<int64_t>(), design.at("seeds")[0].get<int64_t>() + static_cast<int64_t>(i));
      }
      for (const std::string& arm : design.value("arms", std::vector<std::string>())) {
        train::RunConfig run = train::parse_run_config(design.at("run"));
        run.model.position_encodings = {train::parse_arm(arm)};
        expect_can_be_made(run.model, arm);
      }
      const nlohmann::json run_files = design.value("run_files", nlohmann::json::object());
      for (const auto& [arm, run_file] : run_files.items()) {
        expect_can_be_made(train::parse_run_config(run_file).model, arm);
      }
      ++designs;
    }
  }
  EXPECT_GE(designs, 15);
}

// R-CFG-4 and R-TAB-4.
TEST(Table, PublishedLanguageModels) {
  const auto design = [](const char* name) {
    const auto& all = table();
    const auto found = std::find_if(all.begin(), all.end(), [&](const Experiment& each) { return each.name == name; });
    return found->settings_at(Scale::kPaper).at("design");
  };
  const train::RunConfig performer =
      train::parse_run_config(design("linear-language-model").at("run_files").at("rope"));
  EXPECT_EQ(performer.model.num_hidden_layers, 12);
  EXPECT_EQ(performer.stages[0].max_length, 1024);
  EXPECT_EQ(performer.stages[0].batch, 128);
  EXPECT_DOUBLE_EQ(performer.schedule.learning_rate, 1e-4);
  EXPECT_EQ(parse_linear_attention(performer.model.attention).num_features, 266);
  const train::RunConfig staged = train::parse_run_config(design("staged-pretraining").at("run_files").at("rope"));
  const nlohmann::json tables = register_json().at("tables");
  const auto published =
      std::find_if(tables.begin(), tables.end(), [](const nlohmann::json& each) { return each.at("id") == "R-TAB-4"; });
  ASSERT_NE(published, tables.end());
  std::vector<std::vector<int64_t>> expected, found;  // max length, batch and steps
  for (const nlohmann::json& row : published->at("rows")) expected.push_back({row[1], row[2], row[3]});
  for (const auto& stage : staged.stages) found.push_back({stage.max_length, stage.batch, stage.steps});
  EXPECT_EQ(found, expected);
  EXPECT_EQ(found.size(), 6U);
}

// R-CFG-2.
TEST(Table, PublishedPretraining) {
  const auto& all = table();
  const auto found =
      std::find_if(all.begin(), all.end(), [](const Experiment& each) { return each.name == "convergence"; });
  ASSERT_NE(found, all.end());
  const nlohmann::json design = found->settings_at(Scale::kPaper).at("design");
  const train::RunConfig run = train::parse_run_config(design.at("run"));
  EXPECT_EQ(run.model.num_hidden_layers, 12);
  EXPECT_EQ(run.model.hidden_size, 768);
  EXPECT_EQ(run.model.intermediate_size, 3072);
  ASSERT_EQ(run.stages.size(), 1U);
  EXPECT_EQ(run.stages[0].max_length, 512);
  EXPECT_EQ(run.stages[0].batch, 64);
  EXPECT_EQ(run.stages[0].steps, 100000);
  EXPECT_DOUBLE_EQ(run.schedule.learning_rate, 1e-5);
  EXPECT_DOUBLE_EQ(design.at("corpus").at("valid_fraction"), 0.2);
}

TEST(Scale, Names) {
  for (const Scale scale : kScales) EXPECT_EQ(scale_of_name(name_of(scale)), scale);
  EXPECT_THROW(scale_of_name("big"), Error);
}

// A rule names an experiment of the table, a claim that it has or its own spec, and bounds.
TEST(Rules, AreOfKnownExperimentsAndHaveBounds) {
  for (const Rule& rule : rules()) {
    const auto& all = table();
    const auto of =
        std::find_if(all.begin(), all.end(), [&](const Experiment& e) { return e.name == rule.experiment; });
    ASSERT_NE(of, all.end()) << rule.experiment;
    const bool is_claim = std::find(of->claims.begin(), of->claims.end(), rule.claim) != of->claims.end();
    EXPECT_TRUE(is_claim || rule.claim == of->spec) << rule.experiment << " " << rule.claim;
    EXPECT_TRUE(!rule.parts.empty() || !rule.withdrawn.empty()) << rule.experiment;
    for (const auto* contrasts : {&rule.parts, &rule.preconditions}) {
      for (const Contrast& each : *contrasts) {
        EXPECT_TRUE(std::isfinite(each.above) || std::isfinite(each.below)) << text(each);
        EXPECT_LT(each.above, each.below) << text(each);
        EXPECT_NE(each.arm, each.against) << text(each);
      }
    }
  }
}

TEST(Rules, EveryClaimOfATrainedExperimentHasOne) {
  for (const Experiment& experiment : table()) {
    if (experiment.kind != Kind::kTrained) continue;
    for (const std::string& claim : experiment.claims) {
      EXPECT_NE(rule_of(experiment.name, claim), nullptr) << experiment.name << " " << claim;
    }
    EXPECT_FALSE(experiment.exceptions.empty() && experiment.settings_at(Scale::kPaper).contains("design") &&
                 experiment.name != "word-position" && experiment.name != "trained-scores")
        << experiment.name << " has no list of exceptions";
  }
}

TEST(Rules, WithdrawnClaimsSayWhy) {
  std::set<std::string> withdrawn;
  for (const Rule& rule : rules()) {
    if (!rule.withdrawn.empty()) withdrawn.insert(rule.claim);
  }
  EXPECT_EQ(withdrawn, (std::set<std::string>{"C-10", "C-12", "C-18", "C-22", "C-29"}));
}

}  // namespace
}  // namespace rf::reproduce
