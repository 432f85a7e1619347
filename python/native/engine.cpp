// Engine: vectors, masks, predictions and continuations of a model directory. Structured arguments and results cross as
// JSON. The GIL is released while a model is opened and while it computes.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <omp.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <iterator>
#include <limits>
#include <mutex>
#include <optional>

#include "bindings.h"
#include "rf/engine/embedder.h"
#include "rf/engine/generator.h"
#include "rf/engine/names.h"
#include "rf/engine/schedule.h"
#include "rf/io/files.h"
#include "rf/io/finite.h"
#include "rf/io/printable.h"
#include "rf/io/warning.h"
#include "rf/model/config.h"
#include "rf/model/foreign_models.h"
#include "rf/model/run_checkpoints.h"
#include "rf/tasks/continuation.h"
#include "rf/tasks/cross_encoder.h"
#include "rf/tasks/fill_mask.h"
#include "rf/tasks/json_schema.h"
#include "rf/tasks/predict.h"
#include "rf/tasks/settings.h"
#include "rf/tasks/task.h"
#include "signal_check.h"

namespace rf::python {

namespace nb = nanobind;
using nlohmann::json;

namespace {

template <typename Value>
void read(const json& options, const char* key, Value& value) {
  if (const auto found = options.find(key); found != options.end()) found->get_to(value);
}

engine::EmbedderOptions embedding_options(const json& given) {
  engine::EmbedderOptions options;
  options.precision = named(engine::kPrecisionNames, given.at("precision").get<std::string>());
  read(given, "token_budget", options.token_budget);
  for (const json& name : given.value("pooling", json::array())) {
    options.poolings.push_back(named(engine::kPoolingNames, name.get<std::string>()));
  }
  if (given.contains("normalize")) options.normalize = given.at("normalize").get<bool>();
  read(given, "dimensions", options.dimensions);
  read(given, "max_length", options.max_length);
  read(given, "max_active", options.max_active);
  if (given.contains("vectors")) options.vectors = named(engine::kVectorNames, given.at("vectors").get<std::string>());
  if (given.contains("role")) options.role = named(engine::kRoleNames, given.at("role").get<std::string>());
  if (given.contains("prompt")) options.prompt = given.at("prompt").get<std::string>();
  if (given.contains("prompt_name")) options.prompt_name = given.at("prompt_name").get<std::string>();
  if (const std::string adapter = given.value("adapter", ""); !adapter.empty())
    (io::has_file(adapter + "/adapter_config.json") ? options.adapter : options.task) = adapter;
  if (given.value("long_texts", "truncate") == "refuse") options.long_texts = engine::LongTexts::kRefuse;
  return options;
}

// The task that a directory is made for: predictions, continuations by a causal model, masks of a masked language
// model; else vectors.
std::string task_of(const std::string& model_dir) {
  const std::filesystem::path dir = model_dir;
  if (io::has_file(dir / tasks::kTaskFile)) return "predict";
  if (io::has_file(dir / "modules.json")) return tasks::is_cross_encoder(dir) ? "predict" : "embed";
  const ModelConfig config = load_any_config(model_dir);
  if (config.is_decoder && (!config.is_foreign() || config.head() == Head::kCausalLm)) return "generate";
  // The head of BertForNextSentencePrediction, which pretraining needs, is not computed here.
  if (config.architectures.size() == 1 && config.architectures[0].ends_with("ForNextSentencePrediction")) {
    return "embed";
  }
  if (tasks::is_head_of_task(config.head())) return "predict";
  return config.head() == Head::kMaskedLm ? "fill-mask" : "embed";
}

engine::GenerationOptions generation_options(const json& given) {
  engine::GenerationOptions options;
  read(given, "max_new_tokens", options.max_new_tokens);
  read(given, "min_new_tokens", options.min_new_tokens);
  read(given, "repetition_penalty", options.repetition_penalty);
  read(given, "presence_penalty", options.presence_penalty);
  read(given, "frequency_penalty", options.frequency_penalty);
  read(given, "num_return_sequences", options.return_sequences);
  read(given, "temperature", options.temperature);
  read(given, "top_k", options.top_k);
  read(given, "top_p", options.top_p);
  read(given, "seed", options.seed);
  read(given, "beams", options.beams);
  read(given, "length_penalty", options.length_penalty);
  read(given, "batch", options.batch);
  read(given, "draft_tokens", options.draft_tokens);
  options.search = given.contains("beams")        ? engine::Search::kBeams
                   : given.value("sample", false) ? engine::Search::kSample
                                                  : engine::Search::kGreedy;
  return options;
}

tasks::Stops stops_of(const tasks::Continuer& continuer, const json& given) {
  const auto stop = given.find("stop");
  return stop == given.end() ? continuer.default_stops()
                             : continuer.stops_of(stop->get<std::vector<std::string>>(), "a stop string");
}

tasks::ContinuationForm form_of(const json& given) {
  const auto schema = given.find("json_schema");
  if (schema == given.end()) return {};
  const auto text = nlohmann::ordered_json::parse(schema->get<std::string>());
  return {.schema = std::make_shared<const tasks::JsonSchema>(text)};
}

json json_of(const tasks::Continuation& each) {
  return {{"text", each.text},
          {"ids", each.ids},
          {"log_probability", each.log_probability},
          {"score", each.score},
          {"stopped", each.stopped}};
}

// A text that is being generated; the Engine outlives it.
class Stream {
 public:
  Stream(tasks::ContinuationStream stream, int threads) : stream_(std::move(stream)), threads_(threads) {}

