// The C interface of texts to vectors, over rf::engine::Embedder.
#include <string_view>
#include <vector>

#include "c_interface.h"
#include "rf/engine/embedder.h"

struct rf_engine_embedder {
  rf::engine::Embedder embedder;
};

namespace rf::engine {
namespace {

EmbedderOptions embedder_options_of(const rf_engine_embedder_options* given) {
  EmbedderOptions options;
  if (given == nullptr) return options;
  const rf_engine_embedder_options x = copied(given, "options");
  options.precision = precision_of(x.precision);
  if (x.token_budget != 0) options.token_budget = x.token_budget;
  if (x.pooling != nullptr) options.poolings = {pooling_of(*x.pooling)};
  if (x.normalize != 0) options.normalize = x.normalize > 0;
  options.dimensions = x.dimensions;
  options.max_length = x.max_length;
  if (x.prompt != nullptr) options.prompt = x.prompt;
  if (x.prompt_name != nullptr) options.prompt_name = x.prompt_name;
  options.long_texts = x.refuse_long_texts != 0 ? LongTexts::kRefuse : LongTexts::kTruncate;
  return options;
}

const Embedder& embedder_of(const rf_engine_embedder* embedder) {
  if (embedder == nullptr) fail("engine", "the embedder must not be NULL, got NULL");
  return embedder->embedder;
}

}  // namespace
}  // namespace rf::engine

using rf::engine::guarded;

extern "C" rf_status rf_engine_embedder_open(const char* model_dir, const rf_engine_embedder_options* options,
                                             rf_engine_embedder** embedder) {
  return guarded([&] {
    if (embedder == nullptr) rf::fail("engine", "embedder must not be NULL, got NULL");
    *embedder = nullptr;
    if (model_dir == nullptr) rf::fail("engine", "model_dir must not be NULL, got NULL");
    *embedder = new rf_engine_embedder{rf::engine::Embedder(model_dir, rf::engine::embedder_options_of(options))};
  });
}

extern "C" void rf_engine_embedder_close(rf_engine_embedder* embedder) { delete embedder; }

extern "C" rf_status rf_engine_embedder_dimensions(const rf_engine_embedder* embedder, int64_t* dimensions) {
  return guarded([&] {
    if (dimensions == nullptr) rf::fail("engine", "dimensions must not be NULL, got NULL");
    *dimensions = rf::engine::embedder_of(embedder).info().dimensions;
  });
}

extern "C" rf_status rf_engine_embed(const rf_engine_embedder* embedder, int64_t count, const char* const* texts,
                                     const size_t* bytes, float* out) {
  return guarded([&] {
    if (count < 0 || (count > 0 && texts == nullptr)) {
      rf::fail("engine", "texts must be given, got {} of them{}", count, texts == nullptr ? " at NULL" : "");
    }
    rf::engine::check_output(out);
    std::vector<std::string_view> views;
    for (int64_t i = 0; i < count; ++i) {
      if (texts[i] == nullptr) rf::fail("engine", "a text must not be NULL, got NULL at {}", i);
      views.push_back(bytes == nullptr ? std::string_view(texts[i]) : std::string_view(texts[i], bytes[i]));
    }
    rf::engine::embedder_of(embedder).embed(views, out);
  });
}
