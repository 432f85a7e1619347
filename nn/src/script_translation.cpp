// torch.classes.roformer.TranslationModel: an encoder-decoder for Python (python/roformer_cpp/translation.py), which
// loads it and translates; the command-line program trains it.
#include <c10/core/GradMode.h>
#include <torch/custom_class.h>

#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "rf/io/error.h"
#include "rf/nn/translation_search.h"
#include "script_terms.h"

namespace rf::nn {

namespace {

using TokenLists = std::vector<std::vector<int64_t>>;

std::vector<std::vector<int32_t>> checked_ids(const TokenLists& sources, int64_t vocab_size) {
  std::vector<std::vector<int32_t>> ids;
  for (size_t i = 0; i < sources.size(); ++i) {
    std::vector<int32_t>& of_source = ids.emplace_back();
    for (const int64_t id : sources[i]) {
      if (id < 0 || id >= vocab_size) {
        fail("translate", "token ids must be in 0..{}, got {} in source {}", vocab_size - 1, id, i);
      }
      of_source.push_back(static_cast<int32_t>(id));
    }
  }
  return ids;
}

struct ScriptTranslationModel : torch::CustomClassHolder {
  explicit ScriptTranslationModel(std::shared_ptr<TranslationModel> given) : model(std::move(given)) {}

  static c10::intrusive_ptr<ScriptTranslationModel> load(const std::string& model_dir, bool is_double) {
    return with_file_errors([&] {
      return c10::make_intrusive<ScriptTranslationModel>(
          load_translation_model(model_dir, is_double ? at::kDouble : at::kFloat));
    });
  }

  at::Tensor logits(const at::Tensor& source, const std::optional<at::Tensor>& mask, const at::Tensor& target) const {
    return with_value_errors([&] {
      const c10::NoGradGuard no_grad;
      return model->logits(model->forward({source, mask.value_or(at::Tensor()), target}));
    });
  }

  // Ids of each translation, its score, and whether it has ended.
  std::tuple<TokenLists, std::vector<double>, std::vector<bool>> translate(const TokenLists& sources, int64_t beams,
                                                                           double length_penalty, double max_ratio,
                                                                           int64_t max_extra, bool cache) const {
    return with_value_errors([&] {
      const std::vector<std::vector<int32_t>> ids = checked_ids(sources, model->config().vocab_size);
      const SearchOptions options{.beams = beams,
                                  .length_penalty = length_penalty,
                                  .max_ratio = max_ratio,
                                  .max_extra = max_extra,
                                  .cache = cache ? SearchOptions::Cache::kUsed : SearchOptions::Cache::kNone};
      std::tuple<TokenLists, std::vector<double>, std::vector<bool>> out;
      for (const Translation& each : rf::nn::translate(*model, ids, options)) {
        std::get<0>(out).emplace_back(each.ids.begin(), each.ids.end());
        std::get<1>(out).push_back(each.score);
        std::get<2>(out).push_back(each.ended);
      }
      return out;
    });
  }

  std::shared_ptr<TranslationModel> model;
};

TORCH_LIBRARY_FRAGMENT(roformer, library) {
  library.class_<ScriptTranslationModel>("TranslationModel")
      .def_static("load", &ScriptTranslationModel::load)
      .def("logits", &ScriptTranslationModel::logits)
      .def("translate", &ScriptTranslationModel::translate)
      .def("config_json", [](const c10::intrusive_ptr<ScriptTranslationModel>& self) {
        return to_json(self->model->config()).dump();
      });
}

}  // namespace

}  // namespace rf::nn