  std::optional<std::string> next() {
    std::optional<std::string> part;
    compute(threads_, [&] { on_open_model([&] { part = stream_.next(); }); });
    return part;
  }
  std::string result() const { return text_of(json_of(stream_.result())); }

 private:
  tasks::ContinuationStream stream_;
  int threads_;
};

// A model directory. Its methods use the same classes as the commands. Each class is opened at its first use and kept.
// Several threads may use an Engine concurrently.
class Engine {
 public:
  Engine(const std::string& directory, const std::string& options) {
    const nb::gil_scoped_release release;
    const json given = json::parse(options);
    read(given, "threads", threads_);
    const ThreadsScope threads(threads_);
    const io::WarningScope scope(note());
    embedding_ = embedding_options(given);
    const std::string cache = given.value("cache_precision", "auto");
    cache_precision_ = named(engine::kCachePrecisionNames, cache);
    read(given, "draft", draft_);
    model_dir_ = model_of_run(directory, note());
    const std::string task = given.contains("task") ? given.at("task").get<std::string>() : task_of(model_dir_);
    if (task != "generate" && !draft_.empty())
      fail<ArgumentError>("engine", "draft must be absent for the task {}, got {}", task, io::printable(draft_));
    if (task != "generate" && cache_precision_ != engine::CachePrecision::kAuto)
      fail<ArgumentError>("engine", "cache_precision must be auto for the task {}, got {}", task, cache);
    if (task == "fill-mask") {
      mask_filler();
    } else if (task == "generate") {
      continuer();
    } else if (task == "predict") {
      predictor();
    } else {
      embedder();
    }
  }

  // [texts, dimensions]
  nb::object embed(const nb::list& list, const std::optional<std::string>& prompt) {
    const Texts texts(list, "embed");
    std::vector<float> vectors;
    size_t columns = 0;
    run(&Engine::embedder, [&](const engine::Embedder& embedder) {
      columns = static_cast<size_t>(embedder.info().dimensions);
      vectors.resize(texts.size() * columns);
      embedder.embed(texts.views(), vectors.data(), prompt);
    });
    return array_of(std::move(vectors), {texts.size(), columns});
  }

