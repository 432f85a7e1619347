// The C interface over the C++ one (rf/engine.h).
#include "rf/engine.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rf/engine/decoder.h"
#include "rf/engine/embedder.h"
#include "rf/engine/generator.h"
#include "rf/engine/model.h"
#include "rf/io/error.h"

struct rf_engine {
  rf::engine::Model model;
};
struct rf_engine_decoder {
  rf::engine::Decoder decoder;
};
struct rf_engine_embedder {
  rf::engine::Embedder embedder;
};

namespace rf::engine {
namespace {

std::string& last_error() {
  static thread_local std::string text;
  return text;
}

// Runs an action and turns its exceptions into a status.
template <class Action>
rf_status guarded(const Action& action) noexcept {
  try {
    action();
    return RF_OK;
  } catch (const Error& error) {
    last_error() = error.what();
    return RF_INVALID_ARGUMENT;
  } catch (const std::bad_alloc&) {
    last_error() = "[memory] the work must fit into memory, got an allocation that failed";
    return RF_OUT_OF_MEMORY;
  } catch (const std::exception& error) {
    last_error() = error.what();
    return RF_INTERNAL;
  }
}

template <class T>
T* given(T* pointer, const char* name) {
  if (pointer == nullptr) fail("engine", "{} must not be NULL, got NULL", name);
  return pointer;
}

const Model& model_of(const rf_engine* engine) { return given(engine, "the engine")->model; }
Decoder& decoder_of(rf_engine_decoder* decoder) { return given(decoder, "the decoder")->decoder; }
const Embedder& embedder_of(const rf_engine_embedder* embedder) { return given(embedder, "the embedder")->embedder; }

// A copy of a caller's struct. Structs of older callers lack the last fields.
template <class Struct>
Struct copied(const Struct* from, const char* name) {
  const size_t size = given(from, name)->struct_size;
  if (size < sizeof(size_t) || size > sizeof(Struct))
    fail("engine", "{}.struct_size must be that of this version, {}, got {}", name, sizeof(Struct), size);
  Struct copy = {};
  std::memcpy(&copy, from, size);
  return copy;
}

// The number of an enumerator, which a caller in C may have set to any: read as an enum it could be undefined.
template <class Enum>
int number_of(const Enum& value, int end, const char* name) {
  static_assert(sizeof(Enum) == sizeof(int));
  int number = 0;
  std::memcpy(&number, &value, sizeof number);
  if (number < 0 || number >= end) fail("engine", "{} must be a known one, got {}", name, number);
  return number;
}

Precision precision_of(const rf_engine_precision& precision) {
  return static_cast<Precision>(number_of(precision, RF_ENGINE_INT8 + 1, "precision"));
}

Pooling pooling_of(const rf_engine_pooling& pooling) {
  return static_cast<Pooling>(number_of(pooling, RF_ENGINE_MEAN_SQRT_LEN + 1, "pooling"));
}

// Opens a handle; it is NULL after an error.
template <class Handle, class Open>
rf_status open_handle(Handle** handle, const char* name, const Open& open) noexcept {
  return guarded([&] {
    *given(handle, name) = nullptr;
    *handle = new Handle{open()};
  });
}

Tokens tokens_of(const rf_engine_tokens* tokens) {
  const rf_engine_tokens x = copied(tokens, "tokens");
  if (x.sequences < 0 || x.offsets == nullptr) {
    fail("engine", "tokens must have offsets and at least 0 sequences, got {} sequences{}", x.sequences,
         x.offsets == nullptr ? " without offsets" : "");
  }
  const auto sequences = static_cast<size_t>(x.sequences);
  const int64_t end = x.offsets[sequences];
  if (end < 0 || (end > 0 && x.ids == nullptr)) fail("engine", "ids must be given for {} tokens, got none", end);
  const auto count = static_cast<size_t>(end);
  Tokens all{.ids = {x.ids, count}, .offsets = {x.offsets, sequences + 1}};
  if (x.types != nullptr) all.types = {x.types, count};
  if (x.attend != nullptr) all.attend = {x.attend, count};
  if (x.positions != nullptr) all.positions = {x.positions, count};
  return all;
}

ModelOptions options_of(const rf_engine_options* wanted) {
  ModelOptions options;
  if (wanted == nullptr) return options;
  const rf_engine_options x = copied(wanted, "options");
  options.precision = precision_of(x.precision);
  if (x.token_budget != 0) options.token_budget = x.token_budget;
  options.head = static_cast<ModelOptions::Head>(number_of(x.head, RF_ENGINE_MASKED_LM + 1, "head"));
  if (x.task != nullptr) options.task = x.task;
  if (x.adapter != nullptr) options.adapter = x.adapter;
  options.cache_precision =
      static_cast<CachePrecision>(number_of(x.cache_precision, RF_ENGINE_CACHE_INT8 + 1, "cache_precision"));
  return options;
}

GenerationOptions generation_of(const rf_engine_generation* wanted) {
  GenerationOptions options;
  if (wanted == nullptr) return options;
  const rf_engine_generation x = copied(wanted, "generation");
  if (x.stop_count < 0 || (x.stop_count > 0 && x.stop_ids == nullptr))
    fail("engine", "stop_ids must be given, got {} of them", x.stop_count);
  const auto set = [](auto& option, auto value) {
    if (value != 0) option = value;
  };
  options.search = static_cast<Search>(number_of(x.search, RF_ENGINE_BEAMS + 1, "search"));
  set(options.max_new_tokens, x.max_new_tokens);
  set(options.min_new_tokens, x.min_new_tokens);
  options.stop_ids.assign(x.stop_ids, x.stop_ids + x.stop_count);
  set(options.repetition_penalty, x.repetition_penalty);
  set(options.return_sequences, x.return_sequences);
  set(options.temperature, x.temperature);
  set(options.top_k, x.top_k);
  set(options.top_p, x.top_p);
  options.seed = x.seed;
  set(options.beams, x.beams);
  if (x.length_penalty != nullptr) options.length_penalty = *x.length_penalty;
  options.stop_when_full = x.stop_when_full != 0;
  set(options.batch, x.batch);
  options.presence_penalty = x.presence_penalty;
  options.frequency_penalty = x.frequency_penalty;
  return options;
}

void write_generated(const std::vector<std::vector<Generated>>& all, int64_t max_new_tokens,
                     const rf_engine_generated& out) {
  int64_t i = 0;
  for (const std::vector<Generated>& of_prompt : all) {
    for (const Generated& each : of_prompt) {
      std::copy(each.ids.begin(), each.ids.end(), out.ids + i * max_new_tokens);
      out.counts[i] = static_cast<int64_t>(each.ids.size());
      if (out.log_probability != nullptr) out.log_probability[i] = each.log_probability;
      if (out.score != nullptr) out.score[i] = each.score;
      if (out.stopped != nullptr) out.stopped[i] = each.stopped ? 1 : 0;
      ++i;
    }
  }
}

EmbedderOptions embedder_options_of(const rf_engine_embedder_options* wanted) {
  EmbedderOptions options;
  if (wanted == nullptr) return options;
  const rf_engine_embedder_options x = copied(wanted, "options");
  options.precision = precision_of(x.precision);
  if (x.token_budget != 0) options.token_budget = x.token_budget;
  if (x.pooling != nullptr) options.poolings = {pooling_of(*x.pooling)};
  if (x.normalize != 0) options.normalize = x.normalize > 0;
  options.dimensions = x.dimensions;
  options.max_length = x.max_length;
  if (x.prompt != nullptr) options.prompt = x.prompt;
  if (x.prompt_name != nullptr) options.prompt_name = x.prompt_name;
  if (x.task != nullptr) options.task = x.task;
  if (x.adapter != nullptr) options.adapter = x.adapter;
  options.long_texts = x.refuse_long_texts != 0 ? LongTexts::kRefuse : LongTexts::kTruncate;
  options.vectors = static_cast<VectorKind>(number_of(x.vectors, RF_ENGINE_ALL_VECTORS + 1, "vectors"));
  options.role = static_cast<TextRole>(number_of(x.role, RF_ENGINE_DOCUMENT + 1, "role"));
  options.max_active = x.max_active;
  return options;
}

std::vector<std::string_view> texts_of(int64_t count, const char* const* texts, const size_t* bytes) {
  if (count < 0 || (count > 0 && texts == nullptr))
    fail("engine", "texts must be given, got {} of them{}", count, texts == nullptr ? " at NULL" : "");
  std::vector<std::string_view> views;
  for (int64_t i = 0; i < count; ++i) {
    if (texts[i] == nullptr) fail("engine", "a text must not be NULL, got NULL at {}", i);
    views.push_back(bytes == nullptr ? std::string_view(texts[i]) : std::string_view(texts[i], bytes[i]));
  }
  return views;
}

// The memory that rf_engine_vectors points to.
struct OwnVectors {
  std::vector<float> dense, sparse_values, token_vectors;
  std::vector<int64_t> sparse_offsets{0}, token_offsets{0};
  std::vector<int32_t> sparse_indices;

