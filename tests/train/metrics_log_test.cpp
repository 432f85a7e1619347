// metrics.jsonl: appending, and what is cut off when a run goes on from a checkpoint.
#include "metrics_log.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "rf/io/files.h"
#include "support.h"

namespace rf::train {
namespace {

TEST(MetricsLog, CutsOffLaterStepsAndHalfALine) {
  const TemporaryPath directory;
  const std::string path = directory / "metrics.jsonl";
  {
    MetricsLog log(path, 0, {});
    for (int step = 2; step <= 8; step += 2) log.append({{"step", step}});
  }
  std::ofstream(path, std::ios::app) << "{\"step\":";
  {
    MetricsLog log(path, 4, {});
    log.append({{"step", 5}});
  }
  EXPECT_EQ(io::read_file(path), "{\"step\":2}\n{\"step\":4}\n{\"step\":5}\n");
  EXPECT_FALSE(std::filesystem::exists(path + ".damaged-1")) << "half a last line is what a kill leaves";
  MetricsLog(path, 0, {});
  EXPECT_EQ(io::read_file(path), "");
}

TEST(MetricsLog, KeepsGoodLinesAroundADamagedOneAndTheFileBeside) {
  for (const char* line : {"[]", "{}", "{\"step\":\"2\"}", "\xFF", ""}) {
    const TemporaryPath directory;
    const std::string path = directory / "metrics.jsonl";
    const std::string damaged = fmt::format("{{\"step\":1}}\n{}\n{{\"step\":3}}\n{{\"step\":5}}\n{{\"st", line);
    for (const int number : {1, 2}) {
      io::write_file(path, damaged);
      std::string told;
      MetricsLog(path, 4, [&](const std::string& text) { told = text; });
      EXPECT_EQ(io::read_file(path), "{\"step\":1}\n{\"step\":3}\n") << line;
      const std::string beside = fmt::format("{}.damaged-{}", path, number);
      EXPECT_EQ(io::read_file(beside), damaged);
      expect_has(told, beside);
    }
  }
}

TEST(TrainingCurve, IsOfTheWholeTrainingLines) {
  const TemporaryPath directory;
  const std::string first = R"({"type":"train","step":2,"loss":1.5,"seconds":0.25})",
                    second = R"({"type":"train","step":6,"loss":1,"seconds":3})";
  const std::string lines = first + "\n{\n" + R"({"type":"evaluation","step":2,"loss":9})" + "\n" + second + "\n";
  io::write_file(directory / "metrics.jsonl", lines);
  const TrainingCurve curve = training_curve(directory.path());
  EXPECT_EQ(curve.steps, (std::vector<int64_t>{2, 6}));
  EXPECT_EQ(curve.losses, (std::vector<double>{1.5, 1}));
  EXPECT_EQ(curve.seconds, (std::vector<double>{0.25, 3}));
  for (const char* line :
       {R"({"type":"train","step":7,"loss":"x","seconds":1})", R"({"type":"train","step":7,"seconds":1})"}) {
    io::write_file(directory / "metrics.jsonl", lines + line + "\n");
    expect_has(error_of([&] { training_curve(directory.path()); }), "metrics.jsonl] loss must be");
  }
}

TEST(MetricsLog, NamesTheFileItCannotWrite) {
  const TemporaryPath directory;
  const std::string path = directory / "none/metrics.jsonl";
  expect_has(error_of([&] { MetricsLog(path, 0, {}); }), path + " must be writable, got: No such file");
}

}  // namespace
}  // namespace rf::train
