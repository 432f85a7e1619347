// Scores of pairs of texts by a cross-encoder.
#include <fmt/format.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>

#include "bindings.h"
#include "rf/engine/names.h"
#include "rf/model/run_checkpoints.h"
#include "rf/tasks/cross_encoder.h"

namespace rf::python {

namespace nb = nanobind;
using nlohmann::json;

namespace {

class CrossEncoder {
 public:
  CrossEncoder(const std::string& model_dir, const std::string& options) {
    const nb::gil_scoped_release release;
    const json given = json::parse(options);
    threads_ = given.value("threads", 0);
    const ThreadsScope threads(threads_);
    tasks::CrossEncoderOptions wanted;
    wanted.note = [this](const std::string& text) { warnings_.push_back(text); };
    wanted.model_dir = model_of_run(model_dir, wanted.note);
    wanted.precision = named(engine::kPrecisionNames, given.at("precision").get<std::string>());
    wanted.batch_tokens = given.at("token_budget").get<int64_t>();
    wanted.prompt = "";  // calls have one
    wanted.adapter = given.value("adapter", "");
    if (given.contains("max_length")) wanted.max_length = given.at("max_length").get<int64_t>();
    if (given.contains("activation")) wanted.activation = tasks::score_activation(given.at("activation"));
    model_ = std::make_unique<tasks::CrossEncoder>(wanted);
  }

  // float32 [pairs, labels]. activation: "" for the model's. begin: number of the first pair, for messages.
  nb::object scores(const nb::list& first, const nb::list& second, const std::string& activation, int64_t begin,
                    const std::string& prompt) const {
    const Texts firsts(first, "predict"), seconds(second, "predict");
    std::vector<text::TextPair> pairs;
    for (size_t i = 0; i < firsts.size(); ++i) pairs.push_back({firsts.views()[i], seconds.views()[i]});
    std::vector<float> scores;
    {
      const nb::gil_scoped_release release;
      const ThreadsScope threads(threads_);
      on_open_model([&] {
        std::optional<tasks::ScoreActivation> given;
        if (!activation.empty()) given = tasks::score_activation(activation);
        const auto place = [begin](int64_t i) { return fmt::format("predict, pair {}", begin + i); };
        scores = model_->scores(pairs, given, place, prompt);
      });
    }
    return array_of(std::move(scores), {pairs.size(), model_->info().labels.size()});
  }

  std::string info() const {
    const tasks::CrossEncoderInfo& info = model_->info();
    const json prompt_name = info.default_prompt_name ? json(*info.default_prompt_name) : json();
    return text_of({{"labels", info.labels},
                    {"max_length", info.max_length},
                    {"activation", tasks::score_activation_name(info.activation)},
                    {"prompts", info.prompts},
                    {"default_prompt_name", prompt_name}});
  }
  std::vector<std::string> take_warnings() { return std::exchange(warnings_, {}); }

 private:
  int threads_ = 0;
  std::vector<std::string> warnings_;  // all come while the model is opened
  std::unique_ptr<tasks::CrossEncoder> model_;
};

}  // namespace

void bind_cross_encoder(nb::module_& module) {
  nb::class_<CrossEncoder>(module, "CrossEncoder")
      .def(nb::init<const std::string&, const std::string&>(), nb::arg("model_dir"), nb::arg("options"))
      .def("scores", &CrossEncoder::scores, nb::arg("first"), nb::arg("second"), nb::arg("activation"),
           nb::arg("begin"), nb::arg("prompt"))
      .def("info", &CrossEncoder::info)
      .def("take_warnings", &CrossEncoder::take_warnings);
}

}  // namespace rf::python