  void add(const TextVectors& text, int64_t token_dimensions) {
    dense.insert(dense.end(), text.dense.begin(), text.dense.end());
    sparse_indices.insert(sparse_indices.end(), text.sparse.indices.begin(), text.sparse.indices.end());
    sparse_values.insert(sparse_values.end(), text.sparse.values.begin(), text.sparse.values.end());
    sparse_offsets.push_back(std::ssize(sparse_indices));
    token_vectors.insert(token_vectors.end(), text.tokens.begin(), text.tokens.end());
    if (token_dimensions > 0) token_offsets.push_back(std::ssize(token_vectors) / token_dimensions);
  }
};

void embed_vectors(const Embedder& embedder, std::span<const std::string_view> texts, rf_engine_vectors& out) {
  const EmbedderInfo& info = embedder.info();
  auto own = std::make_unique<OwnVectors>();
  for (const TextVectors& text : embedder.vectors(texts)) own->add(text, info.token_dimensions);
  out.count = std::ssize(texts);
  if (info.vectors == VectorKind::kDense || info.vectors == VectorKind::kAll) {
    out.dense_dimensions = info.dimensions;
    out.dense = own->dense.data();
  }
  if (info.sparse_dimensions > 0) {
    out.sparse_dimensions = info.sparse_dimensions;
    out.sparse_offsets = own->sparse_offsets.data();
    out.sparse_indices = own->sparse_indices.data();
    out.sparse_values = own->sparse_values.data();
  }
  if (info.token_dimensions > 0) {
    out.token_dimensions = info.token_dimensions;
    out.token_offsets = own->token_offsets.data();
    out.token_vectors = own->token_vectors.data();
  }
  out.owner = own.release();
}

}  // namespace
}  // namespace rf::engine

