// The papers' tables (register.h), and both registers as JSON.
#include "register.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "experiment.h"
#include "result_json.h"
#include "rf/nn/encoding_info.h"

namespace rf::reproduce {

namespace {

nlohmann::json paper_tables() {
  return nlohmann::json::parse(R"json([
    {"id": "R-TAB-1", "title": "WMT 2014 English to German, BLEU", "source": "arXiv 2104.09864 Table 1",
     "columns": ["model", "BLEU"],
     "rows": [["Transformer-base", 27.3], ["RoFormer", 27.5]]},
    {"id": "R-TAB-2", "title": "GLUE", "source": "arXiv 2104.09864 Table 2",
     "columns": ["model", "MRPC", "SST-2", "QNLI", "STS-B", "QQP", "MNLI-m", "MNLI-mm"],
     "rows": [["BERT", 88.9, 93.5, 90.5, 85.8, 71.2, 84.6, 83.4],
              ["RoFormer", 89.5, 90.7, 88.0, 87.0, 86.4, 80.2, 79.8]]},
    {"id": "R-TAB-3", "title": "Chinese models: tokens and positions", "source": "arXiv 2104.09864 Table 3",
     "columns": ["model", "tokens", "positions"],
     "rows": [["BERT", "characters", "absolute"], ["WoBERT", "words", "absolute"],
              ["NEZHA", "characters", "relative"], ["RoFormer", "words", "RoPE"]]},
    {"id": "R-TAB-4", "title": "Staged pretraining of the Chinese RoFormer", "source": "arXiv 2104.09864 Table 4",
     "columns": ["stage", "max length", "batch", "steps", "loss", "accuracy"],
     "rows": [[1, 512, 256, 200000, 1.73, 65.0], [2, 1536, 256, 12500, 1.61, 66.8], [3, 256, 256, 120000, 1.75, 64.6],
              [4, 128, 512, 80000, 1.83, 63.4], [5, 1536, 256, 10000, 1.58, 67.4], [6, 512, 512, 30000, 1.66, 66.2]]},
    {"id": "R-TAB-5", "title": "CAIL2019-SCM, accuracy", "source": "arXiv 2104.09864 Table 5",
     "columns": ["model", "validation", "test"],
     "rows": [["BERT-512", 64.13, 67.77], ["WoBERT-512", 64.07, 68.10], ["RoFormer-512", 64.13, 68.29],
              ["RoFormer-1024", 66.07, 69.79]]},
    {"id": "R-TAB-6", "title": "Language models with a learned table, T5's bias and RoPE",
     "source": "blog.eleuther.ai/rotary-embeddings",
     "columns": ["what", "learned", "T5", "RoPE"],
     "rows": [["OpenWebText2, 55k steps, loss", 2.809, 2.801, 2.759],
              ["OpenWebText2, 55k steps, perplexity", 16.59, 16.46, 15.78],
              ["the Pile, 1.4 B parameters, 8k steps, loss", 2.24, 2.223, 2.173],
              ["[2048, 16, 12, 64] on a GPU, ms (learned: an addition)", 2.1, null, 5.3]]},
    {"id": "R-TAB-7", "title": "RoFormerV2 and WoBERT",
     "source": "kexue.fm/archives/8998; kexue.fm/archives/7758; github.com/ZhuiyiTechnology/WoBERT",
     "columns": ["what", "value"],
     "rows": [["RoFormerV2, times as fast at 128 tokens", 1.3], ["RoFormerV2, times as fast at 512 tokens", 1.2],
              ["BERT, IFLYTEK", 60.31], ["BERT, TNEWS", 56.94], ["WoBERT, IFLYTEK", 61.15], ["WoBERT, TNEWS", 57.05],
              ["WoBERT-Plus, IFLYTEK", 61.92], ["WoBERT-Plus, TNEWS", 58.20]]}
  ])json");
}

// What every verdict has in common, as the report prints it: paragraphs.
constexpr const char* kMethod =
    "Arms of a comparison share data order, masks and initial weights, so their values are compared seed by seed. "
    "Each difference has the 95 % interval of Student's t over the seeds (with three seeds a bootstrap would draw "
    "from three numbers).\n\n"
    "A rule has parts and preconditions. A part holds if the interval lies in its region: one-sided tests at 0.025, "
    "two of them where the region has two ends (equivalence, TOST). One that asks for a difference by a margin fails "
    "where the opposite is shown, a difference of the other sign. Several parts are corrected by Holm's method, for "
    "holding, where it is stricter than all of them would need, and for failing. Intervals are not corrected, so one "
    "can lie in its region and the part be not shown.\n\n"
    "A claim is supported if all parts hold, refuted if one is shown to fail, and inconclusive otherwise. It is "
    "inconclusive, too, where an arm lacks the value of a seed, and where a precondition, each tested by itself, is "
    "not shown to hold: the models must use positions (be better than without an encoding by a margin), beat a bag of "
    "words where there is a task, and have a tuned learning rate.\n\n"
    "At least three rates are tried by short runs. Of language models and in the battery whole runs follow, from the "
    "highest rate that the short ones do not tell from the best to lower ones, while the held-out loss falls. The rate "
    "must be neither the highest of the short runs nor the lowest of the whole ones, or of the short ones where no "
    "whole ones follow. That the first seed's loss both chooses a language model's rate and is compared moves the mean "
    "of its arm by 0.19 (two whole runs) to 0.28 (three) of the standard deviation of its seeds; the battery chooses "
    "with a seed that is not judged.";

// Every experiment as it is defined: its rules, its settings by scale, and what it costs.
nlohmann::json designs() {
  nlohmann::json all = nlohmann::json::array();
  for (const Experiment& experiment : table()) {
    nlohmann::json settings = nlohmann::json::object();
    for (const Scale scale : {Scale::kSmall, Scale::kPaper}) {  // tiny decides nothing
      settings[experiment.scale_name(scale)] = experiment.settings_at(scale);
    }
    all.push_back({{"name", experiment.name},
                   {"spec", experiment.spec},
                   {"title", experiment.title},
                   {"kind", name_of(experiment.kind)},
                   {"revision", experiment.revision},
                   {"expected", experiment.expected},
                   {"budget", experiment.budget},
                   {"hours", experiment.hours},
                   {"exceptions", experiment.exceptions},
                   {"note", experiment.note},
                   {"rules", rules_json(experiment)},
                   {"settings", settings}});
  }
  return all;
}

nlohmann::json changes() {
  nlohmann::json all = nlohmann::json::array();
  for (const RuleChange& change : rule_changes()) {
    all.push_back({{"claims", change.claims}, {"change", change.change}, {"reason", change.reason}});
  }
  return all;
}

}  // namespace

nlohmann::json register_json() {
  nlohmann::json encodings = nlohmann::json::array();
  for (const nn::EncodingInfo& info : nn::encoding_infos()) {
    encodings.push_back({{"name", info.name}, {"summary", info.summary}, {"source", info.source}});
  }
  nlohmann::json all = nlohmann::json::array();
  for (const Claim& claim : claims()) {
    nlohmann::json experiments = nlohmann::json::array();
    for (const Experiment& experiment : table()) {
      const auto& of = experiment.claims;
      if (std::find(of.begin(), of.end(), claim.id) != of.end()) experiments.push_back(experiment.name);
    }
    all.push_back({{"id", claim.id},
                   {"text", claim.text},
                   {"source", claim.source},
                   {"status", claim.status},
                   {"note", claim.note},
                   {"experiments", experiments}});
  }
  return {{"claims", all},          {"tables", paper_tables()}, {"experiments", designs()}, {"rule_changes", changes()},
          {"encodings", encodings}, {"method", kMethod}};
}

}  // namespace rf::reproduce
