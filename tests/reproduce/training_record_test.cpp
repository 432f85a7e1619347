// Records of runs whose processes ended in every way.
#include "training_record.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <limits>

#include "io/support.h"
#include "rf/io/files.h"
#include "silent_context.h"

namespace rf::reproduce {
namespace {

const nlohmann::json kSettings = nlohmann::json::object();

TEST(TrainingRecord, AKilledProcessHasTheSecondsOfItsMetrics) {
  const testing::TempDir folder;
  const std::string run = folder.file("run");
  const SilentContext silent(folder.path(), "");
  const auto line = [](int step, double seconds) {
    return nlohmann::json{{"type", "train"}, {"step", step}, {"loss", 1.0}, {"seconds", seconds}}.dump() + "\n";
  };
  TrainingRecord(silent.context, run, kSettings).end(false);  // interrupted, with its own seconds
  std::filesystem::create_directories(run);
  io::write_file(run + "/metrics.jsonl", line(10, 20) + line(20, 30) + "{\"type\": \"tra");
  TrainingRecord(silent.context, run, kSettings);  // killed
  TrainingRecord last(silent.context, run, kSettings);
  last.end(true);
  const nlohmann::json parts = io::read_json(run + ".training.json").at("parts");
  ASSERT_EQ(parts.size(), 3U);
  const double first = parts[0].at("seconds");
  EXPECT_GT(first, 0);
  EXPECT_NEAR(parts[1].at("seconds").get<double>(), 50 - first, 1e-9);
  EXPECT_LT(parts[2].at("seconds").get<double>(), 5);
  EXPECT_NEAR(training_of("rope", 1, run).at("seconds").get<double>(), 50, 5);
}

TEST(TrainingRecord, WithoutMetricsAKilledProcessHasNoSeconds) {
  const testing::TempDir folder;
  const std::string run = folder.file("run");
  std::filesystem::create_directories(run);
  const SilentContext silent(folder.path(), "");
  TrainingRecord(silent.context, run, kSettings);
  TrainingRecord(silent.context, run, kSettings).end(true);
  EXPECT_EQ(io::read_json(run + ".training.json").at("parts")[0].at("seconds"), 0);
}

TEST(TrainingRecord, WithOtherSettingsPartsStayAndTheOutcomeDoesNot) {
  const testing::TempDir folder;
  const std::string run = folder.file("run");
  std::filesystem::create_directories(run);
  const SilentContext silent(folder.path(), "");
  {
    TrainingRecord first(silent.context, run, {{"rate", 0.5}});
    first.end(true);
    first.keep({{"held_out_loss", 1.5}});
  }
  TrainingRecord(silent.context, run, {{"rate", 0.25}}).end(true);
  const nlohmann::json record = io::read_json(run + ".training.json");
  EXPECT_EQ(record.at("settings"), (nlohmann::json{{"rate", 0.25}}));
  EXPECT_EQ(record.at("parts").size(), 2U);
  EXPECT_FALSE(record.contains("outcome"));
  std::filesystem::remove_all(run);
  TrainingRecord(silent.context, run, {{"rate", 0.25}}).end(true);
  EXPECT_EQ(io::read_json(run + ".training.json").at("parts").size(), 1U);
}

// A process that ends with an error of its run: what it has logged counts, otherwise the record is as it was.
TEST(TrainingRecord, AnErrorBeforeTheRunLogsLeavesTheRecord) {
  const testing::TempDir folder;
  const std::string run = folder.file("run"), path = run + ".training.json";
  std::filesystem::create_directories(run);
  const SilentContext silent(folder.path(), "");
  const auto refused = [&](const nlohmann::json& settings, const std::string& logged) {
    try {
      const TrainingRecord record(silent.context, run, settings);
      if (!logged.empty()) {
        std::filesystem::create_directories(run + "/lr-0.5/seed-1");  // of a tuning
        io::write_file(run + "/lr-0.5/seed-1/metrics.jsonl", logged);
      }
      fail("test", "the run is refused");
    } catch (const Error&) {
    }
  };
  refused(kSettings, "");
  EXPECT_FALSE(std::filesystem::exists(path));
  TrainingRecord finished(silent.context, run, kSettings);
  finished.end(true);
  finished.keep({{"held_out_loss", 1.5}});
  const std::string before = io::read_file(path);
  refused({{"rate", 0.5}}, "");
  EXPECT_EQ(io::read_file(path), before);
  refused(kSettings, R"({"type": "train", "step": 10, "loss": 1.0, "seconds": 20})"
                     "\n");
  const nlohmann::json record = io::read_json(path);
  EXPECT_EQ(record.at("finished"), false);
  ASSERT_EQ(record.at("parts").size(), 2U);
  EXPECT_GT(record.at("parts")[1].at("seconds"), 0);
}

TEST(TrainingRecord, AReadingIsKeptForItsNameAndSettings) {
  const testing::TempDir folder;
  const std::string run = folder.file("run");
  const SilentContext silent(folder.path(), "");
  const nlohmann::json settings = {{"rows", 4}}, values = {1.5, 2.5};
  keep_reading(run, "lengths", settings, values);  // a run without a record
  EXPECT_TRUE(kept_reading(run, "lengths", settings).is_null());
  EXPECT_FALSE(std::filesystem::exists(run + ".training.json"));
  TrainingRecord(silent.context, run, kSettings).end(true);
  keep_reading(run, "scores", settings, nlohmann::json::object());
  keep_reading(run, "lengths", settings, values);
  EXPECT_EQ(kept_reading(run, "lengths", settings), values);
  EXPECT_EQ(kept_reading(run, "scores", settings), nlohmann::json::object());
  EXPECT_TRUE(kept_reading(run, "lengths", {{"rows", 5}}).is_null());
  EXPECT_TRUE(kept_reading(run, "terms", settings).is_null());
  EXPECT_EQ(io::read_json(run + ".training.json").at("finished"), true);
}

TEST(TrainingRecord, ALossThatIsNotFiniteStaysOne) {
  const testing::TempDir folder;
  const std::string run = folder.file("run");
  const SilentContext silent(folder.path(), "");
  const double infinity = std::numeric_limits<double>::infinity();
  const nlohmann::json values = {{"last", {{"2", infinity}}}, {"y", {1.5, infinity}}};
  TrainingRecord record(silent.context, run, kSettings);
  record.end(true);
  record.keep({{"held_out_loss", infinity}});
  keep_reading(run, "lengths", kSettings, values);
  EXPECT_EQ(kept_reading(run, "lengths", kSettings), values);
  EXPECT_EQ(finished_outcome(run, kSettings, "").at("held_out_loss"), infinity);
}

TEST(TrainingRecord, ARunOfOtherDataIsRefused) {
  const testing::TempDir folder;
  const std::string run = folder.file("run"), earlier = folder.file("earlier");
  const SilentContext silent(folder.path(), "");
  const nlohmann::json outcome = {{"held_out_loss", 1.5}};
  for (const std::string& directory : {run, earlier}) {
    TrainingRecord record(silent.context, directory, kSettings, directory == run ? "first" : "");
    EXPECT_TRUE(finished_outcome(directory, kSettings, "second").is_null());  // unfinished
    record.end(true);
    record.keep(outcome);
  }
  EXPECT_EQ(finished_outcome(run, kSettings, "first"), outcome);
  EXPECT_TRUE(finished_outcome(run, {{"rows", 5}}, "second").is_null());  // to be trained anew
  EXPECT_THROW(finished_outcome(run, kSettings, "second"), Error);
  EXPECT_EQ(finished_outcome(earlier, kSettings, "second"), outcome);  // its data are not known
}

}  // namespace
}  // namespace rf::reproduce