  // The hidden states of the tokens of distinct texts, one after another [tokens, hidden_size]; where each begins, and
  // which one each text is.
  nb::tuple hidden(const nb::list& list, const std::optional<std::string>& prompt) {
    const Texts texts(list, "encode");
    std::vector<float> states;
    size_t columns = 0;
    engine::TokenizedTexts tokens;
    run(&Engine::embedder, [&](const engine::Embedder& embedder) {
      columns = static_cast<size_t>(embedder.model().info().hidden_size);
      tokens = embedder.tokenize(texts.views(), prompt);
      states.resize(tokens.ids.size() * columns);
      std::vector<int64_t> offsets;
      const engine::Tokens input = engine::without_empty(tokens.tokens(), offsets);
      std::vector<int64_t> of_batch;
      engine::for_batches(offsets, embedding_.token_budget, [&](int64_t first, int64_t count) {
        const auto begin = static_cast<size_t>(offsets[first]);
        embedder.model().hidden(engine::slice(input, first, count, of_batch), states.data() + begin * columns);
      });
      const auto name = [&](int64_t token) {
        const auto sequence = std::ranges::upper_bound(tokens.offsets, token) - tokens.offsets.begin() - 1;
        return "the hidden states of " + name_of_text(tokens, sequence, texts.views());
      };
      io::check_finite(
          states, static_cast<int64_t>(columns), [](int64_t) { return "encode"; }, name);
    });
    const size_t rows = tokens.ids.size();
    return nb::make_tuple(array_of(std::move(states), {rows, columns}), array_of(std::move(tokens.offsets)),
                          array_of(std::move(tokens.sequence_of_text)));
  }

  // Kinds of vectors of texts: [texts, dimensions]; where each text begins, indices and values; where each text begins,
  // and vectors [offsets[-1], token_dimensions]. Empty for kinds that the model does not compute.
  nb::tuple vectors(const nb::list& list, const std::optional<std::string>& prompt, const std::string& role,
                    int64_t max_length) {
    const Texts texts(list, "encode");
    std::vector<float> dense, values, rows;
    std::vector<int64_t> weights_begin{0}, rows_begin{0};
    std::vector<int32_t> indices;
    size_t width = 1;  // of a vector of tokens
    const auto append = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
    run(&Engine::embedder, [&](const engine::Embedder& embedder) {
      width = std::max<size_t>(1, static_cast<size_t>(embedder.info().token_dimensions));
      for (const engine::TextVectors& text :
           embedder.vectors(texts.views(), prompt, named(engine::kRoleNames, role), max_length)) {
        append(dense, text.dense);
        append(indices, text.sparse.indices);
        append(values, text.sparse.values);
        append(rows, text.tokens);
        weights_begin.push_back(std::ssize(indices));
        rows_begin.push_back(static_cast<int64_t>(rows.size() / width));
      }
    });
    const size_t columns = texts.size() > 0 ? dense.size() / texts.size() : 0, all_rows = rows.size() / width;
    return nb::make_tuple(array_of(std::move(dense), {texts.size(), columns}), array_of(std::move(weights_begin)),
                          array_of(std::move(indices)), array_of(std::move(values)), array_of(std::move(rows_begin)),
                          array_of(std::move(rows), {all_rows, width}));
  }

  std::vector<std::optional<std::string>> tokens(const std::vector<int64_t>& ids) {
    std::vector<std::optional<std::string>> tokens;
    run(&Engine::embedder, [&](const engine::Embedder& embedder) {
      for (const int64_t id : ids) tokens.push_back(embedder.token(id));
    });
    return tokens;
  }

  std::string fill_mask(const nb::list& list, int64_t top_k) {
    const Texts texts(list, "fill-mask");
    json results = json::array();
    run(&Engine::mask_filler, [&](const tasks::MaskFiller& filler) {
      for (const std::string& text : texts.copies()) {
        json masks = json::array();
        for (const tasks::FilledMask& mask : filler.fill(text, top_k)) {
          json candidates = json::array();
          for (const tasks::MaskCandidate& each : mask.candidates) {
            candidates.push_back({{"token", each.token}, {"id", each.id}, {"probability", each.probability}});
          }
          masks.push_back(std::move(candidates));
        }
        results.push_back(std::move(masks));
      }
    });
    return text_of(results);
  }