using rf::engine::decoder_of;
using rf::engine::embedder_of;
using rf::engine::given;
using rf::engine::guarded;
using rf::engine::model_of;
using rf::engine::open_handle;
using rf::engine::tokens_of;

extern "C" rf_status rf_engine_open(const char* model_dir, const rf_engine_options* options, rf_engine** engine) {
  return open_handle(engine, "engine", [&] {
    return rf::engine::Model{given(model_dir, "model_dir"), rf::engine::options_of(options)};
  });
}

extern "C" void rf_engine_close(rf_engine* engine) { delete engine; }

extern "C" rf_status rf_engine_describe(const rf_engine* engine, rf_engine_info* info) {
  return guarded([&] {
    const rf::engine::Model& model = model_of(engine);
    const size_t size = rf::engine::copied(info, "info").struct_size;
    const bool has_head = model.info().head != rf::Head{};
    const rf_engine_info found = {.struct_size = size,
                                  .vocab_size = model.info().vocab_size,
                                  .hidden_size = model.info().hidden_size,
                                  .layers = model.info().layers,
                                  .heads = model.info().heads,
                                  .logits_per_row = has_head ? model.logits_per_row() : 0,
                                  .logits_of_tokens = model.logits_of_tokens() ? 1 : 0};
    std::memcpy(info, &found, size);
  });
}

extern "C" rf_status rf_engine_hidden(const rf_engine* engine, const rf_engine_tokens* tokens, float* out) {
  return guarded([&] { model_of(engine).hidden(tokens_of(tokens), given(out, "out")); });
}

extern "C" rf_status rf_engine_pooled(const rf_engine* engine, const rf_engine_tokens* tokens,
                                      rf_engine_pooling pooling, float* out) {
  return guarded(
      [&] { model_of(engine).pooled(tokens_of(tokens), rf::engine::pooling_of(pooling), given(out, "out")); });
}

extern "C" rf_status rf_engine_logits(const rf_engine* engine, const rf_engine_tokens* tokens, float* out) {
  return guarded([&] { model_of(engine).logits(tokens_of(tokens), given(out, "out")); });
}

extern "C" rf_status rf_engine_vocabulary_logits(const rf_engine* engine, const rf_engine_tokens* tokens,
                                                 const int64_t* rows, int64_t count, float* out) {
  return guarded([&] {
    if (count < 0 || (count > 0 && rows == nullptr)) rf::fail("engine", "rows must be given, got {} of them", count);
    model_of(engine).vocabulary_logits(tokens_of(tokens), {rows, static_cast<size_t>(count)}, given(out, "out"));
  });
}

