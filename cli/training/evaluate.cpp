// roformer evaluate --data: computes a language model's loss on prepared data.
#include "training_library.h"

#include <nlohmann/json.hpp>

#include "rf/train/pretrain.h"
#include "training_command.h"

extern "C" RF_CLI_API nlohmann::json rf_evaluate_data(const rf::cli::EvaluateData& given,
                                                      const rf::cli::Common& common) {
  using namespace rf;
  train::EvaluateOptions options{.model_dir = given.model_dir,
                                 .data_dir = given.data_dir,
                                 .split = given.split,
                                 .max_length = given.max_length,
                                 .batch_size = given.batch_size,
                                 .packing = given.packing,
                                 .mask = given.mask,
                                 .pairs = given.pairs};
  options.seed = common.seed.value_or(options.seed);
  options.process_group = common.process_group;
  if (given.bfloat16) options.precision = train::Precision::kBfloat16;
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
