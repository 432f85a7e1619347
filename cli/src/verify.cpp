// roformer verify: checks the checksums of a data directory.
#include "rf/data/prepare.h"

#include <memory>
#include <nlohmann/json.hpp>

#include "command.h"

namespace rf::cli {

namespace {

int run_verify(const std::string& data_dir) {
  const data::VerifyReport report = data::verify(data_dir, progress());
  nlohmann::json damaged = nlohmann::json::array();
  for (const data::VerifyReport::Damage& each : report.damaged) {
    say(each.error);
    damaged.push_back({{"file", each.file}, {"error", each.error}});
  }
  emit({{"data", data_dir},
        {"shards", report.shards},
        {"bytes", report.bytes},
        {"documents", report.documents},
        {"tokens", report.tokens},
        {"damaged", damaged}});
  return report.damaged.empty() ? kOk : kBadInput;
}

std::function<int()> configure_verify(CLI::App& app, const Common&) {
  auto data_dir = std::make_shared<std::string>();
  app.add_option("--data", *data_dir, "Data directory that prepare or merge wrote, or a part of one")->required();
  return [data_dir] { return run_verify(*data_dir); };
}

}  // namespace

Command verify_command() {
  return {"verify", "Check every shard of a data directory", "roformer verify --data data", Command::Seed::kNotUsed,
          configure_verify};
}

}  // namespace rf::cli