extern "C" rf_status rf_engine_generate(const rf_engine* engine, const rf_engine_tokens* prompts,
                                        const rf_engine_generation* options, const rf_engine_generated* out) {
  return guarded([&] {
    const rf::engine::Tokens tokens = tokens_of(prompts);
    const rf_engine_generated to = rf::engine::copied(out, "generated");
    if (to.ids == nullptr || to.counts == nullptr) rf::fail("engine", "ids and counts must not be NULL, got NULL");
    const rf::engine::GenerationOptions wanted = rf::engine::generation_of(options);
    std::vector<std::vector<int32_t>> texts;
    for (size_t i = 0; i + 1 < tokens.offsets.size(); ++i) {
      const int64_t begin = tokens.offsets[i], end = tokens.offsets[i + 1];
      if (begin < 0 || end < begin || end > tokens.offsets.back())
        rf::fail("engine", "offsets must rise from 0, got {} after {}", end, begin);
      texts.emplace_back(tokens.ids.begin() + begin, tokens.ids.begin() + end);
    }
    rf::engine::Generator generator(model_of(engine));
    rf::engine::write_generated(generator.generate(texts, wanted), wanted.max_new_tokens, to);
  });
}

extern "C" rf_status rf_engine_next_probabilities(const rf_engine* engine, const int32_t* prompt, int64_t count,
                                                  const rf_engine_generation* options, float* out) {
  return guarded([&] {
    if (count < 0 || prompt == nullptr) rf::fail("engine", "the prompt must be given, got {} ids", count);
    rf::engine::Generator generator(model_of(engine));
    generator.next_probabilities({prompt, static_cast<size_t>(count)}, rf::engine::generation_of(options),
                                 given(out, "out"));
  });
}

extern "C" rf_status rf_engine_decoder_open(const rf_engine* engine, int64_t sequences, int64_t max_tokens,
                                            rf_engine_decoder** decoder) {
  return open_handle(decoder, "decoder", [&] { return rf::engine::Decoder(model_of(engine), sequences, max_tokens); });
}

extern "C" void rf_engine_decoder_close(rf_engine_decoder* decoder) { delete decoder; }

extern "C" rf_status rf_engine_decoder_append(rf_engine_decoder* decoder, const int64_t* sequences,
                                              const rf_engine_tokens* added, float* logits) {
  return guarded([&] {
    const rf::engine::Tokens tokens = tokens_of(added);
    decoder_of(decoder).append({given(sequences, "sequences"), tokens.offsets.size() - 1}, tokens.offsets, tokens.ids,
                               given(logits, "out"));
  });
}

extern "C" rf_status rf_engine_decoder_copy(rf_engine_decoder* decoder, int64_t from, int64_t to) {
  return guarded([&] { decoder_of(decoder).copy(from, to); });
}

extern "C" rf_status rf_engine_decoder_truncate(rf_engine_decoder* decoder, int64_t sequence, int64_t tokens) {
  return guarded([&] { decoder_of(decoder).truncate(sequence, tokens); });
}

extern "C" rf_status rf_engine_embedder_open(const char* model_dir, const rf_engine_embedder_options* options,
                                             rf_engine_embedder** embedder) {
  return open_handle(embedder, "embedder", [&] {
    return rf::engine::Embedder{given(model_dir, "model_dir"), rf::engine::embedder_options_of(options)};
  });
}

extern "C" void rf_engine_embedder_close(rf_engine_embedder* embedder) { delete embedder; }

extern "C" rf_status rf_engine_embedder_dimensions(const rf_engine_embedder* embedder, int64_t* dimensions) {
  return guarded([&] { *given(dimensions, "dimensions") = embedder_of(embedder).info().dimensions; });
}

extern "C" rf_status rf_engine_embed(const rf_engine_embedder* embedder, int64_t count, const char* const* texts,
                                     const size_t* bytes, float* out) {
  return guarded([&] {
    const auto views = rf::engine::texts_of(count, texts, bytes);
    embedder_of(embedder).embed(views, given(out, "out"));
  });
}

extern "C" rf_status rf_engine_embed_vectors(const rf_engine_embedder* embedder, int64_t count,
                                             const char* const* texts, const size_t* bytes, rf_engine_vectors* out) {
  return guarded([&] {
    rf_engine_vectors found = {};
    found.struct_size = sizeof found;
    if (given(out, "out")->struct_size != sizeof found)
      rf::fail("engine", "out.struct_size must be that of this version, {}, got {}", sizeof found, out->struct_size);
    *out = found;
    rf::engine::embed_vectors(embedder_of(embedder), rf::engine::texts_of(count, texts, bytes), found);
    *out = found;
  });
}

extern "C" void rf_engine_vectors_free(rf_engine_vectors* vectors) {
  if (vectors == nullptr) return;
  delete static_cast<rf::engine::OwnVectors*>(vectors->owner);
  const size_t size = vectors->struct_size;
  *vectors = {};
  vectors->struct_size = size;
}

extern "C" const char* rf_engine_last_error(void) { return rf::engine::last_error().c_str(); }