  std::string predict(const std::string& records) {
    json results;
    run(&Engine::predictor, [&](const tasks::Predictor& predictor) {
      results = predictor.predict(json::parse(records).get<std::vector<json>>());
    });
    return text_of(results);
  }

  std::string generate(const nb::list& list, const std::string& options) {
    const Texts prompts(list, "generate");
    json results = json::array();
    run(&Engine::continuer, [&](const tasks::Continuer& continuer) {
      const json given = json::parse(options);
      const auto continued = continuer.continue_prompts(prompts.copies(), generation_options(given),
                                                        stops_of(continuer, given), form_of(given));
      for (const auto& sequences : continued) {
        json of_prompt = json::array();
        for (const tasks::Continuation& each : sequences) of_prompt.push_back(json_of(each));
        results.push_back(std::move(of_prompt));
      }
    });
    return text_of(results);
  }

  Stream stream(const nb::list& list, const std::string& options) {
    const Texts prompts(list, "generate");
    std::optional<tasks::ContinuationStream> stream;
    run(&Engine::continuer, [&](const tasks::Continuer& continuer) {
      const json given = json::parse(options);
      stream =
          continuer.stream(prompts.copies()[0], generation_options(given), stops_of(continuer, given), form_of(given));
    });
    return {*std::move(stream), threads_};
  }

  // Properties of the vectors, as JSON.
  std::string embedding_info() {
    json result;
    run(&Engine::embedder, [&](const engine::Embedder& embedder) {
      const engine::EmbedderInfo& info = embedder.info();
      json poolings = json::array();
      for (const engine::Pooling pooling : info.poolings) poolings.push_back(name_in(engine::kPoolingNames, pooling));
      result = {{"dimensions", info.dimensions},
                {"width", info.width},
                {"max_length", info.max_length},
                {"pooling", poolings},
                {"normalized", info.normalized},
                {"prompt", info.prompt},
                {"prompts", info.prompts},
                {"similarity", name_in(engine::kSimilarityNames, info.similarity)},
                {"max_active", info.max_active},
                {"mean_of_maxima", info.mean_of_maxima},
                {"by_role", info.by_role},
                {"sparse_dimensions", info.sparse_dimensions},
                {"tasks", info.tasks}};
    });
    return text_of(result);
  }

  std::string model_dir() const { return model_dir_; }
  std::vector<std::string> take_warnings() {
    const std::lock_guard lock(mutex_);
    return std::exchange(warnings_, {});
  }

 private:
  // Calls action(part) with a part, which is opened if it is not.
  template <typename Part, typename Action>
  void run(const Part& (Engine::*part)(), const Action& action) {
    compute(threads_, [&] {
      const Part& ready = (this->*part)();
      on_open_model([&] { action(ready); });
    });
  }

