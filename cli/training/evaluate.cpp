// roformer evaluate --data: computes a language model's loss on prepared data.
#include <nlohmann/json.hpp>

#include "rf/train/pretrain.h"
#include "training_command.h"

extern "C" RF_CLI_API nlohmann::json rf_evaluate_data(const rf::train::EvaluateOptions& options,
                                                      const rf::cli::Common& common) {
  using namespace rf;
  nlohmann::json result;
  cli::run_with_torch(common, [&] {
    const train::EvaluationReport report = train::evaluate(options, cli::progress());
    if (!report.is_first_rank) throw cli::SilentExit{cli::kOk};
    result = to_json(report);
    result["max_length"] = report.max_length;
    return cli::kOk;
  });
  return result;
}
