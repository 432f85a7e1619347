// metrics.jsonl: appending, and what is cut off when a run goes on from a checkpoint.
#include "metrics_log.h"

#include <gtest/gtest.h>

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
    MetricsLog log(path, 0);
    for (int step = 2; step <= 8; step += 2) log.append({{"step", step}});
  }
  std::ofstream(path, std::ios::app) << "{\"step\":";
  {
    MetricsLog log(path, 4);
    log.append({{"step", 5}});
  }
  EXPECT_EQ(io::read_file(path), "{\"step\":2}\n{\"step\":4}\n{\"step\":5}\n");
  MetricsLog(path, 0);
  EXPECT_EQ(io::read_file(path), "");
}

TEST(MetricsLog, CutsOffWhatIsNoLineOfItsOwn) {
  const TemporaryPath directory;
  const std::string path = directory / "metrics.jsonl";
  for (const char* line : {"[]", "{}", "{\"step\":\"2\"}", "\xFF"}) {
    io::write_file(path, fmt::format("{{\"step\":1}}\n{}\n", line));
    MetricsLog(path, 4);
    EXPECT_EQ(io::read_file(path), "{\"step\":1}\n") << line;
  }
}

TEST(MetricsLog, NamesTheFileItCannotWrite) {
  const TemporaryPath directory;
  const std::string path = directory / "none/metrics.jsonl";
  EXPECT_NE(message_of([&] { MetricsLog(path, 0); }).find(path + " must be writable, got: No such file"),
            std::string::npos);
}

}  // namespace
}  // namespace rf::train