  template <typename Part, typename Open>
  const Part& opened(std::unique_ptr<Part>& part, const Open& open) {
    const std::lock_guard lock(mutex_);
    if (part == nullptr) part = std::make_unique<Part>(open());
    return *part;
  }
  const engine::Embedder& embedder() {
    return opened(embedder_, [&] {
      engine::EmbedderOptions options = embedding_;
      options.threads = engine::tokenizing_threads(threads_ > 0 ? threads_ : omp_get_max_threads());
      options.warn = note();
      return engine::Embedder(model_dir_, options);
    });
  }
  void refuse_adapter(const char* task) const {
    const std::string& adapter = embedding_.adapter.empty() ? embedding_.task : embedding_.adapter;
    if (!adapter.empty())
      fail<ArgumentError>("engine", "an adapter goes with embed and predict, got {} for {}", io::printable(adapter),
                          task);
  }
  const tasks::MaskFiller& mask_filler() {
    refuse_adapter("fill-mask");
    return opened(mask_filler_, [&] {
      return tasks::MaskFiller(
          model_dir_, {.precision = embedding_.precision, .token_budget = embedding_.token_budget, .note = note()});
    });
  }
  const tasks::Continuer& continuer() {
    refuse_adapter("generate");
    return opened(continuer_, [&] {
      return tasks::Continuer(
          model_dir_,
          {.precision = embedding_.precision, .cache_precision = cache_precision_, .draft = draft_, .note = note()});
    });
  }
  const tasks::Predictor& predictor() {
    return opened(predictor_, [&] {
      tasks::PredictOptions options;
      options.model_dir = model_dir_;
      options.adapter = embedding_.adapter;
      options.precision = embedding_.precision;
      options.batch_tokens = embedding_.token_budget;
      options.note = note();
      return tasks::Predictor(options);
    });
  }

  // Takes warnings while a part is opened, so with the lock.
  std::function<void(const std::string&)> note() {
    return [this](const std::string& text) { warnings_.push_back(io::message_text(text)); };
  }

  std::string model_dir_;
  engine::EmbedderOptions embedding_;  // all parts use its precision and token_budget
  std::string draft_;
  engine::CachePrecision cache_precision_{};
  int threads_ = 0;   // that compute; 0: as many as OpenMP uses
  std::mutex mutex_;  // guards the members below
  std::vector<std::string> warnings_;
  std::unique_ptr<engine::Embedder> embedder_;
  std::unique_ptr<tasks::MaskFiller> mask_filler_;
  std::unique_ptr<tasks::Continuer> continuer_;
  std::unique_ptr<tasks::Predictor> predictor_;
};

// Of the vectors of a text.
nb::object pool_tokens(const nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>& rows, double factor,
                       int64_t protected_tokens, bool normalizes) {
  const auto width = static_cast<int64_t>(rows.shape(1));
  std::vector<float> vectors(rows.data(), rows.data() + rows.size());
  if (width > 0) {
    engine::pool_tokens({.factor = factor, .protected_tokens = protected_tokens, .normalizes = normalizes}, width,
                        vectors);
  }
  const size_t left = width > 0 ? vectors.size() / rows.shape(1) : rows.shape(0);
  return array_of(std::move(vectors), {left, rows.shape(1)});
}

}  // namespace

void bind_engine(nb::module_& module) {
  module.def("pool_tokens", &pool_tokens, nb::arg("rows"), nb::arg("factor"), nb::arg("protected_tokens"),
             nb::arg("normalizes"));
  nb::class_<Stream>(module, "Stream").def("next", &Stream::next).def("result", &Stream::result);
  nb::class_<Engine>(module, "Engine")
      .def(nb::init<const std::string&, const std::string&>(), nb::arg("model_dir"), nb::arg("options"))
      .def("embed", &Engine::embed, nb::arg("texts"), nb::arg("prompt").none())
      .def("hidden", &Engine::hidden, nb::arg("texts"), nb::arg("prompt").none())
      .def("vectors", &Engine::vectors, nb::arg("texts"), nb::arg("prompt").none(), nb::arg("role"),
           nb::arg("max_length") = std::numeric_limits<int64_t>::max())
      .def("tokens", &Engine::tokens, nb::arg("ids"))
      .def("fill_mask", &Engine::fill_mask, nb::arg("texts"), nb::arg("top_k"))
      .def("predict", &Engine::predict, nb::arg("records"))
      .def("generate", &Engine::generate, nb::arg("prompts"), nb::arg("options"))
      .def("stream", &Engine::stream, nb::arg("prompts"), nb::arg("options"), nb::keep_alive<0, 1>())
      .def("embedding_info", &Engine::embedding_info)
      .def("model_dir", &Engine::model_dir)
      .def("take_warnings", &Engine::take_warnings);
}

}  // namespace rf::python
