// Translations of token ids by an encoder-decoder.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "rf/engine/names.h"
#include "rf/engine/translator.h"
#include "signal_check.h"

namespace rf::python {

namespace nb = nanobind;
using nlohmann::json;

namespace {

using TokenLists = std::vector<std::vector<int64_t>>;

class Translator {
 public:
  Translator(const std::string& model_dir, const std::string& precision) {
    const nb::gil_scoped_release release;
    model_ = std::make_unique<engine::Translator>(
        model_dir, engine::TranslatorOptions{.precision = named(engine::kPrecisionNames, precision),
                                             .warn = [this](const std::string& text) { warnings_.push_back(text); }});
  }

  // Ids of each translation, its score, and whether it has ended.
  std::tuple<TokenLists, std::vector<double>, std::vector<bool>> translate(const TokenLists& sources,
                                                                           const std::string& options) const {
    const json given = json::parse(options);
    engine::TranslationOptions wanted{.beams = given.at("beams").get<int64_t>(),
                                      .length_penalty = given.at("length_penalty").get<double>(),
                                      .max_ratio = given.at("max_ratio").get<double>(),
                                      .max_extra = given.at("max_extra").get<int64_t>()};
    if (!given.at("cache").get<bool>()) wanted.cache = engine::TranslationOptions::Cache::kNone;
    std::tuple<TokenLists, std::vector<double>, std::vector<bool>> out;
    compute(0, [&] {
      on_open_model([&] {
        for (engine::Translation& each : model_->translate(ids_of(sources), wanted)) {
          std::get<0>(out).emplace_back(each.ids.begin(), each.ids.end());
          std::get<1>(out).push_back(each.score);
          std::get<2>(out).push_back(each.ended);
        }
      });
    });
    return out;
  }

  std::vector<std::string> take_warnings() { return std::exchange(warnings_, {}); }

 private:
  std::vector<std::vector<int32_t>> ids_of(const TokenLists& sources) const {
    std::vector<std::vector<int32_t>> ids;
    for (size_t i = 0; i < sources.size(); ++i) {
      for (const int64_t id : sources[i]) {
        if (id >= 0 && id < model_->info().vocab_size) continue;
        fail("translate", "token ids must be in 0..{}, got {} in source {}", model_->info().vocab_size - 1, id, i);
      }
      ids.emplace_back(sources[i].begin(), sources[i].end());
    }
    return ids;
  }

  std::vector<std::string> warnings_;  // all come while the model is opened
  std::unique_ptr<engine::Translator> model_;
};

}  // namespace

void bind_translator(nb::module_& module) {
  nb::class_<Translator>(module, "Translator")
      .def(nb::init<const std::string&, const std::string&>(), nb::arg("model_dir"), nb::arg("precision"))
      .def("translate", &Translator::translate, nb::arg("sources"), nb::arg("options"))
      .def("take_warnings", &Translator::take_warnings);
}

}  // namespace rf::python
