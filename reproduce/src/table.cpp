// The table of experiments: one line each, in the order in which "all" runs them. The numeric ones take seconds; the
// trained ones share their runs, so those that train models come before those that read them.
#include "experiment.h"

namespace rf::reproduce {

Experiment permutation();
Experiment relative_score();
Experiment any_position();
Experiment norm();
Experiment bilinear();
Experiment sinusoid();
Experiment linear_attention();
Experiment pairwise();
Experiment decay();
Experiment score_by_distance();
Experiment random_features();
Experiment rotation_cost();
Experiment attention_time();
Experiment chinese_tokens();
Experiment convergence();
Experiment word_position();
Experiment trained_scores();
Experiment trained_frequencies();
Experiment encodings();
Experiment linear_language_model();
Experiment extrapolation();
Experiment staged_pretraining();
Experiment chinese_models();
Experiment long_texts();
Experiment fine_tuning();

const std::vector<Experiment>& table() {
  static const std::vector<Experiment> kTable = {
      permutation(),
      relative_score(),
      any_position(),
      norm(),
      bilinear(),
      sinusoid(),
      linear_attention(),
      pairwise(),
      decay(),
      score_by_distance(),
      random_features(),
      rotation_cost(),
      attention_time(),
      chinese_tokens(),
      convergence(),
      word_position(),
      trained_scores(),
      trained_frequencies(),
      encodings(),
      linear_language_model(),
      extrapolation(),
      staged_pretraining(),
      chinese_models(),
      long_texts(),
      fine_tuning(),
  };
  return kTable;
}

nlohmann::json Experiment::settings_at(Scale scale) const {
  if (const auto* const at_scale = std::get_if<nlohmann::json (*)(Scale)>(&settings)) return (*at_scale)(scale);
  return std::get<nlohmann::json (*)()>(settings)();
}

const char* Experiment::scale_name(Scale scale) const {
  return has_scale() ? name_of(scale) : kNoScale;
}

nlohmann::json seeds_of(Scale scale) {
  return scale == Scale::kTiny ? nlohmann::json({1}) : nlohmann::json({1, 2, 3});
}

}  // namespace rf::reproduce
