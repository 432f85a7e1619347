// The C interface over the C++ one (rf/engine.h).
#include <fmt/format.h>

#include <cstring>
#include <new>
#include <string>

#include "rf/engine.h"
#include "rf/engine/model.h"
#include "rf/io/error.h"

struct rf_engine {
  rf::engine::Model model;
};

namespace rf::engine {
namespace {

thread_local std::string last_error;

// Runs an action and turns what it throws into a status.
template <class Action>
rf_status guarded(const Action& action) noexcept {
  try {
    action();
    return RF_OK;
  } catch (const Error& error) {
    last_error = error.what();
    return RF_INVALID_ARGUMENT;
  } catch (const std::bad_alloc&) {
    last_error = "[memory] the work must fit into memory, got an allocation that failed";
    return RF_OUT_OF_MEMORY;
  } catch (const std::exception& error) {
    last_error = error.what();
    return RF_INTERNAL;
  }
}

// A copy of a caller's struct, of which an older caller's lacks the last fields.
template <class Struct>
Struct copied(const Struct* given, const char* name) {
  if (given == nullptr) fail("engine", "{} must not be NULL, got NULL", name);
  if (given->struct_size < sizeof(size_t) || given->struct_size > sizeof(Struct)) {
    fail("engine", "{}.struct_size must be that of this version, {}, got {}", name, sizeof(Struct), given->struct_size);
  }
  Struct copy = {};
  std::memcpy(&copy, given, given->struct_size);
  return copy;
}

const Model& model_of(const rf_engine* engine) {
  if (engine == nullptr) fail("engine", "the engine must not be NULL, got NULL");
  return engine->model;
}

Tokens tokens_of(const rf_engine_tokens* given) {
  const rf_engine_tokens x = copied(given, "tokens");
  if (x.sequences < 0 || x.offsets == nullptr) {
    fail("engine", "tokens must have offsets and at least 0 sequences, got {} sequences{}", x.sequences,
         x.offsets == nullptr ? " without offsets" : "");
  }
  const auto sequences = static_cast<size_t>(x.sequences);
  const int64_t end = x.offsets[sequences];
  if (end < 0 || (end > 0 && x.ids == nullptr)) fail("engine", "ids must be given for {} tokens, got none", end);
  const auto count = static_cast<size_t>(end);
  Tokens tokens{.ids = {x.ids, count}, .offsets = {x.offsets, sequences + 1}};
  if (x.types != nullptr) tokens.types = {x.types, count};
  if (x.attend != nullptr) tokens.attend = {x.attend, count};
  if (x.positions != nullptr) tokens.positions = {x.positions, count};
  return tokens;
}

void check_output(const float* out) {
  if (out == nullptr) fail("engine", "out must not be NULL, got NULL");
}

ModelOptions options_of(const rf_engine_options* given) {
  ModelOptions options;
  if (given == nullptr) return options;
  const rf_engine_options x = copied(given, "options");
  if (x.precision < RF_ENGINE_FLOAT32 || x.precision > RF_ENGINE_INT8) {
    fail("engine", "precision must be a known one, got {}", static_cast<int>(x.precision));
  }
  if (x.head < RF_ENGINE_CONFIGURED_HEAD || x.head > RF_ENGINE_MASKED_LM) {
    fail("engine", "head must be a known one, got {}", static_cast<int>(x.head));
  }
  options.precision = static_cast<Precision>(x.precision);
  if (x.token_budget != 0) options.token_budget = x.token_budget;
  options.head = static_cast<ModelOptions::Head>(x.head);
  return options;
}

}  // namespace
}  // namespace rf::engine

using rf::engine::check_output;
using rf::engine::guarded;
using rf::engine::model_of;
using rf::engine::tokens_of;

extern "C" rf_status rf_engine_open(const char* model_dir, const rf_engine_options* options, rf_engine** engine) {
  return guarded([&] {
    if (engine == nullptr) rf::fail("engine", "engine must not be NULL, got NULL");
    *engine = nullptr;
    if (model_dir == nullptr) rf::fail("engine", "model_dir must not be NULL, got NULL");
    *engine = new rf_engine{rf::engine::Model(model_dir, rf::engine::options_of(options))};
  });
}

extern "C" void rf_engine_close(rf_engine* engine) {
  delete engine;
}

extern "C" rf_status rf_engine_describe(const rf_engine* engine, rf_engine_info* info) {
  return guarded([&] {
    const rf::engine::Model& model = model_of(engine);
    const rf_engine_info given = rf::engine::copied(info, "info");
    const bool has_head = model.info().task != rf::engine::Task::kNone;
    const rf_engine_info found = {.struct_size = given.struct_size,
                                  .vocab_size = model.info().vocab_size,
                                  .hidden_size = model.info().hidden_size,
                                  .layers = model.info().layers,
                                  .heads = model.info().heads,
                                  .logits_per_row = has_head ? model.logits_per_row() : 0,
                                  .logits_of_tokens = model.logits_of_tokens() ? 1 : 0};
    std::memcpy(info, &found, given.struct_size);
  });
}

extern "C" rf_status rf_engine_hidden(const rf_engine* engine, const rf_engine_tokens* tokens, float* out) {
  return guarded([&] {
    check_output(out);
    model_of(engine).hidden(tokens_of(tokens), out);
  });
}

extern "C" rf_status rf_engine_pooled(const rf_engine* engine, const rf_engine_tokens* tokens,
                                      rf_engine_pooling pooling, float* out) {
  return guarded([&] {
    check_output(out);
    if (pooling < RF_ENGINE_MEAN || pooling > RF_ENGINE_MEAN_SQRT_LEN) {
      rf::fail("engine", "pooling must be a known one, got {}", static_cast<int>(pooling));
    }
    model_of(engine).pooled(tokens_of(tokens), static_cast<rf::engine::Pooling>(pooling), out);
  });
}

extern "C" rf_status rf_engine_logits(const rf_engine* engine, const rf_engine_tokens* tokens, float* out) {
  return guarded([&] {
    check_output(out);
    model_of(engine).logits(tokens_of(tokens), out);
  });
}

extern "C" rf_status rf_engine_vocabulary_logits(const rf_engine* engine, const rf_engine_tokens* tokens,
                                                 const int64_t* rows, int64_t count, float* out) {
  return guarded([&] {
    check_output(out);
    if (count < 0 || (count > 0 && rows == nullptr)) rf::fail("engine", "rows must be given, got {} of them", count);
    model_of(engine).vocabulary_logits(tokens_of(tokens), {rows, static_cast<size_t>(count)}, out);
  });
}

extern "C" const char* rf_engine_last_error(void) {
  return rf::engine::last_error.c_str();
}
